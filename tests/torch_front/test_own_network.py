import numpy as np
import pytest

pytest.importorskip("torch.nn", reason="needs PyTorch: pip install 'discorl[torch]'")

import torch
import torch_cases as cases
from torch import Tensor, nn

from discorl.errors import DiscorlError
from discorl_torch import DiscoAgent, DiscoTrainer, collect_rollout
from discorl_torch.agent import AgentNetwork
from discorl_torch.own_network import OwnNetwork, as_network


class Whole(nn.Module):
    """A network as users of disco-torch have it, around a `DiscoAgent` to have something to compare with."""

    def __init__(self, agent: DiscoAgent, **changes):
        super().__init__()
        self.agent, self.changes = agent, changes

    def forward(self, obs: Tensor, should_reset: Tensor) -> dict[str, Tensor]:
        assert should_reset.dtype == torch.float32 and should_reset.shape == obs.shape[:2]
        return {k: x for k, x in (self.agent(obs, should_reset) | self.changes).items() if x is not None}


class Counting(Whole):
    """With a memory that counts steps, which only acting uses."""

    def init_lstm_state(self, batch: int, device) -> tuple[Tensor]:
        return (torch.zeros(batch, 1, device=device),)

    def forward_step(self, obs: Tensor, state: tuple[Tensor]):
        out = {key: x[0] for key, x in self.agent(obs.unsqueeze(0)).items()}
        return out | {"logits": out["logits"] + 1000 * state[0] * torch.tensor([1.0, 0.0, 0.0])}, (state[0] + 1,)


def test_a_whole_network_learns_the_same_numbers():
    trainers = [
        DiscoTrainer(agent, cases.tiny_rule(), batch_size=4, replay_capacity=8, lr=1e-2)
        for agent in (cases.tiny_agent(), Whole(cases.tiny_agent()))
    ]
    for i in range(4):
        logs = [trainer.step(cases.random_rollout(B=4, seed=i)) for trainer in trainers]
        assert logs[0] == pytest.approx(logs[1], rel=1e-4, abs=1e-5)
        assert logs[0]["updates"] == i + 1
    for a, b in zip(trainers[0].agent.parameters(), trainers[1].agent.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-4)


def test_own_networks_act():
    agent = Whole(cases.tiny_agent())
    step = lambda action: (np.zeros((2, 4)), np.zeros(2), np.zeros(2))  # noqa: E731
    rollout, _, state = collect_rollout(agent, step, np.zeros((2, 4)), rollout_len=3)
    torch.testing.assert_close(rollout.behaviour_logits, agent(rollout.obs, rollout.first.float())["logits"][:-1])
    assert state.memory == () == rollout.memory


def test_the_memory_of_an_own_network_is_reset_where_an_episode_begins():
    agent = Counting(cases.tiny_agent())

    times = []

    def step(action):
        times.append(1)
        return np.zeros((2, 4)), np.zeros(2), np.array([len(times) == 2, False])

    memory = agent.init_lstm_state(2, "cpu")
    rollout, _, state = collect_rollout(agent, step, np.zeros((2, 4)), memory, 4)
    base = rollout.behaviour_logits[0, :, 0]
    steps = ((rollout.behaviour_logits[..., 0] - base) / 1000).round().int()
    assert steps[:, 0].tolist() == [0, 1, 0, 1] and steps[:, 1].tolist() == [0, 1, 2, 3]
    assert rollout.memory == ()  # its forward pass does not ask for it, so nobody keeps it
    rollout, _, _ = collect_rollout(agent, step, np.zeros((2, 4)), state, 1)
    steps = ((rollout.behaviour_logits[..., 0] - base) / 1000).round().int()
    assert steps[0].tolist() == [2, 4]


def test_a_forward_pass_may_ask_for_the_memory():
    class Remembering(Counting):
        def forward(self, obs, should_reset, state):  # pyright: ignore[reportIncompatibleMethodOverride]
            asked.append(state)
            return self.agent(obs, should_reset)

    asked = []
    agent = Remembering(cases.tiny_agent())
    trainer = DiscoTrainer(agent, cases.tiny_rule(), batch_size=2, replay_capacity=2)
    step = lambda action: (np.zeros((2, 4)), np.zeros(2), np.zeros(2))  # noqa: E731
    _, obs, state = collect_rollout(agent, step, np.zeros((2, 4)), None, 3)
    rollout, _, _ = collect_rollout(agent, step, obs, state, 3)
    assert rollout.memory[0].flatten().tolist() == [3, 3]
    trainer.step(rollout)
    assert asked[-1][0].flatten().tolist() == [3, 3]


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"y": torch.zeros(2, 3, 8)}, ["y [2, 3, 8]", "y [2, 3, 6]"]),
        ({"z": torch.zeros(2, 3, 3, 7)}, ["z [2, 3, 7]", "z [2, 3, 6]"]),
        ({"q": torch.zeros(2, 3, 3, 1)}, ["q [2, 3, 1]", "q [2, 3, 9]"]),
        ({"aux_pi": torch.zeros(2, 3, 3, 2)}, ["aux_pi [2, 3, 2]", "aux_pi [2, 3, 3]"]),
        ({"aux_pi": None, "aux": torch.zeros(1)}, ["no 'aux_pi'", "did you mean 'aux'"]),
    ],
)
def test_what_a_network_emits_is_checked_at_construction(changes, words):
    agent = Whole(cases.tiny_agent(), **changes)
    with pytest.raises(DiscorlError) as error:
        DiscoTrainer(agent, cases.tiny_rule(), example_obs=np.zeros(4, np.float32))
    assert all(word in str(error.value) for word in words), str(error.value)
    assert "\n" not in str(error.value)


def test_or_with_the_first_rollout():
    agent = Whole(cases.tiny_agent(), y=torch.zeros(2, 3, 8))
    trainer = DiscoTrainer(agent, cases.tiny_rule())
    with pytest.raises(DiscorlError, match=r"y \[2, 3, 8\]"):
        trainer.step(cases.random_rollout())


def test_a_network_that_does_not_run_says_on_what():
    with pytest.raises(DiscorlError, match=r"does not run on observations \[2, 3, 5\]"):
        DiscoTrainer(Whole(cases.tiny_agent()), cases.tiny_rule(), example_obs=np.zeros(5, np.float32))
    with pytest.raises(DiscorlError, match="must emit a mapping"):
        DiscoTrainer(nn.Linear(5, 5), cases.tiny_rule(), example_obs=np.zeros(5, np.float32))
    with pytest.raises(DiscorlError, match="no parameters"):
        DiscoTrainer(nn.Identity(), cases.tiny_rule())


def test_agents_that_keep_the_contract_are_taken_as_they_are():
    agent = cases.tiny_agent()
    assert isinstance(agent, AgentNetwork) and as_network(agent) is agent
    assert isinstance(as_network(Whole(agent)), OwnNetwork)
