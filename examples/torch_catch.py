# ci: --updates 40
"""Catch in PyTorch with a discovered rule: the protocol of the published evaluation.

    python examples/torch_catch.py                # the default rule, 1000 updates
    python examples/torch_catch.py --rule disco103 --seed 1

A ball falls through an 8×8 grid; the paddle must be under it when it arrives. Two environments, rollouts of 28
transitions, a replay of 1024 trajectories, one update of 64 of them per rollout. For the first 300 to 700 updates the
rule warms up and the catch rate stays near chance; then it jumps.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from discorl_torch import DiscoAgent, DiscoRule, DiscoTrainer, MLPTorso, collect_rollout

ROWS = COLUMNS = 8


class Catch:
    """Environments side by side that reset themselves; calling one steps it."""

    def __init__(self, num_envs: int, seed: int):
        self.rng = np.random.default_rng(seed)
        self.ball_row, self.ball, self.paddle = (np.zeros(num_envs, int) for _ in range(3))
        self.reset(np.ones(num_envs, bool))

    def reset(self, where: np.ndarray) -> None:
        self.ball_row[where] = 0
        self.ball[where] = self.rng.integers(COLUMNS, size=where.sum())
        self.paddle[where] = COLUMNS // 2

    def observe(self) -> np.ndarray:
        grid = np.zeros((len(self.ball), ROWS, COLUMNS), np.float32)
        every = np.arange(len(self.ball))
        grid[every, self.ball_row, self.ball] = 1
        grid[every, ROWS - 1, self.paddle] = 1
        return grid

    def __call__(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        self.paddle = np.clip(self.paddle + action - 1, 0, COLUMNS - 1)
        self.ball_row += 1
        done = self.ball_row == ROWS - 1
        reward = np.where(done, np.where(self.ball == self.paddle, 1.0, -1.0), 0.0)
        self.reset(done)
        return self.observe(), reward, done


def train(name: str | None, updates: int, seed: int, log_every: int = 50) -> list[float]:
    """The catch rate of every stretch of `log_every` rollouts."""
    torch.manual_seed(seed)
    env = Catch(num_envs=2, seed=seed)
    rule = DiscoRule.from_file(name)
    agent = DiscoAgent(MLPTorso(ROWS * COLUMNS, (512, 512)), env.observe()[0], num_actions=3, rule=rule)
    trainer = DiscoTrainer(agent, rule, lr=1e-2, batch_size=64, replay_capacity=1024, seed=seed)
    obs, state, rewards, rates = env.observe(), None, [], []
    for i in range(1, updates + 1):
        rollout, obs, state = collect_rollout(agent, env, obs, state, rollout_len=28)
        logs = trainer.step(rollout)
        rewards.append(rollout.reward[rollout.discount == 0])
        if i % log_every == 0:
            rates.append((torch.cat(rewards) > 0).float().mean().item())
            rewards = []
            loss = f"{logs['total_loss']:.3f}" if "total_loss" in logs else "waiting for the replay to fill"
            print(f"rollout {i:>5}   catch rate {rates[-1]:4.0%}   loss {loss}", flush=True)
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rule", help="name of a rule or path of a rule file; the default rule if not given")
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="write the catch rates here, as .npy")
    args = parser.parse_args()
    rates = train(args.rule, args.updates, args.seed)
    if args.save:
        np.save(args.save, rates)


if __name__ == "__main__":
    main()
