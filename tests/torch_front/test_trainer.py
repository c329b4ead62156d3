import io

import numpy as np
import pytest

pytest.importorskip("torch.nn", reason="needs PyTorch: pip install 'discorl[torch]'")

import torch
import torch_cases as cases
from torch import Tensor, nn

from discorl.errors import DiscorlError
from discorl_torch import DiscoAgent, DiscoTrainer, MLPTorso, Rollout, collect_rollout
from discorl_torch.replay import Replay
from discorl_torch.trees import leaves


def make(**settings) -> DiscoTrainer:
    settings = {"batch_size": 4, "replay_capacity": 8, "lr": 1e-2} | settings
    return DiscoTrainer(cases.tiny_agent(), cases.tiny_rule(), **settings)


def refusal(call, *args, **keywords) -> str:
    with pytest.raises(DiscorlError) as error:
        call(*args, **keywords)
    assert "\n" not in str(error.value)
    return str(error.value)


# Replay ----------------------------------------------------------------------------------------------------------


def numbered(start: int, B: int = 2) -> Rollout:
    """Trajectories that carry their number in every reward."""
    rollout = cases.random_rollout(B=B, seed=start)
    return rollout._replace(reward=(start + torch.arange(B)).expand_as(rollout.reward).float())


def test_replay_gives_back_whole_trajectories():
    replay = Replay(8)
    rollouts = [numbered(0), numbered(2)]
    for rollout in rollouts:
        replay.add(rollout)
    batch = replay.sample(30)
    assert batch.obs.shape == (6, 30, 4) and batch.behaviour_logits.shape == (5, 30, 3)
    for b in range(30):
        number = int(batch.reward[0, b])
        source, column = rollouts[number // 2], number % 2
        for name in ("obs", "first", "action", "reward", "discount", "behaviour_logits"):
            torch.testing.assert_close(getattr(batch, name)[:, b], getattr(source, name)[:, column])
    assert set(batch.reward[0].tolist()) == {0.0, 1.0, 2.0, 3.0}


def test_replay_forgets_the_oldest():
    replay = Replay(4)
    for start in (0, 2, 4):
        replay.add(numbered(start))
    assert len(replay) == 4
    assert set(replay.sample(60).reward[0].tolist()) == {2.0, 3.0, 4.0, 5.0}


def test_replay_keeps_observations_as_they_are_and_little_else():
    replay = Replay(4)
    rollout = cases.random_rollout()
    obs = {"pixels": torch.randint(256, (6, 3, 2, 8, 8), dtype=torch.uint8), "speed": torch.randn(6, 3, 1)}
    replay.add(rollout._replace(obs=obs))
    batch = replay.sample(2)
    assert batch.obs["pixels"].dtype == torch.uint8 and batch.obs["pixels"].shape == (6, 2, 2, 8, 8)
    per_step = replay.bytes_per_step() - (2 * 64 + 4) * 6 / 5  # obs
    assert per_step < 4 * (3 + 2) + 8 + 2.5  # logits, reward, discount; action; first and valid


def test_replay_refuses_rollouts_of_another_length():
    replay = Replay(8)
    replay.add(cases.random_rollout(T=5))
    message = refusal(replay.add, cases.random_rollout(T=6))
    assert "[6, 3]" in message.replace("action [6]", "[6, 3]") and "action [5]" in message
    assert "does not fit" in refusal(Replay(2).add, cases.random_rollout(B=3))
    assert "empty" in refusal(Replay(2).sample, 3)


# Trainer ---------------------------------------------------------------------------------------------------------


def test_learning_starts_when_the_replay_is_full_enough():
    trainer = make(batch_size=4, replay_ratio=2)
    assert trainer.step(cases.random_rollout(B=3)) == {"updates": 0, "rollouts": 1, "replay_size": 3}
    logs = trainer.step(cases.random_rollout(B=3))
    assert logs["updates"] == 2 and logs["replay_size"] == 6
    assert {"total_loss", "pi_loss", "y_loss", "z_loss", "aux_loss", "q_loss", "entropy"} <= set(logs)
    assert all(isinstance(x, int | float) for x in logs.values())


def params(trainer: DiscoTrainer) -> list[Tensor]:
    every = [
        *trainer.agent.parameters(),
        *trainer.learner.target_agent.parameters(),
        *leaves(trainer.learner.rule_state),
    ]
    return [x.detach().clone() for x in every]


@pytest.mark.parametrize("saved_after", [1, 3])
def test_save_load_and_go_on_equals_going_on(saved_after):
    one, two = make(), make(seed=5)
    for i in range(saved_after):
        one.step(cases.random_rollout(seed=i))
    file = io.BytesIO()
    torch.save(one.state_dict(), file)
    file.seek(0)
    for p in two.agent.parameters():
        p.data.add_(1)
    two.load_state_dict(torch.load(file, weights_only=True))
    for i in range(3):
        rollout = cases.random_rollout(seed=100 + i)
        assert one.step(rollout) == two.step(rollout)
    for a, b in zip(params(one), params(two), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert one.updates == two.updates > 0


def test_states_of_another_configuration_are_refused():
    trainer = make()
    for i in range(2):
        trainer.step(cases.random_rollout(seed=i))
    state = trainer.state_dict()
    other = DiscoTrainer(cases.tiny_agent(), cases.tiny_rule(seed=1), batch_size=4, replay_capacity=8)
    message = refusal(other.load_state_dict, state)
    assert message.count("tiny (") == 2 and "rule" in message
    other = DiscoTrainer(cases.tiny_agent(num_actions=4), cases.tiny_rule(), batch_size=4, replay_capacity=8)
    message = refusal(other.load_state_dict, state)
    assert "another agent" in message and "[3]" in message and "[4]" in message
    assert "room for 16" in refusal(make(replay_capacity=16).load_state_dict, state)
    assert "no 'agent'" in refusal(make().load_state_dict, {"rule": "x"})


def test_everything_moves_with_the_trainer():
    trainer = make()
    for i in range(2):
        trainer.step(cases.random_rollout(seed=i))
    trainer.to("meta")  # a device without memory: whatever is left behind is noticed

    def devices(tree) -> set[str]:
        if isinstance(tree, dict):
            return set().union(*map(devices, tree.values()))
        if isinstance(tree, tuple | list):
            return set().union(*map(devices, tree))
        return {tree.device.type} if isinstance(tree, Tensor) else set()

    state = trainer.state_dict()
    state["replay"].pop("rng")  # indices are drawn on the CPU
    assert devices(state) == {"meta"}
    assert {p.device.type for p in trainer.rule.parameters()} == {"meta"} == {trainer.rule.bins.device.type}


def test_a_replay_with_its_own_device_stays():
    trainer = make(replay_device="cpu")
    trainer.step(cases.random_rollout())
    trainer.to("meta")
    assert trainer.replay.store is not None and trainer.replay.store.reward.device.type == "cpu"


def test_rollouts_as_disco_torch_has_them():
    ours, theirs = make(), make()
    rollout = cases.random_rollout(B=4)._replace(first=torch.zeros(6, 4, dtype=torch.bool))
    first = torch.cat([torch.zeros(1, 4, dtype=torch.bool), rollout.discount == 0])
    logits = rollout.behaviour_logits
    mapping = {
        "observations": rollout.obs,
        "actions": torch.cat([rollout.action, torch.zeros_like(rollout.action[:1])]),
        "rewards": rollout.reward,
        "discounts": 0.997 * rollout.discount,
        "agent_out": {"logits": torch.cat([logits, logits[:1]]), "y": torch.zeros(6, 4, 6)},
    }
    assert ours.step(rollout._replace(first=first)) == theirs.step(mapping)
    assert "no 'rewards'" in refusal(theirs.step, {key: x for key, x in mapping.items() if key != "rewards"})
    assert "no 'logits'" in refusal(theirs.step, mapping | {"agent_out": {}})


def test_mistakes_in_rollouts_are_told_in_one_sentence():
    trainer, good = make(), cases.random_rollout()
    T, B = good.action.shape

    def told(**changes) -> str:
        return refusal(trainer.step, good._replace(**changes))

    assert "integers" in told(action=good.action.float()) and "torch.float32" in told(action=good.action.float())
    message = told(reward=good.reward[:-1])
    assert "reward is [4, 3]" in message and "need [5, 3]" in message
    assert "first is [5, 3]" in told(first=good.first[:-1])
    assert "need [6, 3, ...]" in told(obs=good.obs[:-1])
    assert "behaviour_logits are [5, 3]" in told(behaviour_logits=good.behaviour_logits[..., 0])
    assert "from 0 to 7" in told(action=torch.arange(T * B).reshape(T, B) % 8)
    reward = good.reward.clone()
    reward[2, 1] = float("nan")
    assert "reward holds NaN" in told(reward=reward)
    assert "has 5 actions" in told(behaviour_logits=torch.zeros(T, B, 5), action=good.action % 3)
    assert "[T, B]" in told(action=good.action[0])
    assert len(trainer.replay) == 0


def test_mistakes_in_settings_are_told_in_one_sentence():
    assert "did you mean 'batch_size'" in refusal(make, batchsize=3)
    assert "called rule" in refusal(make, weights_path="x.npz")
    assert "called max_update" in refusal(make, max_grad_value=1.0)
    assert "lr must be positive" in refusal(make, lr=0.0)
    assert "no mask 'al'" in refusal(make, mask="al")
    assert "no rule 'disco130'" in refusal(DiscoTrainer, cases.tiny_agent(), "disco130")


def test_a_rule_that_does_not_fit_the_agent_is_refused_at_construction():
    agent = DiscoAgent(MLPTorso(4, (7,)), np.zeros(4), 3, model_width=5, head_hidden=(6,))  # of Disco103's sizes
    message = refusal(DiscoTrainer, agent, cases.tiny_rule())
    assert "y [2, 3, 600]" in message and "y [2, 3, 6]" in message and "q [2, 3, 601]" in message


def test_torsos_that_do_not_fit_are_refused_at_construction():
    message = refusal(DiscoAgent, MLPTorso(5), np.zeros(4), 3)
    assert "does not run on observations [4]" in message
    message = refusal(DiscoAgent, nn.Flatten(0), np.zeros(4), 3)
    assert "one vector per observation" in message or "does not run" in message


class Bandit:
    """One step per episode; the observation tells which of three actions is paid."""

    def __init__(self, num_envs: int, seed: int = 0):
        self.rng, self.num = np.random.default_rng(seed), num_envs
        self.reset()

    def reset(self) -> np.ndarray:
        self.good = self.rng.integers(3, size=self.num)
        self.obs = np.eye(3, dtype=np.float32)[self.good]
        return self.obs

    def __call__(self, action: np.ndarray):
        reward = (action == self.good).astype(np.float32)
        return self.reset(), reward, np.ones(self.num)


@pytest.mark.slow
def test_disco103_learns_which_action_is_paid(disco103_path):
    torch.manual_seed(0)
    env = Bandit(8)
    agent = DiscoAgent(MLPTorso(3, (32,)), np.zeros(3), 3, model_width=16, head_hidden=(16,))
    trainer = DiscoTrainer(agent, disco103_path, lr=3e-2, batch_size=16, replay_capacity=64, mask="all")
    obs, state, rewards = env.obs, None, []
    for _ in range(600):  # the first few hundred updates of any agent only warm the rule up
        rollout, obs, state = collect_rollout(agent, env, obs, state, 16)
        trainer.step(rollout)
        rewards.append(rollout.reward.mean().item())
    assert np.mean(rewards[:20]) < 0.5
    assert np.mean(rewards[-20:]) > 0.9
