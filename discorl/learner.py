"""One update of one agent: (state, rollout) -> (state, info)."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from discorl.networks.base import AgentNetwork
from discorl.optim import AdamState, Hypers, adam, global_norm, init_adam, polyak
from discorl.rules.base import Eta, Info, RuleState, Targets, UpdateRule
from discorl.types import ActionOutput, Experience, Key, Observation, Params, Rollout, View

Mask = Literal["reference", "all"]  # by name: it arrives from a file or a command line
MASK_EPS = 1e-8  # a batch that is masked altogether has loss 0


class LearnerState(NamedTuple):
    params: Params
    target_params: Params  # () if the rule wants none
    optimizer: AdamState
    rule: RuleState


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


def see(network: AgentNetwork, rule: UpdateRule, eta: Eta, params: Params, rollout: Rollout) -> View:
    """What parameters say of a rollout. Actions are streamed: only the rule's digest of each is kept."""
    embedding, _ = network.unroll(params, rollout.memory, rollout.obs, rollout.first)
    state = network.heads(params, embedding)
    if not rule.needs.model:
        return View(logits=state.logits, y=state.y, actions=())
    root = network.root(params, embedding)
    num_actions = state.logits.shape[-1]

    def digest(action: Array) -> Any:
        return rule.digest(eta, network.model(params, root, action))

    digests = jax.lax.map(digest, jnp.arange(num_actions, dtype=jnp.int32))  # [A, T+1, B, ...]
    return View(logits=state.logits, y=state.y, actions=jax.tree.map(lambda x: jnp.moveaxis(x, 0, 2), digests))


def go_on_after_clocks(
    network: AgentNetwork, rule: UpdateRule, eta: Eta, state: LearnerState, rollout: Rollout
) -> Rollout:
    """Where a clock ended an episode, the discounted value of what was seen last becomes part of the last reward.

        r ← r + γ v(s_final),   γ stays 0

    For returns this is the same as bootstrapping from s_final. To the rule it is an end that pays what would have
    come: no row is added, and only final observations are looked at, not a second copy of all.
    """
    if not rollout.cuts or rule.continuation is None:
        return rollout
    cuts = rollout.cuts
    flat = lambda x: x.reshape(-1, *x.shape[2:])  # noqa: E731
    final = rollout._replace(
        obs=jax.tree.map(lambda x: flat(x)[None], cuts.obs),
        first=jnp.zeros((1, cuts.at.size), jnp.bool_),
        memory=jax.tree.map(flat, cuts.memory),
    )
    online = see(network, rule, eta, state.params, final)
    target = online if not state.target_params else see(network, rule, eta, state.target_params, final)
    rest = rule.continuation(eta, state.rule, Experience(final, online, target))[0].reshape(cuts.at.shape)
    lanes = jnp.broadcast_to(jnp.arange(cuts.at.shape[1], dtype=cuts.at.dtype), cuts.at.shape)
    # a reward is a fact, whoever differentiates; `at` = T lies outside and is dropped
    return rollout._replace(reward=rollout.reward.at[cuts.at, lanes].add(jax.lax.stop_gradient(rest), mode="drop"))


def loss_mask(rollout: Rollout, mask: str) -> Float[Array, "T B"]:
    """The released code gives no weight to the first step of an episode; `all` uses every step."""
    if mask == "all":
        return jnp.ones_like(rollout.reward)
    return 1 - rollout.first[:-1].astype(rollout.reward.dtype)


def agent_loss(
    network: AgentNetwork, rule: UpdateRule, mask: str, params: Params, targets: Targets, rollout: Rollout
) -> tuple[Float[Array, ""], Info]:
    """The masked mean of the rule's loss. Targets are arguments, not closures: see `UpdateRule`."""
    embedding, _ = network.unroll(params, rollout.memory, rollout.obs, rollout.first)
    state = network.heads(params, embedding)
    if rule.needs.model:
        root = jax.tree.map(lambda x: x[:-1], network.root(params, embedding))
        action = network.model(params, root, rollout.action)
    else:
        empty = jnp.zeros((*rollout.action.shape, 0), jnp.float32)
        action = ActionOutput(z=empty, q=empty, aux_pi=empty)
    losses, info = rule.loss(state, action, targets, rollout)
    weights = loss_mask(rollout, mask)
    return (weights * losses).sum() / (weights.sum() + MASK_EPS), info


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
        rollout = go_on_after_clocks(network, rule, eta, state, rollout)
        online = see(network, rule, eta, state.params, rollout)
        target = online if keep is None else see(network, rule, eta, state.target_params, rollout)
        targets, rule_state, target_info = rule.targets(eta, state.rule, Experience(rollout, online, target))
        loss = jax.value_and_grad(agent_loss, argnums=3, has_aux=True)
        (total, loss_info), grads = loss(network, rule, mask, state.params, targets, rollout)
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
