"""How rules compare on families of tasks: fresh agents, a new task for every seed, equal environment steps.

    python benchmarks/rules_on_families.py --rules disco-mini actor_critic policy_gradient --suite held-out
    python benchmarks/rules_on_families.py --rules actor_critic --suite small-worlds --tune      # learning rates

Every rule gets the same tasks, the same network and the same number of environment steps. A score is the mean return
over the last fifth of training (`--part last`) or over all of it (`--part all`); 0 is what a random policy earns on
that task, 1 the most that any of the rules in this run earned on it. Interquartile means over tasks, with bootstrap
intervals of 95 %.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from discorl import networks, settings
from discorl.envs import suites
from discorl.envs.families import Family
from discorl.experiment import training_config
from discorl.optim import Hypers
from discorl.rules import library
from discorl.rules.library import LoadedRule
from discorl.settings import Settings
from discorl.training import make_training

BINS = 20  # of a curve
RATES = (3e-4, 1e-3, 3e-3, 1e-2)  # what --tune tries
NETWORK: dict[str, Any] = {"hidden": (64, 64), "model_width": 32, "head_hidden": (32,)}


class Contender(NamedTuple):
    label: str
    loaded: LoadedRule
    full: Settings
    rate: float


def contender(asked: str, rate: float | None, overrides: dict[str, Any]) -> Contender:
    """`NAME[@RATE][+SETTING=VALUE,...]`; all other settings are the rule's own defaults."""
    asked, _, own = asked.partition("+")
    name, _, given = asked.partition("@")
    loaded = library.load_rule(name)
    wanted = {"rule": name, **overrides, **values(own.split(",") if own else [])}
    full = settings.resolve(settings.make(wanted), loaded.rule.name, loaded.rule.advice)
    chosen = rate if rate is not None else float(given) if given else full.learning_rate
    label = f"{full.rule_label}@{chosen:g}" + (f"+{own}" if own else "")
    return Contender(label, loaded, full, float(chosen or 0))


def values(given: list[str]) -> dict[str, Any]:
    """`NAME=VALUE` each."""
    pairs = (text.partition("=") for text in given)
    return {name: json.loads(value) if value[:1] in "0123456789[" else value for name, _, value in pairs}


def runner(family: Family, who: Contender, steps: int) -> Callable[[jax.Array, float], jax.Array]:
    """(keys [S], learning rate) -> mean returns [S, BINS] of agents that are born into a task of their own."""
    rule, eta = who.loaded
    network = networks.mlp(family.spec, rule.needs, **NETWORK)
    config = training_config(who.full)
    per_update = config.envs * config.rollout
    per_bin = max(1, round(steps / per_update / BINS))

    def life(key: jax.Array, rate: jax.Array) -> jax.Array:
        key_task, key_agent = jax.random.split(key)
        training = make_training(family.make(family.draw(key_task)), network, rule, config)
        hypers = Hypers(learning_rate=rate, max_update=who.full.max_update or 1.0)

        def stretch(state: Any, _: None) -> tuple:
            state, info = training.advance(eta, hypers, state, per_bin)
            return state, info.return_sum.sum() / jnp.maximum(info.episodes.sum(), 1)

        return jax.lax.scan(stretch, training.init(key_agent, hypers), length=BINS)[1]

    return jax.jit(lambda keys, rate: jax.lax.map(lambda key: life(key, rate), keys))


def interquartile_mean(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """The mean of the middle half; the outermost values that only half belong to it count half."""
    ordered = np.moveaxis(np.sort(x, axis=axis), axis, -1)
    n = ordered.shape[-1]
    # how much of each value lies between the quarters
    edges = np.arange(n + 1) / n
    weight = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0, None)
    return (ordered * weight).sum(-1) / weight.sum()


def with_interval(scores: np.ndarray, draws: int = 2000, seed: int = 0) -> tuple[float, float, float]:
    """Interquartile mean over all of `[families, tasks]` with its interval; tasks are redrawn within families."""
    rng = np.random.default_rng(seed)
    families, tasks = scores.shape
    picks = rng.integers(tasks, size=(draws, families, tasks))
    again = np.take_along_axis(scores[None], picks, axis=2).reshape(draws, -1)
    low, high = np.quantile(interquartile_mean(again), [0.025, 0.975])
    return float(interquartile_mean(scores.reshape(-1))), float(low), float(high)


def scores_of(curves: np.ndarray, random: np.ndarray, part: str) -> np.ndarray:
    """[rules, families, tasks] from curves [rules, families, tasks, bins] and the returns of random policies."""
    seen = curves[..., -BINS // 5 :] if part == "last" else curves
    value = seen.mean(-1) - random
    most = value.max(0, keepdims=True)
    return np.where(most > 1e-6, value / np.maximum(most, 1e-6), 0.0)


def report(labels: list[str], names: list[str], curves: np.ndarray, random: np.ndarray, part: str) -> None:
    scores = scores_of(curves, random, part)
    print(f"\n| {part} of training | " + " | ".join(labels) + " |\n|---" * 1 + "|---" * len(labels) + "|")
    for i, name in enumerate(names):
        cells = (_cell(with_interval(scores[r, i : i + 1])) for r in range(len(labels)))
        print(f"| {name} | " + " | ".join(cells) + " |")
    print("| **all** | " + " | ".join(f"**{_cell(with_interval(scores[r]))}**" for r in range(len(labels))) + " |")


def _cell(found: tuple[float, float, float]) -> str:
    return f"{found[0]:.2f} ({found[1]:.2f}–{found[2]:.2f})"


def measure(families: Iterable[Family], contenders: list[Contender], args: argparse.Namespace) -> tuple:
    keys = jax.random.split(jax.random.key(args.seed), args.seeds)
    random = contender("actor_critic", 0.0, {})
    curves, chance, names = [], [], []
    for family in families:
        rows, programs = [], {}
        for who in [random, *contenders]:
            start = time.time()
            kind = who.full
            if kind not in programs:
                programs[kind] = runner(family, who, args.steps if who is not random else args.steps // 4)
            rows.append(np.asarray(programs[kind](keys, jnp.float32(who.rate))))
            if who is not random:
                last = rows[-1][:, -BINS // 5 :].mean()
                print(f"{family.name} {who.label}: {last:.3f} in {time.time() - start:.0f} s", flush=True)
        chance.append(rows[0].mean(-1))
        curves.append(rows[1:])
        names.append(family.name)
    return np.moveaxis(np.asarray(curves), 0, 1), np.asarray(chance), names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rules", nargs="+", required=True, help="NAME[@LEARNING_RATE][+SETTING=VALUE,...], or rule files"
    )
    parser.add_argument("--suite", nargs="+", default=["held-out"], help="suites or families")
    parser.add_argument("--seeds", type=int, default=10, help="tasks of each family, one agent each")
    parser.add_argument("--steps", type=int, default=100_000, help="environment steps of each agent")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tune", action="store_true", help=f"every rule with learning rates {RATES}")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings for every rule")
    parser.add_argument("--save", type=Path, help="curves as JSON")
    args = parser.parse_args()
    rates = RATES if args.tune else (None,)
    contenders = [contender(name, rate, values(args.set)) for name in args.rules for rate in rates]
    families = [family for name in args.suite for family in suites.families(name)]
    curves, random, names = measure(families, contenders, args)
    labels = [who.label for who in contenders]
    if args.save:
        found = {"labels": labels, "families": names, "curves": curves.tolist(), "random": random.tolist()}
        args.save.write_text(json.dumps(found))
    for part in ("last", "all"):
        report(labels, names, curves, random, part)


if __name__ == "__main__":
    main()
