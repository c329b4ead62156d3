"""Torso + the heads and the action model that a rule asks for = an agent's network."""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from discorl import nn
from discorl.envs.base import EnvSpec
from discorl.errors import DiscorlError
from discorl.networks.base import AgentNetwork, Torso, check_network, embedding_width
from discorl.types import ActionOutput, Key, Memory, Needs, Observation, Params, StateOutput

HEAD_SCALE = 1e-2  # policies start close to uniform


class ModelParams(NamedTuple):
    """An LSTM that takes one step with the action as its input, and one MLP per prediction on its new hidden state."""

    cell: nn.Linear
    lstm: nn.Linear  # on [one-hot action, hidden]
    z: tuple[nn.Linear, ...]
    q: tuple[nn.Linear, ...]
    aux_pi: tuple[nn.Linear, ...]


class NetworkParams(NamedTuple):
    torso: Params
    logits: nn.Linear
    y: nn.Linear
    model: ModelParams | tuple[()]


class ModelRoot(NamedTuple):
    gates: Float[Array, "*S H4"]  # the hidden state's share of the gates, the same for every action
    cell: Float[Array, "*S H"]


def assemble(
    torso: Torso, spec: EnvSpec, needs: Needs, *, model_width: int = 128, head_hidden: tuple[int, ...] = (128,)
) -> AgentNetwork:
    """An agent's network around a torso."""
    width = embedding_width(torso, spec)
    num_actions = spec.num_actions

    def init(key: Key) -> NetworkParams:
        key_torso, key_heads, key_model = jax.random.split(key, 3)
        sizes = [nn.LinearSize(width, outputs, HEAD_SCALE) for outputs in (num_actions, needs.y)]
        logits, y = nn.init_linears(key_heads, sizes)
        model = init_model(key_model) if needs.model else ()
        return NetworkParams(torso=torso.init(key_torso), logits=logits, y=y, model=model)

    def init_model(key: Key) -> ModelParams:
        cell, lstm = nn.LinearSize(width, model_width), nn.LinearSize(num_actions + model_width, 4 * model_width)
        heads = [nn.mlp_sizes(model_width, (*head_hidden, outputs)) for outputs in (needs.z, needs.q, num_actions)]
        made = nn.init_linears(key, [cell, lstm, *itertools.chain(*heads)])
        depth = len(head_hidden) + 1
        z, q, aux_pi = (made[2 + i * depth : 2 + (i + 1) * depth] for i in range(3))
        return ModelParams(cell=made[0], lstm=made[1], z=z, q=q, aux_pi=aux_pi)

    def unroll(params: NetworkParams, memory: Memory, obs: Observation, first: Array) -> tuple[Array, Memory]:
        return torso.unroll(params.torso, memory, obs, first)

    network = AgentNetwork(
        init=init, memory=torso.memory, unroll=unroll, heads=state_heads, root=model_root, model=action_model
    )
    check_network(network, spec, needs)
    return network


def state_heads(params: NetworkParams, embedding: Float[Array, "*S E"]) -> StateOutput:
    return StateOutput(logits=nn.linear(params.logits, embedding), y=nn.linear(params.y, embedding))


def model_root(params: NetworkParams, embedding: Float[Array, "*S E"]) -> ModelRoot:
    model = _model_params(params)
    cell = nn.linear(model.cell, embedding)
    recurrent = model.lstm.w[-cell.shape[-1] :]
    return ModelRoot(gates=nn.add_bias(nn.product(jnp.tanh(cell), recurrent), model.lstm.b), cell=cell)


def action_model(params: NetworkParams, root: ModelRoot, action: Int[Array, "*A"]) -> ActionOutput:
    """Predictions for the given actions; a single action stands for all states."""
    model = _model_params(params)
    num_actions = model.lstm.w.shape[0] - root.cell.shape[-1]
    gates = nn.product(jax.nn.one_hot(action, num_actions, dtype=root.gates.dtype), model.lstm.w[:num_actions])
    gates = jnp.broadcast_to(gates.reshape((1,) * (root.gates.ndim - gates.ndim) + gates.shape), root.gates.shape)
    hidden = nn.lstm_gates(root.gates + gates, root.cell).hidden
    return ActionOutput(z=nn.mlp(model.z, hidden), q=nn.mlp(model.q, hidden), aux_pi=nn.mlp(model.aux_pi, hidden))


def _model_params(params: NetworkParams) -> ModelParams:
    if not isinstance(params.model, ModelParams):
        raise DiscorlError("this network was built without an action model, but the rule asks for one")
    return params.model
