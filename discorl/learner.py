"""One update of one agent: (state, rollout) -> (state, info)."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float, Int

from discorl.networks.base import AgentNetwork, Root
from discorl.optim import AdamState, Hypers, adam, global_norm, init_adam, polyak
from discorl.rules.base import Eta, Info, RuleState, Targets, UpdateRule
from discorl.types import ActionOutput, Experience, Key, Observation, Params, Rollout, StateOutput, View

Mask = Literal["reference", "all"]  # by name: it arrives from a file or a command line
KEPT = "kept"  # small and dear: a checkpointed update keeps what bears this name and computes the rest again
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
    """Scalars for people; `targets`, `loss` and `report` are the rule's own."""

    total_loss: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    update_norm: Float[Array, ""]
    targets: Info
    loss: Info
    report: Info  # NaN in updates that were not asked for it


class Lesson(NamedTuple):
    """What an update was made of; discovery looks at it, training throws it away."""

    experience: Experience
    targets: Targets


class Learner(NamedTuple):
    init: Callable[[Key, Observation], LearnerState]
    step: Callable[..., tuple[LearnerState, LearnerInfo]]  # (η, hypers, state, rollout, report=True)
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


def unroll(network: AgentNetwork, rule: UpdateRule, params: Params, rollout: Rollout) -> tuple[StateOutput, Root]:
    """Outputs for all T+1 rows, and what the model needs of them: () if the rule asks for no model."""
    embedding, _ = network.unroll(params, rollout.memory, rollout.obs, rollout.first)
    return network.heads(params, embedding), network.root(params, embedding) if rule.needs.model else ()


def see(network: AgentNetwork, rule: UpdateRule, eta: Eta, params: Params, rollout: Rollout) -> View:
    """What parameters say of a rollout. Actions are streamed: only the rule's digest of each is kept."""
    params = network.unpack(params)
    state, root = unroll(network, rule, params, rollout)
    if not rule.needs.model:
        return View(logits=state.logits, y=state.y, actions=())

    def digest(action: Array) -> Any:
        return rule.digest(eta, network.model(params, root, action))

    digests = jax.lax.map(digest, jnp.arange(state.logits.shape[-1], dtype=jnp.int32))  # [A, T+1, B, ...]
    digests = jax.tree.map(lambda x: checkpoint_name(x, KEPT), digests)
    return View(logits=state.logits, y=state.y, actions=jax.tree.map(lambda x: jnp.moveaxis(x, 0, 2), digests))


def go_on_after_clocks(
    network: AgentNetwork, rule: UpdateRule, eta: Eta, state: LearnerState, rollout: Rollout
) -> Rollout:
    """Where a clock ended an episode, the discounted value of what was seen last becomes part of what was earned.

        r + γ v(s_final) instead of r,   γ stays 0

    For returns this is the same as bootstrapping from s_final. No row is added, and only final observations are
    looked at, not a second copy of all. The reward itself stays a fact: a discovered rule looks at it, and may take
    what is added for a prize.
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
    # a number to follow, whoever differentiates; `at` = T lies outside and is dropped
    rest = jnp.zeros_like(rollout.reward).at[cuts.at, lanes].add(jax.lax.stop_gradient(rest), mode="drop")
    return rollout._replace(rest=rest)


def taken_actions(rollout: Rollout) -> Int[Array, "T1 B"]:
    """None was taken in the last row: any will do."""
    return jnp.concatenate([rollout.action, rollout.action[-1:]])


def say(network: AgentNetwork, rule: UpdateRule, params: Params, rollout: Rollout) -> tuple[Said, Root]:
    """All that a loss can be about."""
    params = network.unpack(params)
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


def one_pass(
    network: AgentNetwork, rule: UpdateRule, mask: str, eta: Eta, params: Params, rollout: Rollout
) -> tuple[View, Said, Callable[[Targets], tuple[tuple[Array, Info], Params]]]:
    """What parameters say of a rollout, to rule and to loss, and from targets the value and gradient of `agent_loss`.

    One forward pass for all: the loss is differentiated as far as the outputs, and from there on by pulling back
    through the pass that the view came from.
    """
    said, pull_back, root = jax.vjp(lambda p: say(network, rule, p, rollout), params, has_aux=True)

    def value_and_grad(targets: Targets) -> tuple[tuple[Array, Info], Params]:
        value, wanted = jax.value_and_grad(mean_loss, argnums=2, has_aux=True)(rule, mask, said, targets, rollout)
        return value, pull_back(wanted)[0]

    return see_others(network, rule, eta, params, rollout, said, root), said, value_and_grad


def reported(rule: UpdateRule, said: Said | None, targets: Targets, wanted: Bool[Array, ""] | bool) -> Info:
    """The rule's report, or NaN where it is not wanted; a branch, so that it costs nothing there."""
    if said is None or rule.report is None:
        return ()
    of = partial(rule.report, *said)
    nothing = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), jax.eval_shape(of, targets))
    return jax.lax.cond(wanted, of, lambda _: nothing, targets)


def make_learner(
    network: AgentNetwork,
    rule: UpdateRule,
    mask: str = "reference",
    burn: int = 0,
    gradient: Callable[[AgentLoss], LossGradient] | None = None,
    seen: AgentNetwork | None = None,
) -> Learner:
    """`burn` steps of every rollout only warm up the memory of a recurrent network, see `burn_in`.

    `gradient` says how the loss is differentiated, for whoever differentiates updates; None is fastest for all others.
    With it, `seen` may be the network as the rule looks through it, where that has derivatives of its own.
    """
    keep, seen = rule.needs.target_keep, seen or network
    value_and_grad = gradient and gradient(partial(agent_loss, network, rule, mask))

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
        eta: Eta, hypers: Hypers, state: LearnerState, rollout: Rollout, report: Bool[Array, ""] | bool = True
    ) -> tuple[LearnerState, LearnerInfo, Lesson]:
        whole = go_on_after_clocks(network, rule, eta, state, rollout)._replace(cuts=())
        rollout = burn_in(network, state.params, whole, burn)
        if value_and_grad is None:
            online, said, differentiate = one_pass(network, rule, mask, eta, state.params, rollout)
        else:
            online, said = see(seen, rule, eta, state.params, rollout), None
            differentiate = lambda targets, of=value_and_grad: of(state.params, targets, rollout)  # noqa: E731
        target = online
        if keep is not None:
            remembered = burn_in(network, state.target_params, whole, burn)
            target = see(seen, rule, eta, state.target_params, remembered)
        experience = Experience(rollout, online, target)
        targets, rule_state, target_info = rule.targets(eta, state.rule, experience)
        (total, loss_info), grads = differentiate(targets)
        change, optimizer = adam(grads, state.optimizer, state.params, hypers)
        # the target parameters follow the parameters of before this update
        moved = () if keep is None else polyak(state.target_params, state.params, keep)
        info = LearnerInfo(
            total_loss=total,
            gradient_norm=global_norm(grads),
            update_norm=global_norm(change),
            targets=target_info,
            loss=loss_info,
            report=reported(rule, said, targets, report),
        )
        params = share(state.params, jax.tree.map(jnp.add, state.params, change))
        moved = share(state.params, moved)
        after = LearnerState(params=params, target_params=moved, optimizer=optimizer, rule=rule_state)
        return after, info, Lesson(experience, targets)

    def step(
        eta: Eta, hypers: Hypers, state: LearnerState, rollout: Rollout, report: Bool[Array, ""] | bool = True
    ) -> tuple[LearnerState, LearnerInfo]:
        return lesson(eta, hypers, state, rollout, report)[:2]

    return Learner(init=init, step=step, lesson=lesson, watch=watch)
