"""One update of one agent: (state, rollout) -> (state, info)."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from discorl.networks.base import AgentNetwork, Root
from discorl.optim import AdamState, Hypers, adam, global_norm, init_adam, polyak
from discorl.rules.base import Eta, Info, RuleState, Targets, UpdateRule
from discorl.types import ActionOutput, Experience, Key, Observation, Params, Rollout, StateOutput, View

Mask = Literal["reference", "all"]  # by name: it arrives from a file or a command line
MASK_EPS = 1e-8  # a batch that is masked altogether has loss 0


class LearnerState(NamedTuple):
    params: Params
    target_params: Params  # () if the rule wants none
    optimizer: AdamState
    rule: RuleState


class Said(NamedTuple):
    """What an agent learns from: its outputs for all T+1 rows, of the taken action where it is about one."""

    state: StateOutput
    action: ActionOutput  # the last row, where none was taken, is of any


class LearnerInfo(NamedTuple):
    """Scalars for people; `targets` and `loss` are the rule's own."""

    total_loss: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    update_norm: Float[Array, ""]
    targets: Info
    loss: Info


class Learner(NamedTuple):
    init: Callable[[Key, Observation], LearnerState]
    step: Callable[[Eta, Hypers, LearnerState, Rollout], tuple[LearnerState, LearnerInfo]]


def unroll(network: AgentNetwork, rule: UpdateRule, params: Params, rollout: Rollout) -> tuple[StateOutput, Root]:
    """Outputs for all T+1 rows, and what the model needs of them: () if the rule asks for no model."""
    embedding, _ = network.unroll(params, rollout.memory, rollout.obs, rollout.first)
    return network.heads(params, embedding), network.root(params, embedding) if rule.needs.model else ()


def see(network: AgentNetwork, rule: UpdateRule, eta: Eta, params: Params, rollout: Rollout) -> View:
    """What parameters say of a rollout. Actions are streamed: only the rule's digest of each is kept."""
    state, root = unroll(network, rule, params, rollout)
    if not rule.needs.model:
        return View(logits=state.logits, y=state.y, actions=())

    def digest(action: Array) -> Any:
        return rule.digest(eta, network.model(params, root, action))

    digests = jax.lax.map(digest, jnp.arange(state.logits.shape[-1], dtype=jnp.int32))  # [A, T+1, B, ...]
    return View(logits=state.logits, y=state.y, actions=jax.tree.map(lambda x: jnp.moveaxis(x, 0, 2), digests))


def taken_actions(rollout: Rollout) -> Int[Array, "T1 B"]:
    """None was taken in the last row: any will do."""
    return jnp.concatenate([rollout.action, rollout.action[-1:]])


def say(network: AgentNetwork, rule: UpdateRule, params: Params, rollout: Rollout) -> tuple[Said, Root]:
    """All that a loss can be about."""
    state, root = unroll(network, rule, params, rollout)
    if rule.needs.model:
        return Said(state=state, action=network.model(params, root, taken_actions(rollout))), root
    empty = jnp.zeros((*state.logits.shape[:-1], 0), state.logits.dtype)
    return Said(state=state, action=ActionOutput(z=empty, q=empty, aux_pi=empty)), root


def see_others(
    network: AgentNetwork, rule: UpdateRule, eta: Eta, params: Params, rollout: Rollout, said: Said, root: Root
) -> View:
    """`see`, where the taken actions' outputs are there already: only the others are computed.

    In each state the stream begins with the taken action and goes on with those after it, cyclically.
    """
    logits, y = said.state
    if not rule.needs.model:
        return View(logits=logits, y=y, actions=())
    taken = taken_actions(rollout)
    every = jnp.arange(logits.shape[-1], dtype=jnp.int32)

    def digest(offset: Array) -> Any:
        return rule.digest(eta, network.model(params, root, (taken + offset) % every.size))

    others = jax.lax.map(digest, every[1:])  # [A-1, T+1, B, ...]
    # [T+1, B, A] where in the stream an action is
    place = (every.reshape(1, 1, -1) - taken[..., None]) % every.size

    def in_order(first: Array, rest: Array) -> Array:
        streamed = jnp.moveaxis(jnp.concatenate([first[None], rest]), 0, 2)
        return jnp.take_along_axis(streamed, jnp.expand_dims(place, range(3, streamed.ndim)), axis=2)

    return View(logits=logits, y=y, actions=jax.tree.map(in_order, rule.digest(eta, said.action), others))


def loss_mask(rollout: Rollout, mask: str) -> Float[Array, "T B"]:
    """The released code gives no weight to the first step of an episode; `all` uses every step."""
    if mask == "all":
        return jnp.ones_like(rollout.reward)
    return 1 - rollout.first[:-1].astype(rollout.reward.dtype)


def mean_loss(
    rule: UpdateRule, mask: str, said: Said, targets: Targets, rollout: Rollout
) -> tuple[Float[Array, ""], Info]:
    """The masked mean of the rule's loss. Targets are arguments, not closures: see `UpdateRule`."""
    losses, info = rule.loss(said.state, said.action, targets, rollout)
    weights = loss_mask(rollout, mask)
    return (weights * losses).sum() / (weights.sum() + MASK_EPS), info


def agent_loss(
    network: AgentNetwork, rule: UpdateRule, mask: str, params: Params, targets: Targets, rollout: Rollout
) -> tuple[Float[Array, ""], Info]:
    """The loss as a function of an agent's parameters."""
    return mean_loss(rule, mask, say(network, rule, params, rollout)[0], targets, rollout)


def make_learner(network: AgentNetwork, rule: UpdateRule, mask: str = "reference") -> Learner:
    keep = rule.needs.target_keep

    def init(key: Key, obs: Observation) -> LearnerState:
        """`obs` is one example observation."""
        key_params, key_rule = jax.random.split(key)
        params = network.init(key_params)
        # a copy: donated buffers must not alias
        target = () if keep is None else jax.tree.map(jnp.copy, params)
        return LearnerState(
            params=params, target_params=target, optimizer=init_adam(params), rule=rule.start(key_rule, obs)
        )

    def step(eta: Eta, hypers: Hypers, state: LearnerState, rollout: Rollout) -> tuple[LearnerState, LearnerInfo]:
        # One forward pass for targets and gradient: the loss is differentiated as far as the outputs, and from there on
        # by pulling back through the pass that the targets came from. Together that is the gradient of `agent_loss`.
        said, pull_back, root = jax.vjp(lambda p: say(network, rule, p, rollout), state.params, has_aux=True)
        online = see_others(network, rule, eta, state.params, rollout, said, root)
        target = online if keep is None else see(network, rule, eta, state.target_params, rollout)
        targets, rule_state, target_info = rule.targets(eta, state.rule, Experience(rollout, online, target))
        loss = jax.value_and_grad(mean_loss, argnums=2, has_aux=True)
        (total, loss_info), wanted = loss(rule, mask, said, targets, rollout)
        (grads,) = pull_back(wanted)
        change, optimizer = adam(grads, state.optimizer, state.params, hypers)
        # the target parameters follow the parameters of before this update
        moved = () if keep is None else polyak(state.target_params, state.params, keep)
        info = LearnerInfo(
            total_loss=total,
            gradient_norm=global_norm(grads),
            update_norm=global_norm(change),
            targets=target_info,
            loss=loss_info,
        )
        params = jax.tree.map(jnp.add, state.params, change)
        return LearnerState(params=params, target_params=moved, optimizer=optimizer, rule=rule_state), info

    return Learner(init=init, step=step)
