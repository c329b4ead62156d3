"""Actions that are not allowed are never taken, never aimed at, and cost nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from discorl import acting, experiment, networks, settings
from discorl.distributions import ILLEGAL, ValueBins, entropy, kl, log_prob, only_legal
from discorl.envs.base import ACTION_MASK, Environment, EnvSpec, TimeStep, batch
from discorl.errors import DiscorlError
from discorl.rules.disco import DiscoTargets, step_losses
from discorl.types import ActionOutput, Needs, StateOutput

SPEC = EnvSpec(
    "gates",
    3,
    {"place": jax.ShapeDtypeStruct((2,), jnp.float32), ACTION_MASK: jax.ShapeDtypeStruct((3,), jnp.int8)},
)


def gates() -> Environment:
    """Two of three gates are open. A closed one would pay best, the higher of the open ones pays a little."""

    def see(state: jax.Array) -> dict:
        allowed = (jnp.arange(3) != state).astype(jnp.int8)  # as Gymnasium environments like to say it
        return {"place": jax.nn.one_hot(state % 2, 2), ACTION_MASK: allowed}

    def reset(key: jax.Array) -> tuple:
        state = jax.random.randint(key, (), 0, 3)
        return state, see(state)

    def step(key: jax.Array, state: jax.Array, action: jax.Array) -> tuple:
        paid = jnp.where(action == state, 100.0, action.astype(jnp.float32))
        after = jax.random.randint(key, (), 0, 3)
        return after, TimeStep(see(after), paid, jnp.asarray(True), jnp.asarray(False))

    return Environment(SPEC, reset, step, lambda state: str(state))


@pytest.mark.parametrize("greedy", [False, True])
def test_what_is_not_allowed_is_never_taken(greedy: bool) -> None:
    network = networks.masked(networks.mlp(SPEC, Needs(y=4, z=4, q=5), hidden=(4,)))
    params = network.init(jax.random.key(0))
    state, obs = batch(gates(), 200).reset(jax.random.key(1))
    del state
    first = jnp.ones(200, jnp.bool_)
    for least in (-5.0, 5.0):  # whatever the network would like
        wants = params._replace(logits=params.logits._replace(b=jnp.asarray([least, 0.0, -least])))
        done = acting.act(network, wants, (), obs, first, jax.random.key(2), greedy=greedy)
        assert np.take_along_axis(np.asarray(obs[ACTION_MASK]), np.asarray(done.action)[:, None], 1).all()


def test_distributions_forget_what_is_not_allowed() -> None:
    rng = np.random.default_rng(0)
    few, more = (jnp.asarray(rng.standard_normal((4, 2)), jnp.float32) for _ in range(2))
    with_illegal = [jnp.concatenate([x, jnp.full((4, 1), ILLEGAL)], -1) for x in (few, more)]
    action = jnp.asarray([0, 1, 1, 0], jnp.int32)
    np.testing.assert_allclose(log_prob(with_illegal[0], action), log_prob(few, action), rtol=1e-6)
    np.testing.assert_allclose(entropy(with_illegal[0]), entropy(few), rtol=1e-6)
    np.testing.assert_allclose(kl(*with_illegal), kl(few, more), rtol=1e-5, atol=1e-7)
    hopeful = jnp.concatenate([few, jnp.full((4, 1), 3.0)], -1)
    np.testing.assert_allclose(kl(only_legal(hopeful, with_illegal[1]), with_illegal[1]), kl(few, more), rtol=1e-5)


def test_a_discovered_rule_aims_at_no_forbidden_action() -> None:
    case = small.small()
    rollout = case.rollout
    rng = np.random.default_rng(1)
    draw = lambda *shape: jnp.asarray(rng.standard_normal((small.T, small.B, *shape)), jnp.float32)  # noqa: E731
    rows = lambda x: jnp.concatenate([x, x[-1:]])  # noqa: E731
    config = small.CONFIG
    legal = jnp.asarray([True, False, True])
    state = StateOutput(logits=rows(jnp.where(legal, draw(3), ILLEGAL)), y=rows(draw(config.predictions)))
    action = ActionOutput(z=rows(draw(config.predictions)), q=rows(draw(config.value_bins)), aux_pi=rows(draw(small.A)))
    targets = DiscoTargets(pi=draw(3), y=draw(config.predictions), z=draw(config.predictions), value=draw())
    bins = ValueBins(config.value_bins, config.max_value)

    def total(targets: DiscoTargets, state: StateOutput) -> jax.Array:
        return jnp.stack([part.sum() for part in step_losses(state, action, targets, rollout, bins)]).sum()

    other = targets._replace(pi=targets.pi.at[..., 1].add(7.0))
    assert np.isfinite(total(targets, state))
    assert total(targets, state) == total(other, state)
    by_logits = jax.grad(total, argnums=1)(targets, state).logits
    assert np.isfinite(by_logits).all()
    np.testing.assert_allclose(by_logits[..., 1], 0, atol=1e-6)


@pytest.mark.parametrize("rule", ["actor_critic", "policy_gradient"])
def test_training_goes_by_the_mask(rule: str) -> None:
    asked = settings.make({"envs": 16, "batch": 16, "rollout": 4, "replay_size": 16, "replay_share": 0.0, "mask": "all",
                           "hidden": (16,), "learning_rate": 1e-2})  # fmt: skip
    made = experiment.build(gates(), rule, "mlp", asked)
    state = made.program.start()
    _, info, _ = made.program.prepare(state, 60)(state)
    returns = np.asarray(info.return_sum) / np.asarray(info.episodes)
    assert np.isfinite(np.asarray(info.learner.total_loss)).all()
    assert returns.max() < 3, "a closed gate was passed"
    assert returns[-10:].mean() > 1.55  # (2 + 2 + 1) / 3; a random policy gets 1


def test_a_mask_of_another_shape_is_a_clear_error() -> None:
    wrong = EnvSpec("gates", 3, SPEC.observation | {ACTION_MASK: jax.ShapeDtypeStruct((2,), jnp.bool_)})
    with pytest.raises(DiscorlError, match=r"must hold 3 flags.*shape is \[2\]"):
        networks.has_mask(wrong)
    assert networks.has_mask(SPEC)
    assert not networks.has_mask(EnvSpec("plain", 3, SPEC.observation["place"]))
