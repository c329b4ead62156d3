"""The network η that turns features of experience into targets (Oh et al. 2025, Methods, "Meta-network")."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from discorl import nn
from discorl.distributions import softmax
from discorl.rule_config import DiscoConfig, array_shapes
from discorl.rules.features import Embedded, Features, Shared, features
from discorl.types import Key

ACTIVATIONS: Mapping[str, nn.Activation] = {"relu": jax.nn.relu, "silu": jax.nn.silu}


class Encoders(NamedTuple):
    """How one recurrent network sees predictions and actions."""

    y: tuple[nn.Linear, ...]
    z: tuple[nn.Linear, ...]
    actions: tuple[nn.Linear, ...]


class Lifetime(NamedTuple):
    """The slow network: one step per update, over an agent's whole life."""

    encoders: Encoders
    inputs: nn.Linear
    lstm: nn.Linear


class MetaParams(NamedTuple):
    encoders: Encoders
    lstm: nn.Linear
    gate: nn.Linear
    summary: nn.Linear
    y: nn.Linear
    z: nn.Linear
    policy_blocks: tuple[nn.Linear, ...]
    pi: nn.Linear
    lifetime: Lifetime


class InitScales(NamedTuple):
    """How a rule is born. A gate bias of 0 is the published one: such a rule teaches nothing at first."""

    heads: float = 0.3
    gate: float = 1.0
    gate_bias: float = 0.0


class MetaTargets(NamedTuple):
    pi: Float[Array, "T B A"]
    y: Float[Array, "T B Y"]
    z: Float[Array, "T B Y"]


def init_meta_network(key: Key, config: DiscoConfig, scales: InitScales = InitScales()) -> MetaParams:
    shapes = array_shapes(config)
    names = [name.removesuffix("/w") for name in shapes if name.endswith("/w")]
    own = {"lstm/linear": scales.gate} | {f"lstm/linear_{i}": scales.heads for i in range(1, 5)}
    sizes = [nn.LinearSize(*shapes[f"{name}/w"][-2:], scale=own.get(name)) for name in names]
    arrays = {}
    for name, layer in zip(names, nn.init_linears(key, sizes), strict=True):
        arrays[f"{name}/w"], arrays[f"{name}/b"] = layer
    arrays["lstm/linear/b"] = arrays["lstm/linear/b"] + scales.gate_bias
    return from_arrays(arrays, config)


def from_arrays(arrays: Mapping[str, Array | np.ndarray], config: DiscoConfig) -> MetaParams:
    """Parameters from arrays under their published names; a kernel axis of size 1 is dropped."""

    def linear(name: str) -> nn.Linear:
        w, b = (jnp.asarray(arrays[f"{name}/{part}"]) for part in "wb")
        return nn.Linear(w=w.reshape(w.shape[-2:]), b=b)

    def mlp(name: str) -> tuple[nn.Linear, ...]:
        return tuple(linear(f"{name}/~/linear_{i}") for i in range(len(config.prediction_embedding)))

    def blocks(name: str, count: int) -> tuple[nn.Linear, ...]:
        return tuple(linear(f"{name}/conv1_d{f'_{i}' if i else ''}") for i in range(count))

    def encoders(prefix: str) -> Encoders:
        actions = blocks(f"{prefix}/sequential", len(config.action_channels))
        return Encoders(y=mlp(f"{prefix}/mlp"), z=mlp(f"{prefix}/mlp_1"), actions=actions)

    slow = "lstm/~/meta_lstm/~unroll"
    return MetaParams(
        encoders=encoders("lstm"),
        lstm=linear("lstm/lstm/linear"),
        gate=linear("lstm/linear"),
        summary=linear("lstm/linear_1"),
        y=linear("lstm/linear_2"),
        z=linear("lstm/linear_3"),
        policy_blocks=blocks("lstm/sequential_1", len(config.policy_channels)),
        pi=linear("lstm/linear_4"),
        lifetime=Lifetime(
            encoders=encoders(slow), inputs=linear(f"{slow}/mlp_2/~/linear_0"), lstm=linear(f"{slow}/lstm/linear")
        ),
    )


def to_arrays(params: MetaParams, config: DiscoConfig) -> dict[str, np.ndarray]:
    """The inverse of `from_arrays`."""
    shapes = array_shapes(config)
    # a template whose leaves are the names tells which leaf belongs to which name
    names = jax.tree.leaves(_named_template(config), is_leaf=lambda x: isinstance(x, str))
    leaves = jax.tree.leaves(params)
    return {n: np.asarray(x).reshape(shapes[n]) for n, x in zip(names, leaves, strict=True)}


def _named_template(config: DiscoConfig) -> MetaParams:
    numbered = {n: np.full(s, i, np.int32) for i, (n, s) in enumerate(array_shapes(config).items())}
    names = list(numbered)
    return jax.tree.map(lambda x: names[int(x.flat[0])], jax.tree.map(np.asarray, from_arrays(numbered, config)))


def embed_predictions(layers: tuple[tuple[nn.Linear, ...], ...], logits: Float[Array, "*S Y"]) -> list[Array]:
    """Each MLP on the distribution P(logits); they share one softmax and one first product.

    The weights are normalised after the product, on a few numbers instead of on Y.
    """
    first = [mlp[0] for mlp in layers]
    weights, total, _ = softmax(logits)
    product = nn.product(weights, jnp.concatenate([layer.w for layer in first], axis=-1)) / total[..., None]
    splits = np.cumsum([layer.b.shape[0] for layer in first])[:-1].tolist()
    outs = []
    for mlp, x in zip(layers, jnp.split(product, splits, axis=-1), strict=True):
        x = nn.add_bias(x, mlp[0].b)
        outs.append(nn.mlp(mlp[1:], jax.nn.relu(x)) if mlp[1:] else x)
    return outs


def action_blocks(
    layers: tuple[nn.Linear, ...], x: Float[Array, "T B A C"], activation: nn.Activation
) -> Float[Array, "T B A D"]:
    """Each block sees an action's channels beside their mean over actions: any number of actions, in any order."""
    for layer in layers:
        own, mean = jnp.split(layer.w, 2)
        x = activation(nn.add_bias(nn.product(x, own) + nn.product(x.mean(-2, keepdims=True), mean), layer.b))
    return x


def _inputs(
    encoders: Encoders, inputs: Features, shared: Shared, activation: nn.Activation
) -> tuple[Float[Array, "T B F"], Float[Array, "T B A D"]]:
    """Per-step inputs of a recurrent network, and the encoded actions."""
    encoded = action_blocks(encoders.actions, inputs.action, activation)
    taken = (shared.values[..., -1:] * encoded).sum(-2)
    return jnp.concatenate([inputs.step, encoded.mean(-2), taken], axis=-1), encoded


def policy_target(
    params: MetaParams, x: Float[Array, "T B H"], encoded: Float[Array, "T B A D"], activation: nn.Activation
) -> Float[Array, "T B A"]:
    """Blocks on [x, encoded action]. x is the same for every action, so its product is made once, not A times."""
    layer, *rest = params.policy_blocks
    width = x.shape[-1]
    own, mean = jnp.split(layer.w, 2)
    from_x = nn.product(x, own[:width] + mean[:width])  # the mean of x over actions is x
    from_actions = nn.product(encoded, own[width:]) + nn.product(encoded.mean(-2, keepdims=True), mean[width:])
    hidden = activation(nn.add_bias(from_x[..., None, :] + from_actions, layer.b))
    hidden = action_blocks(tuple(rest), hidden, activation)
    return nn.linear(params.pi, hidden).squeeze(-1)


class MetaInputs(NamedTuple):
    """Predictions as each of the two recurrent networks sees them, and what both share."""

    shared: Shared
    terminal: Bool[Array, "T B"]
    online: tuple[Embedded, Embedded]  # for the trajectory network, for the lifetime network
    target: tuple[Embedded, Embedded]


def apply_meta_network(
    params: MetaParams, lifetime: nn.LSTMState, inputs: MetaInputs, config: DiscoConfig, unroll: int = 1
) -> tuple[MetaTargets, nn.LSTMState]:
    """Targets for every step, and the lifetime state after this update.

    The trajectory network runs backwards, so that a step's target knows what came of it; the lifetime state of
    *before* this update gates what it says. `unroll` steps of the first are compiled together.
    """
    activation = ACTIVATIONS[config.activation]
    seen = features(inputs.shared, inputs.online[0], inputs.target[0])
    x, encoded = _inputs(params.encoders, seen, inputs.shared, activation)
    x = nn.lstm_unroll_backwards(params.lstm, x, inputs.terminal, unroll)
    x = x * nn.linear(params.gate, lifetime.hidden).reshape(1, 1, -1)
    targets = MetaTargets(
        pi=policy_target(params, x, encoded, activation), y=nn.linear(params.y, x), z=nn.linear(params.z, x)
    )

    slow = params.lifetime
    seen = features(inputs.shared, inputs.online[1], inputs.target[1])
    step, _ = _inputs(slow.encoders, seen, inputs.shared, activation)
    (y_hat,) = embed_predictions((slow.encoders.y,), targets.y)
    step = jnp.concatenate([step, nn.linear(params.summary, x), y_hat], axis=-1)
    # a linear layer and a mean commute: average first, on 29 numbers
    return targets, nn.lstm_step(slow.lstm, nn.linear(slow.inputs, step.mean((0, 1))), lifetime)
