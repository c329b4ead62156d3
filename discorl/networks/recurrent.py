"""A memory around any torso: an LSTM or GRU core that forgets where an episode starts."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from discorl import nn
from discorl.envs.base import EnvSpec
from discorl.errors import DiscorlError, near_matches
from discorl.networks.base import Torso, embedding_width
from discorl.types import Key, Memory, Observation, Params

CoreState = PyTree


class Cell(NamedTuple):
    """One step of a recurrent network, given what input and hidden state say to each gate."""

    gates: int
    zero: Callable[[int, int], CoreState]  # width, batch size
    hidden: Callable[[CoreState], Float[Array, "B H"]]
    step: Callable[[Float[Array, "B G"], Float[Array, "B G"], CoreState], CoreState]


CELLS = {
    "lstm": Cell(
        gates=4,
        zero=lambda width, batch: nn.zero_lstm_state(width, (batch,)),
        hidden=lambda state: state.hidden,
        step=lambda from_input, from_hidden, state: nn.lstm_gates(from_input + from_hidden, state.cell),
    ),
    "gru": Cell(
        gates=3,
        zero=lambda width, batch: jnp.zeros((batch, width), jnp.float32),
        hidden=lambda state: state,
        step=nn.gru_gates,
    ),
}


class RecurrentParams(NamedTuple):
    torso: Params
    core: nn.Linear  # on [embedding, hidden]


class RecurrentMemory(NamedTuple):
    torso: Memory
    core: CoreState


def recurrent(torso: Torso, spec: EnvSpec, width: int = 256, cell: str = "lstm") -> Torso:
    """The torso's embeddings through a core; `first[t]` empties its memory before obs[t] is seen."""
    if cell not in CELLS:
        raise DiscorlError(f"unknown cell {cell!r}; {near_matches(cell, CELLS)}")
    kind = CELLS[cell]
    inputs = embedding_width(torso, spec)

    def init(key: Key) -> RecurrentParams:
        key_torso, key_core = jax.random.split(key)
        core = nn.init_linear(key_core, inputs + width, kind.gates * width)
        return RecurrentParams(torso=torso.init(key_torso), core=core)

    def memory(batch: int) -> RecurrentMemory:
        return RecurrentMemory(torso=torso.memory(batch), core=kind.zero(width, batch))

    def unroll(
        params: RecurrentParams, memory: RecurrentMemory, obs: Observation, first: Bool[Array, "T B"]
    ) -> tuple[Float[Array, "T B E"], RecurrentMemory]:
        embedding, torso_memory = torso.unroll(params.torso, memory.torso, obs, first)
        # the input's share of the gates does not depend on the memory: one large product outside the loop
        from_input = nn.add_bias(nn.product(embedding, params.core.w[:inputs]), params.core.b)
        from_memory = params.core.w[inputs:]

        def step(state: CoreState, at: tuple[Array, Array]) -> tuple[CoreState, Array]:
            gates, forget = at
            state = jax.tree.map(lambda s: jnp.where(forget[:, None], jnp.zeros_like(s), s), state)
            state = kind.step(gates, kind.hidden(state) @ from_memory, state)
            return state, kind.hidden(state)

        core, hidden = jax.lax.scan(step, memory.core, (from_input, first))
        return hidden, RecurrentMemory(torso=torso_memory, core=core)

    return Torso(init=init, memory=memory, unroll=unroll)
