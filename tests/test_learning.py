"""Learning, on environments whose values and policies are known beforehand, for every rule."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discorl import networks
from discorl.distributions import ValueBins, scalar_value, signed_parabolic
from discorl.envs import catch, probes
from discorl.envs.base import Environment
from discorl.networks import AgentNetwork
from discorl.optim import Hypers
from discorl.rules.library import LoadedRule, load_rule
from discorl.rules.value_function import raw_value
from discorl.training import TrainConfig, TrainState, make_training

pytestmark = pytest.mark.slow
BINS = ValueBins(601, 300.0)
GAMMA = 0.997


class Trained(NamedTuple):
    loaded: LoadedRule
    network: AgentNetwork
    state: TrainState

    def outputs(self, observation: list[float]) -> tuple[np.ndarray, float]:
        """Policy and value of one observation, wherever this rule keeps its values."""
        params, obs = self.state.learner.params, jnp.asarray(observation, jnp.float32)[None, None]
        embedding, _ = self.network.unroll(params, (), obs, jnp.zeros((1, 1), jnp.bool_))
        heads = self.network.heads(params, embedding)
        policy = np.asarray(jax.nn.softmax(heads.logits))[0, 0]
        if self.loaded.rule.name == "actor_critic":
            return policy, float(scalar_value(heads.y, BINS)[0, 0])
        if self.loaded.rule.name == "policy_gradient":
            return policy, float(signed_parabolic(raw_value(self.state.learner.rule.params, obs))[0, 0])
        root = self.network.root(params, embedding)
        q = [scalar_value(self.network.model(params, root, jnp.int32(a)).q, BINS)[0, 0] for a in range(policy.size)]
        return policy, float(policy @ np.asarray(q))


# one-step episodes consist of first steps only, which the reference mask drops
CONFIG = TrainConfig(envs=8, batch=16, rollout=6, replay_size=64, mask="all")
SCHEDULES = {"actor_critic": (600, 3e-3), "policy_gradient": (600, 3e-3), "disco103": (700, 3e-3)}


@pytest.fixture(scope="module", params=SCHEDULES)
def learn(request: pytest.FixtureRequest) -> Callable[..., Trained]:
    published = request.param == "disco103"
    loaded = load_rule(str(request.getfixturevalue("disco103_path")) if published else request.param)
    updates, rate = SCHEDULES[request.param]

    def run(env: Environment, cuts: int = 0) -> Trained:
        sizes: Any = {"hidden": (32, 32), "model_width": 16, "head_hidden": (16,)}
        network = networks.mlp(env.spec, loaded.rule.needs, **sizes)
        training = make_training(env, network, loaded.rule, replace(CONFIG, cuts=cuts))
        hypers = Hypers(learning_rate=rate)
        state = jax.jit(training.init)(jax.random.key(0), hypers)
        state, info = jax.jit(training.advance, static_argnums=3)(loaded.eta, hypers, state, updates)
        assert jnp.isfinite(info.loss).all()
        return Trained(loaded, network, state)

    return run


def test_learns_a_constant_value(learn) -> None:
    _, value = learn(probes.constant()).outputs([1, 0])
    assert value == pytest.approx(1, abs=0.15)


def test_tells_observations_apart(learn) -> None:
    agent = learn(probes.observation())
    for signal in (-1, 1):
        assert agent.outputs([signal, 0])[1] == pytest.approx(signal, abs=0.2)


def test_looks_one_step_ahead(learn) -> None:
    agent = learn(probes.delayed())
    assert agent.outputs([1, 1])[1] == pytest.approx(1, abs=0.15)
    assert agent.outputs([1, 0])[1] == pytest.approx(GAMMA, abs=0.15)


def test_prefers_the_rewarded_action(learn) -> None:
    policy, value = learn(probes.action()).outputs([1, 0])
    assert policy[1] > 0.95
    assert value == pytest.approx(1, abs=0.2)


def test_acts_on_what_it_sees(learn) -> None:
    agent = learn(probes.both())
    assert agent.outputs([-1, 0])[0][0] > 0.95
    assert agent.outputs([1, 0])[0][1] > 0.95


@pytest.mark.parametrize("cuts, wanted", [(CONFIG.rollout, 0), (0, 1)])
def test_stays_where_only_a_clock_ends_unless_that_counts_as_an_end(learn, cuts: int, wanted: int) -> None:
    policy, _ = learn(probes.clock(), cuts).outputs([1, 0])
    assert policy[wanted] > 0.9


@pytest.mark.parametrize("name", ["actor_critic", "policy_gradient"])
def test_rules_written_by_hand_learn_to_catch(name: str) -> None:
    env, loaded = catch(5, 5), load_rule(name)
    network = networks.mlp(env.spec, loaded.rule.needs, hidden=(64, 64))
    training = make_training(env, network, loaded.rule, TrainConfig(envs=16, batch=32, rollout=16, replay_size=256))
    hypers = Hypers(learning_rate=2e-3)
    state = jax.jit(training.init)(jax.random.key(1), hypers)
    _, info = jax.jit(training.advance, static_argnums=3)(loaded.eta, hypers, state, 400)
    assert info.return_sum[-50:].sum() / info.episodes[-50:].sum() > 0.9  # chance: -0.6


@pytest.mark.parametrize("cell", ["lstm", "gru", None])
def test_only_a_recurrent_agent_remembers(cell: str | None) -> None:
    env, loaded = probes.memory(), load_rule("policy_gradient")
    torso = networks.mlp_torso(env.spec, (16,), last=jax.nn.relu)
    if cell is not None:
        torso = networks.recurrent(torso, env.spec, width=16, cell=cell)
    network = networks.assemble(torso, env.spec, loaded.rule.needs)
    config = TrainConfig(envs=32, batch=32, rollout=8, replay_size=32, replay_share=0.0, mask="all")  # 8: cuts episodes
    training = make_training(env, network, loaded.rule, config)
    hypers = Hypers(learning_rate=1e-2)
    state = jax.jit(training.init)(jax.random.key(0), hypers)
    _, info = jax.jit(training.advance, static_argnums=3)(loaded.eta, hypers, state, 120)
    late = float(info.return_sum[-30:].sum() / info.episodes[-30:].sum())
    assert late > 0.95 if cell is not None else abs(late) < 0.2
