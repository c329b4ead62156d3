"""How good the agents of a saved run are, on its own environment or on another one of the same shapes."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from discorl import envs, evaluation, experiment, play, programs, runs
from discorl.envs import EnvSpec
from discorl.envs.adapters.atari_scores import yardstick
from discorl.errors import DiscorlError, require_positive
from discorl.experiment import Agent
from discorl.settings import MAX_SEED, Settings


class Score(NamedTuple):
    """Of returns: their mean, its 95 % bootstrap interval (see `evaluation.interval`), their median."""

    mean: float
    low: float
    high: float
    median: float


class Judged(NamedTuple):
    """Episodes of one way to act, `[agents, episodes]`."""

    returns: np.ndarray
    lengths: np.ndarray
    cut: int  # episodes that did not end, see `evaluation.longest`
    score: Score
    human: Score | None  # on Atari: 0 is random play, 1 a person's


class Evaluation(NamedTuple):
    """What `discorl evaluate` finds out."""

    run: Path
    settings: Settings  # the agents were trained with
    env: str  # they were evaluated on
    episodes: int
    seed: int
    greedy: Judged  # taking the likeliest actions
    sampled: Judged  # drawing actions


def evaluate(
    run: str | Path, *, episodes: int = 100, seed: int | None = None, env: Any = None, agent: Agent | None = None
) -> Evaluation:
    """Judges the agents of a run folder and keeps the result there, in evaluation.json.

    `env` is another environment of the same shapes. Without a `seed`, episodes are those of the end of training.
    Objects that were given to `train` must be given again.
    """
    result = judge(run, episodes=episodes, seed=seed, env=env, agent=agent)
    keep(result)
    return result


def judge(
    run: str | Path, *, episodes: int = 100, seed: int | None = None, env: Any = None, agent: Agent | None = None
) -> Evaluation:
    """The same, writing nothing."""
    require_positive("episodes", episodes)
    folder = Path(run)
    config, _ = runs.read_agents(folder)
    first = config.seed if seed is None else seed
    if not 0 <= first <= MAX_SEED - config.seeds:
        raise DiscorlError(f"seed must lie between 0 and {MAX_SEED - config.seeds}, got {first}")
    _kept(folder)  # says so if the result could not be kept, before anything is played
    environment = envs.as_environment(config.env if env is None else env)
    if env is not None:
        _check_fit(folder, config, experiment.environment_of(environment, config).spec)
    player = play.load(folder, environment, agent)
    keys = programs.evaluation_keys(jnp.stack([jax.random.key(first + i) for i in range(config.seeds)]))
    played = evaluation.run_agents(player.env, player.network, player.params, keys, episodes=episodes)
    name = config.env if env is None else env if isinstance(env, str) else environment.spec.name
    greedy, sampled = (_judged(one, name) for one in played)
    return Evaluation(folder, config, name, episodes, first, greedy, sampled)


def keep(result: Evaluation) -> None:
    """Writes it beside the run; results on other environments stay."""
    entries = {**_kept(result.run), result.env: summary(result)}
    runs.write_text(result.run / runs.EVALUATION, json.dumps(entries, indent=1, allow_nan=False) + "\n")


def summary(result: Evaluation) -> dict[str, Any]:
    """For machines."""
    config = result.settings
    about = {
        "env": result.env,
        "trained_on": config.env,
        "rule": config.rule,
        "agents": config.seeds,
        "episodes": result.episodes,
        "seed": result.seed,
    }
    ways = {"greedy": result.greedy, "sampled": result.sampled}
    return runs.without_nan(about | {name: _plain(judged) for name, judged in ways.items()})


def _plain(judged: Judged) -> dict[str, Any]:
    lengths = judged.lengths
    return {
        **judged.score._asdict(),
        **({"human_normalised": judged.human._asdict()} if judged.human else {}),
        "length": {
            "mean": float(lengths.mean()),
            "median": float(np.median(lengths)),
            "least": int(lengths.min()),
            "greatest": int(lengths.max()),
        },
        "cut": judged.cut,
        "returns": judged.returns.tolist(),
        "lengths": lengths.tolist(),
    }


def _judged(played: evaluation.Episodes, env: str) -> Judged:
    returns, lengths = np.asarray(played.returns, np.float64), np.asarray(played.lengths)
    score = Score(float(returns.mean()), *evaluation.interval(returns), float(np.median(returns)))
    scores = yardstick(env)
    return Judged(
        returns=returns,
        lengths=lengths,
        cut=int((~np.asarray(played.finished)).sum()),
        score=score,
        human=Score(*map(scores.normalised, score)) if scores else None,  # linear, so the interval goes along
    )


def _kept(folder: Path) -> dict[str, Any]:
    """What earlier evaluations left, by environment."""
    path = folder / runs.EVALUATION
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DiscorlError(f"cannot read {path}: {error}; move it away to evaluate anew") from error
    if not isinstance(entries, dict):
        raise DiscorlError(f"{path} was not written by discorl; move it away to evaluate anew")
    return entries


def _check_fit(folder: Path, config: Settings, other: EnvSpec) -> None:
    try:
        own = experiment.environment_of(config.env, config).spec
    except DiscorlError:  # it was given as an object; parameters that do not fit are still refused
        return
    if _shapes(own) != _shapes(other):
        raise DiscorlError(
            f"the agents of {folder} know {own.num_actions} actions and see {_seen(own)}, but {other.name!r} has "
            f"{other.num_actions} and shows {_seen(other)}; evaluate them on an environment of the same shapes"
        )


def _shapes(spec: EnvSpec) -> tuple[Any, ...]:
    leaves, structure = jax.tree.flatten(spec.observation)
    return spec.num_actions, structure, [(leaf.shape, leaf.dtype) for leaf in leaves]


def _seen(spec: EnvSpec) -> str:
    return ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(spec.observation))
