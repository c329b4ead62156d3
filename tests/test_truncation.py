"""Where a clock ends an episode, learning goes on from what was seen last, and nowhere else."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from discorl import acting, envs, experiment, networks, settings
from discorl.envs.base import Environment, EnvSpec, TimeStep, batch
from discorl.learner import go_on_after_clocks, make_learner, see
from discorl.rules.actor_critic import ActorCriticConfig, actor_critic
from discorl.rules.features import shared_features
from discorl.rules.policy_gradient import policy_gradient
from discorl.rules.value_function import ValueFunctionConfig, estimate
from discorl.rules.values import ActionValues
from discorl.types import Cuts, Experience, Key, Needs, Rollout

T, B, LIMIT = 11, 3, 4


def clockwork(task_ends: int = 6) -> Environment:
    """Shows how often it was stepped since birth of the key; the task ends after 6 steps, the clock after 4."""

    def reset(key: Key) -> tuple[Any, Any]:
        start = jax.random.randint(key, (), 0, 4, jnp.int32)  # a late start may bring the end of the task before
        return (start, jnp.int32(0)), start.astype(jnp.float32)[None]

    def step(key: Key, state: Any, action: Any) -> tuple[Any, TimeStep]:
        at, t = state[0] + 1, state[1] + 1
        obs = at.astype(jnp.float32)[None]
        return (at, t), TimeStep(obs, jnp.float32(1), terminated=at == task_ends, truncated=t == LIMIT)

    spec = EnvSpec("clockwork", 2, jax.ShapeDtypeStruct((1,), jnp.float32), time_limit=LIMIT)
    return Environment(spec, reset, step, lambda state: str(state))


@pytest.mark.parametrize("slots", [1, 3])
def test_what_a_clock_ended_is_kept_with_its_place(slots: int, key: Key) -> None:
    env = clockwork()
    many = batch(env, B, keep_final_obs=True)
    network = networks.mlp(env.spec, Needs(), hidden=(4,))
    actor = jax.jit(lambda: acting.begin(network, many, key))()

    @partial(jax.jit, static_argnums=0)
    def unroll(slots: int) -> Rollout:
        return acting.unroll(network, many, network.init(key), key, actor, T, slots)[1]

    rollout = unroll(slots)
    assert isinstance(rollout.cuts, Cuts)
    ends, obs = np.asarray(rollout.discount == 0), np.asarray(rollout.obs[..., 0])
    found = 0
    for b in range(B):
        clocks = [t for t in range(T) if ends[t, b] and obs[t, b] + 1 != 6][:slots]  # at 6 the task had ended too
        assert [int(t) for t in rollout.cuts.at[:, b] if t < T] == clocks
        for slot, t in enumerate(clocks):
            assert rollout.cuts.obs[slot, b, 0] == obs[t, b] + 1
            found += 1
    assert found >= 2
    plain = unroll(0)
    assert plain.cuts == ()
    np.testing.assert_array_equal(plain.reward, rollout.reward)  # acting is the same


@pytest.mark.parametrize("rule", ["disco", "actor_critic", "policy_gradient"])
def test_targets_are_those_of_an_episode_that_goes_on(rule: str, key: Key) -> None:
    """Returns of a trajectory that a clock ended = returns of one that ends there, as a rollout, and bootstraps."""
    made = small.small()
    if rule == "disco":
        update, eta, network, state = made.rule, made.eta, made.network, made.state
    else:
        update = actor_critic(ActorCriticConfig(value_bins=11)) if rule == "actor_critic" else policy_gradient()
        spec = EnvSpec("small", small.A, jax.ShapeDtypeStruct((small.OBS,), jnp.float32))
        network, eta = networks.mlp(spec, update.needs, hidden=(8,)), ()
        state = jax.jit(make_learner(network, update).init)(key, jnp.zeros(small.OBS))
    whole = made.rollout._replace(
        first=jnp.zeros_like(made.rollout.first), discount=jnp.ones_like(made.rollout.discount)
    )
    last = small.T - 1
    # the same, but a clock ended every trajectory with its last step, and the next episode was seen instead
    ended = whole._replace(
        obs=whole.obs.at[-1].set(7.0),
        first=whole.first.at[-1].set(True),
        discount=whole.discount.at[-1].set(0.0),
        cuts=Cuts(at=jnp.full((1, small.B), last, jnp.int32), obs=whole.obs[-1:], memory=()),
    )
    go_on = jax.jit(lambda rollout: go_on_after_clocks(network, update, eta, state, rollout))
    targets = jax.jit(lambda rollout: value_targets(update, eta, network, state, rollout))
    went_on = go_on(ended)
    np.testing.assert_array_equal(went_on.earned[:-1], whole.reward[:-1])
    assert (went_on.earned[-1] != whole.reward[-1]).all()
    bootstrapped, terminal, continued = (targets(x._replace(cuts=())) for x in (whole, ended, went_on))
    np.testing.assert_allclose(continued, bootstrapped, rtol=2e-5, atol=2e-6)
    assert np.abs(np.asarray(terminal) - np.asarray(bootstrapped)).max() > 1e-4
    none = ended._replace(cuts=Cuts(at=jnp.full((1, small.B), small.T, jnp.int32), obs=whole.obs[-1:], memory=()))
    np.testing.assert_array_equal(go_on(none).earned, whole.reward)


def test_a_discovered_rule_sees_rewards_as_they_were() -> None:
    """What a clock kept from coming reaches it by way of values alone, or it would be taken for a prize."""
    made = small.small()
    view = see(made.network, made.rule, made.eta, made.state.params, made.rollout)
    steps, states = jnp.zeros((small.T, small.B)), jnp.zeros((small.T + 1, small.B))
    actions = jnp.zeros((small.T + 1, small.B, small.A))
    values = ActionValues(actions, states, actions, steps, steps, steps, actions, actions, steps, steps)
    cut = made.rollout._replace(rest=jnp.full_like(made.rollout.reward, 33.0))
    seen, expected = (shared_features(Experience(x, view, view), values) for x in (cut, made.rollout))
    jax.tree.map(np.testing.assert_array_equal, seen, expected)
    assert (cut.earned != cut.reward).all()


def value_targets(rule: Any, eta: Any, network: Any, state: Any, rollout: Any) -> Any:
    """What values should become; of policy gradient the advantages before they are normalised."""
    online = see(network, rule, eta, state.params, rollout)
    target = see(network, rule, eta, state.target_params, rollout) if state.target_params else online
    if rule.name == "policy_gradient":
        return estimate(state.rule, rollout, online.logits, ValueFunctionConfig())[0].target
    return rule.targets(eta, state.rule, Experience(rollout, online, target))[0].value


def test_rooms_for_as_many_ends_as_a_clock_can_bring() -> None:
    env = clockwork()
    assert experiment.cuts_per_trajectory(env, T) == 3
    assert experiment.cuts_per_trajectory(envs.catch(), T) == 0
    host = envs.HostEnvironment(envs.catch().spec, lambda size, render: None)  # type: ignore
    assert experiment.cuts_per_trajectory(host, T) == 1


@pytest.mark.parametrize("truncation, slots", [("bootstrap", 3), ("reference", 0)])
def test_the_reference_knows_no_clocks(truncation: str, slots: int) -> None:
    sizes = {"envs": 2, "batch": 2, "replay_size": 2, "rollout": T, "hidden": (4,), "truncation": truncation}
    state = experiment.build(clockwork(), "actor_critic", "mlp", settings.make(sizes)).program.like()
    cuts = state.replay.data.cuts
    assert cuts.at.shape == (2, slots) if slots else cuts == ()
