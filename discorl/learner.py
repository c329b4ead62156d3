"""One update of one agent: (state, rollout) -> (state, info)."""

from collections.abc import Callable
from functools import partial
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


class Lesson(NamedTuple):
    """What an update was made of; discovery looks at it, training throws it away."""

    experience: Experience
    targets: Targets


class Learner(NamedTuple):
    init: Callable[[Key, Observation], LearnerState]
    step: Callable[[Eta, Hypers, LearnerState, Rollout], tuple[LearnerState, LearnerInfo]]
    lesson: Callable[[Eta, Hypers, LearnerState, Rollout], tuple[LearnerState, LearnerInfo, Lesson]]  # step, and why
    watch: Callable[[LearnerState, Observation], LearnerState]  # statistics of what acting has just seen, [T, B, ...]


AgentLoss = Callable[[Params, Targets, Rollout], tuple[Float[Array, ""], Info]]
LossGradient = Callable[[Params, Targets, Rollout], tuple[tuple[Float[Array, ""], Info], Params]]


def reverse_gradient(loss: AgentLoss) -> LossGradient:
    """Value and gradient in the parameters, by plain reverse mode."""
    return jax.value_and_grad(loss, has_aux=True)


def burn_in(network: AgentNetwork, params: Params, rollout: Rollout, steps: int) -> Rollout:
    """The rollout without its first steps, which only bring the stored memory up to date.

    Whoever acted may have been an older self. The steps are gone from targets and loss, and the new memory is made
    outside of the differentiated function: no gradient reaches them.
    """
    memory = rollout.memory
    if steps > 0:
        head = jax.tree.map(lambda x: x[:steps], rollout.obs)
        _, memory = network.unroll(params, memory, head, rollout.first[:steps])
    rest = jax.tree.map(lambda x: x[steps:], rollout._replace(memory=()))
    # also for discovery: what an agent remembers is data, like what it sees
    return rest._replace(memory=jax.lax.stop_gradient(memory))


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


def make_learner(
    network: AgentNetwork,
    rule: UpdateRule,
    mask: str = "reference",
    burn: int = 0,
    gradient: Callable[[AgentLoss], LossGradient] = reverse_gradient,
) -> Learner:
    """`burn` steps of every rollout only warm up the memory of a recurrent network, see `burn_in`.

    `gradient` says how the loss is differentiated: whoever differentiates updates may know a better way.
    """
    keep = rule.needs.target_keep
    value_and_grad = gradient(partial(agent_loss, network, rule, mask))

    def share(of: Params, into: Params) -> Params:
        """Statistics are no parameters: weight decay leaves them alone, and the target network sees with the same."""
        return into if network.statistics is None or into == () else network.statistics.share(of, into)

    def watch(state: LearnerState, obs: Observation) -> LearnerState:
        if network.statistics is None:
            return state
        params = network.statistics.update(state.params, obs)
        return state._replace(params=params, target_params=share(params, state.target_params))

    def init(key: Key, obs: Observation) -> LearnerState:
        """`obs` is one example observation."""
        key_params, key_rule = jax.random.split(key)
        params = network.init(key_params)
        # a copy: donated buffers must not alias
        target = () if keep is None else jax.tree.map(jnp.copy, params)
        return LearnerState(
            params=params, target_params=target, optimizer=init_adam(params), rule=rule.start(key_rule, obs)
        )

    def lesson(
        eta: Eta, hypers: Hypers, state: LearnerState, rollout: Rollout
    ) -> tuple[LearnerState, LearnerInfo, Lesson]:
        whole = go_on_after_clocks(network, rule, eta, state, rollout)._replace(cuts=())
        rollout = burn_in(network, state.params, whole, burn)
        online = target = see(network, rule, eta, state.params, rollout)
        if keep is not None:
            remembered = burn_in(network, state.target_params, whole, burn)
            target = see(network, rule, eta, state.target_params, remembered)
        experience = Experience(rollout, online, target)
        targets, rule_state, target_info = rule.targets(eta, state.rule, experience)
        (total, loss_info), grads = value_and_grad(state.params, targets, rollout)
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
        params = share(state.params, jax.tree.map(jnp.add, state.params, change))
        moved = share(state.params, moved)
        after = LearnerState(params=params, target_params=moved, optimizer=optimizer, rule=rule_state)
        return after, info, Lesson(experience, targets)

    def step(eta: Eta, hypers: Hypers, state: LearnerState, rollout: Rollout) -> tuple[LearnerState, LearnerInfo]:
        return lesson(eta, hypers, state, rollout)[:2]

    return Learner(init=init, step=step, lesson=lesson, watch=watch)
