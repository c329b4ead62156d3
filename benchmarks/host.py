"""Environments that Python steps: steps per second of whole training, of its two halves, and of a peer.

    python benchmarks/host.py [--envs CartPole-v1 atari:pong] [--sizes 8 32] [--rule actor_critic] [--seconds 10]
                              [--set batch=16 replay_share=0.0]

Whole training is `discorl train`'s own program. Its halves: the environment alone, stepped with random actions, and the
learner alone, fed with the same batch again and again. Learning and acting overlap, so the slower half is the limit.
Where Stable-Baselines3 is installed, its PPO trains on CartPole in the same run, with its own defaults and as many
environments; returns are of the last episodes of each.
"""

import argparse
import time
import tomllib
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import jax
import numpy as np

from discorl import experiment, settings
from discorl.envs import HostEnvironment
from discorl.experiment import Experiment
from discorl.host_acting import example_rollout
from discorl.learner import make_learner


def per_second(run: Callable[[], int], seconds: float) -> float:
    """`run` returns how many steps it made."""
    run()
    begun, steps = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        steps += run()
    return steps / (time.perf_counter() - begun)


def environment_alone(made: Experiment, size: int) -> tuple[Callable[[], int], Callable[[], None]]:
    assert isinstance(made.env, HostEnvironment)
    vector = made.env.open(size)
    vector.reset(0)
    rng = np.random.default_rng(0)

    def run() -> int:
        for _ in range(20):
            vector.step(rng.integers(made.env.spec.num_actions, size=size))
        return 20 * size

    return run, vector.close


def learner_alone(made: Experiment) -> Callable[[], int]:
    config = experiment.training_config(made.settings)
    learner = make_learner(made.network, made.rule, config.mask, config.burn_in)
    shapes = example_rollout(made.network, made.env.spec, config.rollout, config.cuts, config.batch)
    batch = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
    obs = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), made.env.spec.observation)
    hypers = experiment.optimizer_numbers(made.settings)
    box = [jax.jit(learner.init)(jax.random.key(0), obs)]
    step = jax.jit(learner.step)

    def run() -> int:
        box[0], info = step(made.eta, hypers, box[0], batch)
        jax.block_until_ready(info)
        return config.envs * config.rollout  # of environment steps that come with an update

    return run


def whole_training(made: Experiment) -> tuple[Callable[[], int], list[float]]:
    state, updates = made.program.start(), 4
    stretch = made.program.prepare(state, updates)
    box, returns = [state], []

    def run() -> int:
        box[0], info, _ = stretch(box[0])
        if info.episodes.sum():
            returns.append(float(info.return_sum.sum() / info.episodes.sum()))
        return updates * made.program.steps_per_rollout

    return run, returns


def peer(size: int, seconds: float) -> tuple[float, float] | None:
    """Steps per second and last returns of Stable-Baselines3's PPO on CartPole."""
    if find_spec("stable_baselines3") is None:
        return None
    ppo: Any = import_module("stable_baselines3").PPO
    make_vec_env: Any = import_module("stable_baselines3.common.env_util").make_vec_env

    model = ppo("MlpPolicy", make_vec_env("CartPole-v1", n_envs=size), device="cpu", seed=0)
    model.learn(model.n_steps * size)
    begun, steps = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        model.learn(model.n_steps * size, reset_num_timesteps=False)
        steps += model.n_steps * size
    took = time.perf_counter() - begun
    return steps / took, float(np.mean([episode["r"] for episode in model.ep_info_buffer]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", default=["CartPole-v1", "atari:pong"])
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--rule", default="actor_critic")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--set", nargs="*", default=[], help="settings of training, such as batch=16")
    args = parser.parse_args()
    own = tomllib.loads("\n".join(args.set))
    print("| steps/s | environments | environment alone | learner alone | training | of the slower | last returns |")
    print("|---|---|---|---|---|---|---|")
    for name in args.envs:
        agent = "impala-small" if name.startswith("atari:") else "mlp"
        for size in args.sizes:
            made = experiment.build(
                name, args.rule, agent, settings.make({"envs": size, "replay_size": 64 + size, **own})
            )
            run, close = environment_alone(made, size)
            alone = per_second(run, args.seconds)
            close()
            learner = per_second(learner_alone(made), args.seconds)
            run, returns = whole_training(made)
            whole = per_second(run, args.seconds)
            made.program.close()
            last = np.mean(returns[-10:]) if returns else float("nan")
            share = whole / min(alone, learner)
            cells = f"{alone:.0f} | {learner:.0f} | {whole:.0f} | {share:.0%} | {last:.0f}"
            print(f"| {name}, {args.rule} | {size} | {cells} |", flush=True)
            if name == "CartPole-v1" and (found := peer(size, args.seconds)):
                print(
                    f"| {name}, PPO of Stable-Baselines3 | {size} | | | {found[0]:.0f} | | {found[1]:.0f} |", flush=True
                )


if __name__ == "__main__":
    main()
