"""One Disco103-sized update: seconds, ratio to the floor, temporaries, compile time.

    python benchmarks/update.py [--rounds 30]

Updates are measured as training runs them, several in one compiled program, and one call at a time. The floor is the
useful work (19.5 GFLOP for 28×64 transitions and 3 actions, 43.6 with 18) at the rate of a 1024³ float32
product, measured between the updates: machines are noisy, ratios less so. The PyTorch front and `disco-torch` 0.4.0
join the table where they and the published rule are present.
"""

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec
from math import isnan, nan
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from discorl import networks, rule_files
from discorl.envs.base import EnvSpec
from discorl.learner import make_learner
from discorl.optim import Hypers
from discorl.rules.disco import disco
from discorl.types import Rollout

T, B = 28, 64
FLOOR_GFLOP = {3: 19.5, 18: 43.6}
STRETCH = 10  # updates per program, the default of training by a discovered rule


class Subject(NamedTuple):
    name: str
    actions: int
    updates: int  # per run
    run: Callable[[], Any]  # waited for
    megabytes: float  # of temporaries
    compile_seconds: float


def make_rollout(actions: int, seed: int = 0) -> Rollout:
    rng = np.random.default_rng(seed)
    ended = rng.random((T + 1, B)) < 1 / 7
    return Rollout(
        obs=jnp.asarray(rng.standard_normal((T + 1, B, 8, 8)), jnp.float32),
        first=jnp.asarray(ended),
        action=jnp.asarray(rng.integers(actions, size=(T, B)), jnp.int32),
        reward=jnp.asarray(rng.standard_normal((T, B)), jnp.float32),
        discount=jnp.asarray(~ended[1:], jnp.float32),
        behaviour_logits=jnp.asarray(rng.standard_normal((T, B, actions)), jnp.float32),
        memory=(),
    )


def ours(actions: int, updates: int) -> Subject:
    rule = disco()
    spec = EnvSpec("random", actions, jax.ShapeDtypeStruct((8, 8), jnp.float32))
    learner = make_learner(networks.mlp(spec, rule.needs), rule)
    eta, rollout, hypers = rule.init(jax.random.key(1)), make_rollout(actions), Hypers()
    state = learner.init(jax.random.key(0), rollout.obs[0, 0])

    def stretch(eta, hypers, state, rollout):
        last = jnp.arange(updates) == updates - 1  # one report a stretch, as in training
        return jax.lax.scan(lambda s, report: learner.step(eta, hypers, s, rollout, report), state, last)

    begun = time.perf_counter()
    step = jax.jit(stretch, donate_argnums=2).lower(eta, hypers, state, rollout).compile()
    seconds = time.perf_counter() - begun
    box = [state]

    def run() -> None:
        box[0], info = step(eta, hypers, box[0], rollout)
        jax.block_until_ready(info)

    memory = step.memory_analysis()
    name = "in training" if updates > 1 else "one call"
    return Subject(name, actions, updates, run, memory.temp_size_in_bytes / 1e6 if memory else nan, seconds)


def peers(actions: int) -> list[Subject]:
    """Updates in PyTorch, of the same weights and shapes: ours, and disco-torch with an agent as its users write it."""
    if find_spec("torch") is None or find_spec("disco_torch") is None:
        return []
    import torch_update as other

    path = str(rule_files.find("disco103"))
    rollout = other.make_rollout(actions)
    agents = [other.DiscoAgent(other.MLPTorso(other.OBS), np.zeros(other.OBS), actions) for _ in range(2)]
    made = {
        "discorl_torch": other.our_update(path, agents[0], rollout),
        "disco-torch 0.4.0": other.their_update(path, other.StepwiseAgent(agents[1]), rollout),
    }
    return [Subject(name, actions, 1, run, nan, nan) for name, run in made.items()]


def matmul() -> Callable[[], float]:
    """Seconds of one 1024³ product, as GFLOP/s."""
    a = jnp.ones((1024, 1024))
    product = jax.jit(jnp.matmul)
    jax.block_until_ready(product(a, a))

    def rate() -> float:
        begun = time.perf_counter()
        for _ in range(5):
            jax.block_until_ready(product(a, a))
        return 5 * 2 * 1024**3 / 1e9 / (time.perf_counter() - begun)

    return rate


def shown(number: float, digits: int) -> str:
    return "–" if isnan(number) else f"{number:.{digits}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    rate, subjects = matmul(), [ours(actions, updates) for actions in FLOOR_GFLOP for updates in (STRETCH, 1)]
    subjects += [subject for actions in FLOOR_GFLOP for subject in peers(actions)]
    for subject in subjects:
        subject.run()
    rates: list[float] = []
    seconds: dict[int, list[float]] = {i: [] for i in range(len(subjects))}
    ratios: dict[int, list[float]] = {i: [] for i in range(len(subjects))}
    for _ in range(rounds):
        for i, subject in enumerate(subjects):
            before = rate()
            begun = time.perf_counter()
            subject.run()
            took = (time.perf_counter() - begun) / subject.updates
            around = 0.5 * (before + rate())
            rates.append(around)
            seconds[i].append(took)
            ratios[i].append(took * around / FLOOR_GFLOP[subject.actions])
    print(f"1024³ float32 product: median {np.median(rates):.0f} GFLOP/s, best {max(rates):.0f}; {rounds} rounds\n")
    print("| one update, 28×64 | actions | median s | best s | × floor (quartiles) | temporaries MB | compile s |")
    print("|---|---|---|---|---|---|---|")
    for i, s in enumerate(subjects):
        low, mid, high = np.percentile(ratios[i], [25, 50, 75])
        print(
            f"| {s.name} | {s.actions} | {np.median(seconds[i]):.3f} | {min(seconds[i]):.3f} "
            f"| {mid:.2f} ({low:.2f}–{high:.2f}) | {shown(s.megabytes, 0)} | {shown(s.compile_seconds, 1)} |"
        )


if __name__ == "__main__":
    main()
