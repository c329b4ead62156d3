from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch.nn", reason="needs PyTorch: pip install 'discorl[torch]'")

import torch
import torch_cases as cases

from discorl.errors import DiscorlError
from discorl_torch import ConvTorso, DiscoAgent, DiscoTrainer, MLPTorso, RecurrentTorso, collect_rollout
from discorl_torch.replay import Replay
from discorl_torch.trees import leaves

gymnasium: Any = pytest.importorskip("gymnasium", reason="needs Gymnasium: pip install gymnasium")
MODES = ["SameStep", "NextStep", "Disabled"]


class Count(gymnasium.Env):
    """Observations count up; action 1 pays. An episode terminates after `terminate` steps or is cut."""

    def __init__(self, terminate: int = 99, truncate: int = 99, kind: str = "vector"):
        self.terminate, self.truncate, self.kind = terminate, truncate, kind
        self.action_space = gymnasium.spaces.Discrete(3)
        box = gymnasium.spaces.Box(0, 255, (2,), np.float32)
        image = gymnasium.spaces.Box(0, 255, (1, 8, 8), np.uint8)
        spaces = {"vector": box, "pixels": image, "dict": gymnasium.spaces.Dict({"a": box, "b": image})}
        self.observation_space = spaces[kind]
        self.episodes = 0

    def observe(self):
        vector = np.array([self.t, self.episodes], np.float32)
        image = np.full((1, 8, 8), self.t, np.uint8)
        return {"vector": vector, "pixels": image, "dict": {"a": vector, "b": image}}[self.kind]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.episodes = 0, self.episodes + 1
        return self.observe(), {}

    def step(self, action):
        self.t += 1
        return self.observe(), float(action == 1), self.t >= self.terminate, self.t >= self.truncate, {}


def vector_env(mode: str, **options):
    makers = [lambda: Count(**options), lambda: Count(**(options | {"terminate": options.get("terminate", 99) + 1}))]
    mode = gymnasium.vector.AutoresetMode(mode)
    return gymnasium.vector.SyncVectorEnv(makers, copy=False, autoreset_mode=mode)  # its observations are one array


def vector_agent(**options) -> DiscoAgent:
    torch.manual_seed(0)
    return DiscoAgent(MLPTorso(2, (5,)), np.zeros(2, np.float32), 3, rule=cases.TINY, model_width=4, head_hidden=(4,))


@pytest.mark.parametrize("mode", ["SameStep", "Disabled"])
def test_ended_episodes_begin_anew_in_the_same_row(mode):
    rollout, _, _ = collect_rollout(vector_agent(), vector_env(mode, terminate=3), rollout_len=7)
    assert rollout.obs[:, 0].tolist() == [[0, 1], [1, 1], [2, 1], [0, 2], [1, 2], [2, 2], [0, 3], [1, 3]]
    assert rollout.obs[:, 1].tolist() == [[0, 1], [1, 1], [2, 1], [3, 1], [0, 2], [1, 2], [2, 2], [3, 2]]
    assert rollout.first[:, 0].tolist() == [True, False, False, True, False, False, True, False]
    assert rollout.discount[:, 0].tolist() == [1, 1, 0, 1, 1, 0, 1]
    assert rollout.discount[:, 1].tolist() == [1, 1, 1, 0, 1, 1, 1]
    assert rollout.reward.equal((rollout.action == 1).float())
    assert rollout.valid is None and rollout.memory == ()


def test_a_reset_that_takes_a_step_is_kept_apart():
    rollout, _, state = collect_rollout(vector_agent(), vector_env("NextStep", terminate=3), rollout_len=7)
    assert rollout.obs[:, 0].tolist() == [[0, 1], [1, 1], [2, 1], [3, 1], [0, 2], [1, 2], [2, 2], [3, 2]]
    assert rollout.valid is not None
    assert rollout.valid[:, 0].tolist() == [True, True, True, False, True, True, True]
    assert rollout.discount[:, 0].tolist() == [1, 1, 0, 0, 1, 1, 0]
    assert rollout.first[:, 0].tolist() == [True, False, False, True, True, False, False, True]
    assert rollout.reward.equal((rollout.action == 1).float() * rollout.valid)
    assert state.pending.tolist() == [True, False]


@pytest.mark.parametrize("mode", MODES)
def test_rollouts_continue_where_the_last_one_stopped(mode):
    agent = vector_agent()

    def run(lengths: list[int]):
        env, obs, state = vector_env(mode, terminate=3), None, None
        rng = torch.Generator().manual_seed(0)
        parts = []
        for length in lengths:
            rollout, obs, state = collect_rollout(agent, env, obs, state, length, generator=rng)
            parts.append(rollout)
        return parts

    def joined(parts, name: str, rows: slice = slice(None)):
        every = [getattr(p, name) for p in parts]
        every = [torch.ones_like(p.action).bool() if x is None else x for x, p in zip(every, parts, strict=True)]
        return torch.cat([x[rows] for x in every])

    whole, parts = run([12]), run([5, 3, 4])
    for name in ("action", "reward", "discount", "behaviour_logits", "valid"):
        torch.testing.assert_close(joined(parts, name), joined(whole, name))
    for name in ("obs", "first"):
        torch.testing.assert_close(joined(parts, name, slice(-1)), joined(whole, name, slice(-1)))


@pytest.mark.parametrize("mode", MODES)
def test_what_a_truncated_episode_would_have_been_worth_can_be_added(mode):
    agent = vector_agent()
    asked = []

    def worth(obs, memory):
        asked.append(obs.clone())
        return 100 + obs[:, 0]

    rollout, _, _ = collect_rollout(agent, vector_env(mode, truncate=3), rollout_len=4, future_value=worth)
    cut = torch.tensor([False, False, True, False])
    assert (rollout.discount[:3, 0] == torch.tensor([1.0, 1.0, 0.0])).all()
    expected = (rollout.action[:, 0] == 1).float()
    if rollout.valid is not None:
        expected = expected * rollout.valid[:, 0]
    torch.testing.assert_close(rollout.reward[:, 0], expected)  # a fact, which the rule looks at
    torch.testing.assert_close(rollout.earned[:, 0], expected + 103 * cut)  # where it was cut, not the next beginning
    assert len(asked) == 1
    plain, _, _ = collect_rollout(agent, vector_env(mode, truncate=3), rollout_len=4)
    assert plain.earned.max() <= 1 and plain.discount[2, 0] == 0
    asked.clear()
    collect_rollout(agent, vector_env(mode, terminate=2), rollout_len=4, future_value=worth)
    assert not asked  # what terminated is worth nothing more


def test_the_trainer_tells_what_the_future_is_worth():
    agent, rule = vector_agent(), cases.tiny_rule()
    trainer = DiscoTrainer(agent, rule, batch_size=2)
    obs = torch.rand(3, 2)
    out = agent(obs.unsqueeze(0))
    q = rule.digest(out["z"].softmax(-1), out["q"].softmax(-1)).q[0]
    expected = 0.997 * (out["logits"][0].softmax(-1) * q).sum(-1)
    torch.testing.assert_close(trainer.future_value(obs), expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["pixels", "dict"])
def test_pixels_and_dicts(kind, mode):
    env = vector_env(mode, truncate=3, kind=kind)
    example = env.single_observation_space.sample()
    torso = ConvTorso((1, 8, 8), (2, 3), 6) if kind == "pixels" else MLPTorso(2 + 64, (6,))
    agent = DiscoAgent(torso, example, 3, rule=cases.TINY, model_width=4, head_hidden=(4,))
    trainer = DiscoTrainer(agent, cases.tiny_rule(), batch_size=2, replay_capacity=4)
    rollout, obs, state = collect_rollout(agent, env, None, None, 5, future_value=trainer.future_value)
    trainer.step(rollout)
    rollout, obs, state = collect_rollout(agent, env, obs, state, 5, future_value=trainer.future_value)
    logs = trainer.step(rollout)
    assert np.isfinite(logs["total_loss"])
    kept = trainer.replay.store.obs if kind == "pixels" else trainer.replay.store.obs["b"]  # pyright: ignore
    assert kept.dtype == torch.uint8
    # every kept observation is its own: environments write theirs into one array
    pixels = rollout.obs if kind == "pixels" else rollout.obs["b"]
    assert len({int(x) for x in pixels[:, 0, 0, 0, 0]}) > 1


def test_recurrent_agents_start_a_rollout_with_the_memory_they_had():
    torch.manual_seed(0)
    torso = RecurrentTorso(MLPTorso(2, (5,)), 5, width=4)
    agent = DiscoAgent(torso, np.zeros(2, np.float32), 3, rule=cases.TINY, model_width=4, head_hidden=(4,))
    env = vector_env("SameStep", terminate=3)
    rollout, obs, state = collect_rollout(agent, env, rollout_len=5)
    for _ in range(2):
        rollout, obs, state = collect_rollout(agent, env, obs, state, 5)
        with torch.no_grad():
            out, _ = agent.unroll(rollout.obs, rollout.first, rollout.memory)
        torch.testing.assert_close(out.logits[:-1], rollout.behaviour_logits)
    assert any(x.any() for x in leaves(rollout.memory))
    trainer = DiscoTrainer(agent, cases.tiny_rule(), batch_size=4, replay_capacity=4)
    trainer.step(rollout)
    assert np.isfinite(trainer.step(rollout)["total_loss"])


def test_a_plain_function_is_an_environment():
    seen = []

    def step(action: np.ndarray):
        seen.append(action)
        t = len(seen)
        return np.full((2, 2), t, np.float64), action * 1.0, np.array([t % 2 == 0, False])

    rollout, obs, _ = collect_rollout(vector_agent(), step, np.zeros((2, 2)), rollout_len=4)
    assert rollout.obs.dtype == torch.float32 and rollout.obs[:, 0, 0].tolist() == [0, 1, 2, 3, 4]
    assert rollout.discount.tolist() == [[1, 1], [0, 1], [1, 1], [0, 1]]
    assert rollout.first[:, 0].tolist() == [True, False, True, False, True]
    torch.testing.assert_close(rollout.action, torch.tensor(np.stack(seen)))
    torch.testing.assert_close(rollout.reward, rollout.action.float())
    assert obs.shape == (2, 2)


def test_functions_may_tell_truncation_apart():
    def step(action: np.ndarray):
        return np.zeros((2, 2)), np.zeros(2), np.array([True, False]), np.array([False, True])

    worth = lambda obs, memory: torch.full((2,), 7.0)  # noqa: E731
    rollout, _, _ = collect_rollout(vector_agent(), step, np.zeros((2, 2)), rollout_len=2, future_value=worth)
    assert rollout.earned.tolist() == [[0, 7], [0, 7]] and not rollout.discount.any()


def test_actions_follow_the_policy():
    agent = vector_agent()
    with torch.no_grad():
        agent.logits.weight.zero_()
        agent.logits.bias.copy_(torch.tensor([0.0, 3.0, -30.0]))
    rollout, _, _ = collect_rollout(agent, vector_env("SameStep"), rollout_len=300)
    share = torch.bincount(rollout.action.flatten(), minlength=3) / rollout.action.numel()
    torch.testing.assert_close(share, torch.tensor([0.047, 0.953, 0.0]), rtol=0, atol=0.04)


def test_mistakes_are_told_in_one_sentence():
    with pytest.raises(DiscorlError, match="cannot act in Count"):
        collect_rollout(vector_agent(), Count())
    with pytest.raises(DiscorlError, match="cannot reset"):
        collect_rollout(vector_agent(), lambda action: None)


def test_a_replay_refuses_rollouts_that_began_to_look_beyond_clocks_midway():
    agent, env = vector_agent(), vector_env("SameStep", truncate=3)
    replay = Replay(4)
    replay.add(collect_rollout(agent, env, rollout_len=4)[0])
    later, _, _ = collect_rollout(agent, env, rollout_len=4, future_value=lambda obs, memory: obs[:, 0])
    with pytest.raises(DiscorlError, match="and future_value if it was given"):
        replay.add(later)
