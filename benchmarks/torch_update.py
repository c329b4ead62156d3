"""One update of the PyTorch front beside one of disco-torch 0.4.0: same weights, same shapes, taken in turns.

    python benchmarks/torch_update.py --actions 3 18 --repeats 15

Needs the published rule (DISCORL_RULES), and `pip install --no-deps disco-torch==0.4.0` for the comparison; without it
only our side is measured. disco-torch is measured twice: with an agent that unrolls step by step, as the one in its
documentation does, and with the same network written for all steps at once. Times are also given as a ratio to the
floor: the useful arithmetic of an update at the rate of a 1024³ product measured between updates, which makes runs on
different or shared machines comparable.
"""

import argparse
import contextlib
import importlib.util
import io
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from discorl import rule_files
from discorl_torch import ClippedAdam, DiscoAgent, DiscoRule, MLPTorso, Rollout
from discorl_torch.learner import Learner

OURS = "discorl_torch"
T, B, OBS = 28, 64, 64
USEFUL_GFLOP = {3: 19.5, 18: 43.6}  # forward of all actions online and target, backward of the taken one, meta-network


class StepwiseAgent(nn.Module):
    """The same network as users of disco-torch have it: time steps and actions one after another, all heads of each."""

    def __init__(self, agent: DiscoAgent):
        super().__init__()
        self.agent = agent

    def forward(self, obs: Tensor, should_reset: Tensor) -> dict[str, Tensor]:
        steps = [self.forward_step(x, None)[0] for x in obs]
        return {key: torch.stack([step[key] for step in steps]) for key in steps[0]}

    def forward_step(self, obs: Tensor, state: object) -> tuple[dict[str, Tensor], object]:
        agent, count = self.agent, self.agent.num_actions
        e = agent.torso(obs)
        cell = agent.cell(e)
        every = []
        for action in range(count):
            one_hot = torch.zeros(obs.shape[0], count)
            one_hot[:, action] = 1
            hidden = self.hidden(torch.cat([one_hot, cell.tanh()], -1), cell)
            every.append((agent.z(hidden), agent.q(hidden), agent.aux_pi(hidden)))
        z, q, aux_pi = (torch.stack(x, 1) for x in zip(*every, strict=True))
        return {"logits": agent.logits(e), "y": agent.y(e), "z": z, "q": q, "aux_pi": aux_pi}, state

    def hidden(self, inputs: Tensor, cell: Tensor) -> Tensor:
        i, g, f, o = self.agent.lstm(inputs).chunk(4, -1)
        return o.sigmoid() * ((f + 1).sigmoid() * cell + i.sigmoid() * g.tanh()).tanh()

    def init_lstm_state(self, batch: int, device: object) -> None:
        return None


class VectorisedAgent(StepwiseAgent):
    """The same with all time steps and actions at once: the best a user of disco-torch can do."""

    def forward(self, obs: Tensor, should_reset: Tensor) -> dict[str, Tensor]:
        agent, count = self.agent, self.agent.num_actions
        e = agent.torso(obs.flatten(0, 1)).unflatten(0, obs.shape[:2])
        cell = agent.cell(e).unsqueeze(-2).expand(*e.shape[:2], count, -1)
        one_hot = torch.eye(count).expand(*e.shape[:2], count, count)
        hidden = self.hidden(torch.cat([one_hot, cell.tanh()], -1), cell)
        heads = {"z": agent.z(hidden), "q": agent.q(hidden), "aux_pi": agent.aux_pi(hidden)}
        return {"logits": agent.logits(e), "y": agent.y(e)} | heads


def make_rollout(num_actions: int) -> Rollout:
    torch.manual_seed(0)
    ended = torch.rand(T, B) < 0.14
    return Rollout(
        obs=torch.rand(T + 1, B, OBS),
        first=torch.cat([torch.zeros(1, B, dtype=torch.bool), ended]),
        action=torch.randint(num_actions, (T, B)),
        reward=torch.randn(T, B) * ended,
        discount=(~ended).float(),
        behaviour_logits=torch.randn(T, B, num_actions),
    )


def our_update(path: str, agent: DiscoAgent, rollout: Rollout) -> Callable[[], object]:
    learner = Learner(agent, DiscoRule.from_file(path), ClippedAdam(agent.parameters(), lr=1e-2))
    return lambda: {key: x.item() for key, x in learner.update(rollout).items()}


def their_update(path: str, agent: StepwiseAgent, rollout: Rollout) -> Callable[[], object]:
    from disco_torch import DiscoTrainer  # pyright: ignore[reportMissingImports]

    with contextlib.redirect_stdout(io.StringIO()):
        trainer = DiscoTrainer(agent, device=torch.device("cpu"), lr=1e-2, weights_path=path)
    with torch.no_grad():
        behaviour = agent(rollout.obs, rollout.first.float())
    behaviour["logits"] = torch.cat([rollout.behaviour_logits, rollout.behaviour_logits[-1:]])
    batch = {
        "observations": rollout.obs,
        "actions": torch.cat([rollout.action, torch.zeros_like(rollout.action[:1])]),
        "rewards": rollout.reward,
        "discounts": 0.997 * rollout.discount,
        "agent_out": behaviour,
    }
    return lambda: trainer._gradient_step(batch)


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def spread(times: list[float]) -> str:
    low, middle, high = statistics.quantiles(times, n=4)
    return f"{1e3 * middle:6.0f} ({1e3 * low:.0f}–{1e3 * high:.0f})"


def replay_floats(num_actions: int, predictions: int = 600, bins: int = 601) -> tuple[int, int]:
    """Numbers kept per step beside the observation: ours, disco-torch's."""
    shared = 3  # action, reward, discount
    return shared + 1 + num_actions, shared + num_actions + predictions + num_actions * (
        predictions + bins + num_actions
    )


def measure(path: str, num_actions: int, repeats: int) -> None:
    rollout = make_rollout(num_actions)
    agents = [DiscoAgent(MLPTorso(OBS), np.zeros(OBS), num_actions) for _ in range(3)]
    for other in agents[1:]:
        other.load_state_dict(agents[0].state_dict())
    square = torch.randn(1024, 1024)
    runners = {OURS: our_update(path, agents[0], rollout)}
    if importlib.util.find_spec("disco_torch"):
        runners["disco-torch"] = their_update(path, StepwiseAgent(agents[1]), rollout)
        runners["… vectorised"] = their_update(path, VectorisedAgent(agents[2]), rollout)
    product, times = [], {name: [] for name in runners}
    for i in range(repeats + 2):
        row = {name: seconds(update) for name, update in runners.items()}
        product.append(seconds(lambda: square @ square))
        if i >= 2:  # the first ones warm up
            for name, taken in row.items():
                times[name].append(taken)
    rate = 2 * 1024**3 / statistics.median(product) / 1e9
    floor = USEFUL_GFLOP[num_actions] / rate if num_actions in USEFUL_GFLOP else float("nan")
    for name, taken in times.items():
        ratios = [theirs / ours for ours, theirs in zip(times[OURS], taken, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        slower = "" if name == OURS else f"{middle:.2f} ({low:.2f}–{high:.2f})"
        of_floor = statistics.median(taken) / floor
        print(f"{num_actions:>7}  {name:<14} {spread(taken):<20} {of_floor:>7.1f}  {slower:<20} {rate:>7.0f}")
    ours_kept, theirs_kept = replay_floats(num_actions)
    print(f"{num_actions:>7}  replay, numbers per step beside the observation: {ours_kept} against {theirs_kept:,}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actions", type=int, nargs="+", default=[3, 18])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    path = str(rule_files.find("disco103"))
    print(f"one update, {T}×{B} transitions, {args.threads} threads, torch {torch.__version__}, median (quartiles)")
    print(f"{'actions':>7}  {'':<14} {'ms':<20} {'× floor':>7}  {'× discorl_torch':<20} {'GFLOP/s':>7}")
    for num_actions in args.actions:
        measure(path, num_actions, args.repeats)


if __name__ == "__main__":
    main()
