"""Agents by name: what `--agent` may say."""

from functools import partial

import jax

from discorl.envs.base import EnvSpec
from discorl.errors import DiscorlError, near_matches
from discorl.networks import AgentNetwork, Torso, assemble, encoders, impala_torso, mlp_torso, recurrent
from discorl.networks.observations import entries, looks_like_image
from discorl.settings import AGENT_DEFAULTS, Settings
from discorl.types import Needs


def by_name(name: str, spec: EnvSpec, needs: Needs, sizes: Settings) -> AgentNetwork:
    """The agent of that name; its sizes are the settings, nothing left open."""
    if name not in AGENT_DEFAULTS:
        raise DiscorlError(f"unknown agent {name!r}; {near_matches(name, AGENT_DEFAULTS)}")
    for part in ("channels", "memory_width"):
        if bool(getattr(sizes, part)) != (part in AGENT_DEFAULTS[name]):
            having = " or ".join(agent for agent, own in AGENT_DEFAULTS.items() if part in own)
            raise DiscorlError(f"{part} {getattr(sizes, part)} does not fit the agent {name}: it is for {having}")
    assert sizes.model_width is not None
    assert sizes.head_hidden is not None
    torso = _torso(name, spec, sizes)
    return assemble(torso, spec, needs, model_width=sizes.model_width, head_hidden=sizes.head_hidden)


def _torso(name: str, spec: EnvSpec, sizes: Settings) -> Torso:
    hidden, channels, memory_width = sizes.hidden or (), sizes.channels or (), sizes.memory_width or 0
    images = partial(impala_torso, channels=channels, hidden=hidden, fold=sizes.fold or 1)
    core = partial(recurrent, spec=spec, width=memory_width)
    match name:
        case "mlp":
            return mlp_torso(spec, hidden)
        case "lstm" | "gru":
            return core(mlp_torso(spec, hidden, last=jax.nn.relu), cell=name)
        case "encoders":
            return encoders(spec, hidden=hidden, image=images)
        case "impala-lstm":
            return core(_seen(spec, hidden, images))
        case _:
            return _seen(spec, hidden, images)


def _seen(spec: EnvSpec, hidden: tuple[int, ...], images: partial[Torso]) -> Torso:
    """One image as it is, several entries each by its own encoder; there must be an image."""
    parts = entries(spec)
    if len(parts) > 1 and any(looks_like_image(part.observation.shape) for part in parts.values()):
        return encoders(spec, hidden=hidden, image=images)
    return images(spec)
