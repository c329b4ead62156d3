"""Figures recorded from the released DiscoRL code (commit 9059a29), and their translation into our records.

The recorded layout stores `reward[t]`, `discount[t]` with the observation they arrived with; ours stores them with the
action they follow.
"""

import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from discorl import nn
from discorl.envs.base import EnvSpec
from discorl.networks.assembly import ModelParams, NetworkParams
from discorl.rule_config import DiscoConfig, array_shapes
from discorl.types import Rollout

FOLDER = Path(__file__).parent


def load(name: str) -> dict[str, np.ndarray]:
    with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as data:
        return {key: data[key] for key in data.files}


def config(data: Mapping[str, np.ndarray]) -> dict:
    return json.loads(str(data["cfg"]))


def env_spec(data: Mapping[str, np.ndarray]) -> EnvSpec:
    import jax

    cfg = config(data)
    return EnvSpec("recorded", cfg["A"], jax.ShapeDtypeStruct(tuple(cfg["obs_shape"]), jnp.float32))


def rollout(data: Mapping[str, np.ndarray], prefix: str) -> Rollout:
    get = lambda name: data[f"{prefix}/{name}"]  # noqa: E731
    ended = get("discounts") == 0
    return Rollout(
        obs=jnp.asarray(get("observations")),
        first=jnp.asarray(ended),
        action=jnp.asarray(get("actions")[:-1]),
        reward=jnp.asarray(get("rewards")[1:]),
        discount=jnp.asarray(1 - ended[1:].astype(np.float32)),
        behaviour_logits=jnp.asarray(get("behaviour_logits")[:-1]),
        memory=(),
    )


def agent_params(data: Mapping[str, np.ndarray], prefix: str) -> NetworkParams:
    def linear(name: str) -> nn.Linear:
        return nn.Linear(*(jnp.asarray(data[f"{prefix}/mlp/{name}/{part}"]) for part in "wb"))

    def mlp(name: str) -> tuple[nn.Linear, ...]:
        return tuple(linear(f"{name}/~/linear_{i}") for i in range(2))

    has_model = f"{prefix}/mlp/linear/w" in data
    model = (
        ModelParams(
            cell=linear("linear"),
            lstm=linear("action_cond/linear"),
            z=mlp("mlp"),
            aux_pi=mlp("mlp_1"),
            q=mlp("mlp_2"),
        )
        if has_model
        else ()
    )
    return NetworkParams(
        torso=mlp("~_embedding_pass/torso"),
        logits=linear("~_head_pass/torso_head/~/linear_0"),
        y=linear("~_head_pass/torso_head_1/~/linear_0"),
        model=model,
    )


def seeded_rule(data: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The rule of the `*_seeded_*` files: made, not stored."""
    arrays = {}
    for name, shape in array_shapes(DiscoConfig()).items():
        rng = np.random.default_rng([config(data)["seed"] + 2, zlib.crc32(name.encode())])
        scale = 0.1 if len(shape) < 2 else 1 / math.sqrt(math.prod(shape[:-1]))
        arrays[name] = (rng.standard_normal(shape).astype(np.float32) * np.float32(scale)).astype(np.float32)
    return arrays
