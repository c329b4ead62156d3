"""Layers as pure functions, with the semantics the published weights need."""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from discorl.types import Key

NARROW = 16  # outputs: less than a vector register of the processor

Activation = Callable[[Array], Array]


class Linear(NamedTuple):
    w: Float[Array, "I O"]
    b: Float[Array, " O"]


class LSTMState(NamedTuple):
    hidden: Float[Array, "*S H"]
    cell: Float[Array, "*S H"]


class LinearSize(NamedTuple):
    """`scale` is the weights' σ; 1/√inputs unless it is given."""

    inputs: int
    outputs: int
    scale: float | None = None


def init_linears(key: Key, sizes: Sequence[LinearSize]) -> tuple[Linear, ...]:
    """Truncated normal weights (±2σ), zero biases. One draw for all: compiling a draw takes longer than making it."""
    counts = [size.inputs * size.outputs for size in sizes]
    draw = jax.random.truncated_normal(key, -2.0, 2.0, (sum(counts),), jnp.float32)
    layers = []
    for size, part in zip(sizes, jnp.split(draw, np.cumsum(counts)[:-1].tolist()), strict=True):
        scale = size.inputs**-0.5 if size.scale is None else size.scale
        weights = scale * part.reshape(size.inputs, size.outputs)
        layers.append(Linear(w=weights, b=jnp.zeros(size.outputs, jnp.float32)))
    return tuple(layers)


def init_linear(key: Key, inputs: int, outputs: int, scale: float | None = None) -> Linear:
    return init_linears(key, [LinearSize(inputs, outputs, scale)])[0]


def product(x: Float[Array, "*S I"], w: Float[Array, "I O"]) -> Float[Array, "*S O"]:
    """x @ w as a product of two matrices: with more axes its gradient is made from transposed copies, 1.5 × slower."""
    rows = x.reshape(-1, x.shape[-1])
    if w.shape[-1] < NARROW:
        # On CPU the gradient of a narrow w is ten times as fast when made as [O, I]. Without the barrier the compiler
        # would turn it back.
        out = jax.lax.dot_general(rows, jax.lax.optimization_barrier(w.T), (((1,), (1,)), ((), ())))
    else:
        out = rows @ w
    return out.reshape(*x.shape[:-1], w.shape[-1])


def linear(params: Linear, x: Float[Array, "*S I"]) -> Float[Array, "*S O"]:
    return add_bias(product(x, params.w), params.b)


def add_bias(x: Float[Array, "*S O"], b: Float[Array, " O"]) -> Float[Array, "*S O"]:
    return x + b.reshape((1,) * (x.ndim - 1) + b.shape)  # rank promotion, said aloud


def mlp_sizes(inputs: int, widths: Sequence[int]) -> list[LinearSize]:
    return [LinearSize(i, o) for i, o in itertools.pairwise((inputs, *widths))]


def init_mlp(key: Key, inputs: int, widths: Sequence[int]) -> tuple[Linear, ...]:
    return init_linears(key, mlp_sizes(inputs, widths))


def mlp(
    params: Sequence[Linear], x: Float[Array, "*S I"], activation: Activation = jax.nn.relu
) -> Float[Array, "*S O"]:
    """Activation between layers, none after the last."""
    for layer in params[:-1]:
        x = activation(linear(layer, x))
    return linear(params[-1], x)


def lstm_gates(gates: Float[Array, "*S H4"], cell: Float[Array, "*S H"]) -> LSTMState:
    """Gates in the order i, g, f, o:  c' = σ(f+1)·c + σ(i)·tanh(g),  h' = σ(o)·tanh(c')."""
    i, g, f, o = jnp.split(gates, 4, axis=-1)
    cell = jax.nn.sigmoid(f + 1) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
    return LSTMState(hidden=jax.nn.sigmoid(o) * jnp.tanh(cell), cell=cell)


def init_lstm(key: Key, inputs: int, width: int) -> Linear:
    """One linear layer on [input, hidden]."""
    return init_linear(key, inputs + width, 4 * width)


def lstm_step(params: Linear, x: Float[Array, "*S I"], state: LSTMState) -> LSTMState:
    return lstm_gates(linear(params, jnp.concatenate([x, state.hidden], axis=-1)), state.cell)


def gru_gates(
    from_input: Float[Array, "*S H3"], from_hidden: Float[Array, "*S H3"], hidden: Float[Array, "*S H"]
) -> Float[Array, "*S H"]:
    """Gates in the order r, u, n:  n = tanh(xₙ + σ(r)·hₙ),  h' = σ(u+1)·h + (1 − σ(u+1))·n.

    The reset gate acts behind the product with the hidden state (Cho et al. 2014 put it before), so that a step has one
    product; +1 for the reason the LSTM's forget gate has it: a newborn memory should last.
    """
    (r_x, u_x, n_x), (r_h, u_h, n_h) = (jnp.split(x, 3, axis=-1) for x in (from_input, from_hidden))
    keep = jax.nn.sigmoid(u_x + u_h + 1)
    return keep * hidden + (1 - keep) * jnp.tanh(n_x + jax.nn.sigmoid(r_x + r_h) * n_h)


def zero_lstm_state(width: int, batch: tuple[int, ...] = ()) -> LSTMState:
    shape = (*batch, width)
    return LSTMState(hidden=jnp.zeros(shape, jnp.float32), cell=jnp.zeros(shape, jnp.float32))


def lstm_unroll_backwards(
    params: Linear, x: Float[Array, "T B I"], reset: Bool[Array, "T B"], unroll: int = 1
) -> Float[Array, "T B H"]:
    """Hidden states of an LSTM that runs from the last step to the first; `reset[t]` clears it before step t.

    The input product does not depend on the state: it is one large product outside the loop, which makes `unroll`
    steps per turn.
    """
    inputs, width = x.shape[-1], params.b.shape[0] // 4
    from_input = add_bias(product(x, params.w[:inputs]), params.b)
    recurrent = params.w[inputs:]

    def step(state: LSTMState, at: tuple[Array, Array]) -> tuple[LSTMState, Array]:
        gates, clear = at
        keep = 1 - clear.astype(gates.dtype)[:, None]
        state = lstm_gates(gates + (keep * state.hidden) @ recurrent, keep * state.cell)
        return state, state.hidden

    start = zero_lstm_state(width, x.shape[1:2])
    start = jax.tree.map(lambda s: s.astype(x.dtype), start)
    return jax.lax.scan(step, start, (from_input, reset), reverse=True, unroll=unroll)[1]
