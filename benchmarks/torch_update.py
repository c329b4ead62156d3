"""One update of the PyTorch front beside one of disco-torch 0.4.0: same weights, same shapes, taken in turns.

    python benchmarks/torch_update.py --actions 3 18 --repeats 15

Needs the published rule (DISCORL_RULES), and `pip install --no-deps disco-torch==0.4.0` for the comparison; without it
only our side is measured. Times are also given as a ratio to the floor: the useful arithmetic of an update at the rate of
a 1024³ product measured between updates, which makes runs on different or shared machines comparable.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from discorl import rule_files
from discorl_torch import ClippedAdam, DiscoAgent, DiscoRule, MLPTorso, Rollout
from discorl_torch.learner import Learner

T, B, OBS = 28, 64, 64
USEFUL_GFLOP = {3: 19.5, 18: 43.6}  # forward of all actions online and target, backward of the taken one, meta-network


class PlainAgent(nn.Module):
    """The same network as disco-torch asks for it: all heads of all actions, the action beside the hidden state."""

    def __init__(self, agent: DiscoAgent):
        super().__init__()
        self.agent = agent

    def forward(self, obs: Tensor, should_reset: Tensor) -> dict[str, Tensor]:
        agent, count = self.agent, self.agent.num_actions
        e = agent.torso(obs.flatten(0, 1)).unflatten(0, obs.shape[:2])
        cell = agent.cell(e).unsqueeze(-2).expand(*e.shape[:2], count, -1)
        one_hot = torch.eye(count).expand(*e.shape[:2], count, count)
        i, g, f, o = agent.lstm(torch.cat([one_hot, cell.tanh()], -1)).chunk(4, -1)
        hidden = o.sigmoid() * ((f + 1).sigmoid() * cell + i.sigmoid() * g.tanh()).tanh()
        heads = {"z": agent.z(hidden), "q": agent.q(hidden), "aux_pi": agent.aux_pi(hidden)}
        return {"logits": agent.logits(e), "y": agent.y(e)} | heads

    def forward_step(self, obs: Tensor, state: object) -> tuple[dict[str, Tensor], object]:
        out = self(obs.unsqueeze(0), torch.zeros(1, obs.shape[0]))
        return {key: x[0] for key, x in out.items()}, state

    def init_lstm_state(self, batch: int, device: object) -> None:
        return None


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


def their_update(path: str, agent: DiscoAgent, rollout: Rollout) -> Callable[[], object] | None:
    try:
        from disco_torch import DiscoTrainer  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    trainer = DiscoTrainer(PlainAgent(agent), device=torch.device("cpu"), lr=1e-2, weights_path=path)
    with torch.no_grad():
        behaviour = PlainAgent(agent)(rollout.obs, rollout.first.float())
    last = rollout.behaviour_logits[-1:]
    behaviour["logits"] = torch.cat([rollout.behaviour_logits, last])
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
    return shared + 1 + num_actions, shared + num_actions + predictions + num_actions * (predictions + bins + num_actions)


def measure(path: str, num_actions: int, repeats: int) -> None:
    rollout = make_rollout(num_actions)
    agents = [DiscoAgent(MLPTorso(OBS), np.zeros(OBS), num_actions) for _ in range(2)]
    agents[1].load_state_dict(agents[0].state_dict())
    ours, theirs = our_update(path, agents[0], rollout), their_update(path, agents[1], rollout)
    square = torch.randn(1024, 1024)
    runs: dict[str, list[float]] = {"product": [], "discorl_torch": [], "disco-torch": []}
    for i in range(repeats + 2):
        row = {"product": seconds(lambda: square @ square), "discorl_torch": seconds(ours)}
        if theirs:
            row["disco-torch"] = seconds(theirs)
        if i >= 2:  # the first ones warm up
            for name, time_taken in row.items():
                runs[name].append(time_taken)
    rate = 2 * 1024**3 / statistics.median(runs["product"]) / 1e9
    floor = USEFUL_GFLOP[num_actions] / rate if num_actions in USEFUL_GFLOP else float("nan")
    ratios = [b / a for a, b in zip(runs["discorl_torch"], runs["disco-torch"], strict=False)]
    for name in ("discorl_torch", "disco-torch"):
        if runs[name]:
            of_floor = statistics.median(runs[name]) / floor
            print(f"{num_actions:>7}  {name:<14} {spread(runs[name]):<22} {of_floor:>10.1f}  {rate:>7.0f}")
    if ratios:
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"{num_actions:>7}  ratio, pair by pair: {middle:.2f} (quartiles {low:.2f}–{high:.2f})")
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
    print(f"{'actions':>7}  {'':<14} {'ms':<22} {'× floor':>10}  {'GFLOP/s':>7}")
    for num_actions in args.actions:
        measure(path, num_actions, args.repeats)


if __name__ == "__main__":
    main()
