"""Everything one can tell a training run: defaults, TOML files, mistakes. Knows no JAX, so that `--help` is quick."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from discorl import options, rule_numbers
from discorl.errors import DiscorlError, near_matches
from discorl.options import check_numbers, option

# The numbers behind every setting that is left open (None). Those of discovered rules were chosen by measuring
# Disco103 on Catch (docs/catch.md); rules written by hand have their own.
DEFAULTS: dict[str, Any] = {
    "updates": 1000,
    "envs": 2,
    "batch": 64,
    "rollout": 28,
    "replay_size": 1024,
    "replay_share": 1.0,
    "learning_rate": 1e-2,
    "warmup_updates": 0,
    "decay_updates": 0,
    "weight_decay": 0.0,
    "max_update": 1.0,
    "mask": "reference",
    "log_every": 10,
}
RULE_DEFAULTS: dict[str, dict[str, Any]] = {
    "actor_critic": {"envs": 16, "learning_rate": 5e-4, "log_every": 50},
    "policy_gradient": {"envs": 16, "learning_rate": 5e-4, "log_every": 50},
}
# What `--agent` may say, and the sizes behind settings left open. () and 0: the agent has no such part.
AGENT_DEFAULTS: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": (512, 512)},
    "lstm": {"hidden": (256,), "memory_width": 256},
    "gru": {"hidden": (256,), "memory_width": 256},
    "encoders": {"hidden": (256,), "channels": (16, 32, 32)},
    "impala-small": {"hidden": (256,), "channels": (16, 32, 32), "fold": 2},
    "impala-lstm": {"hidden": (256,), "channels": (16, 32, 32), "fold": 2, "memory_width": 256},
    "impala-paper": {
        "hidden": (768,),
        "channels": (256, 384, 384, 256),
        "model_width": 1024,
        "head_hidden": (1024,),
    },
}
SIZE_DEFAULTS: dict[str, Any] = {
    "channels": (),
    "fold": 1,
    "memory_width": 0,
    "model_width": 128,
    "head_hidden": (128,),
}
SIZES = ("hidden", *SIZE_DEFAULTS)
MAX_SEED = 2**31
TRUNCATIONS = ("bootstrap", "reference")


_what, _count, _amount, _agent, _run, _choice = (
    partial(option, **kind)
    for kind in (
        {"group": "what"},
        {"group": "training", "least": "positive"},
        {"group": "training", "least": "zero"},
        {"group": "agent", "least": "positive"},
        {"group": "run", "least": "zero"},
        {"group": "training"},
    )
)


@dataclass(frozen=True)
class Settings:
    """What `discorl train` can be told. None leaves a choice to the rule's defaults."""

    env: str = _what("catch", "environment, see `discorl envs`")
    rule: str | None = _what(None, "update rule: a name of `discorl rules` or a rule file")
    agent: str = _what("mlp", f"agent network: {', '.join(AGENT_DEFAULTS)}")
    updates: int | None = _count(None, "learning updates")
    steps: int | None = _count(None, "environment steps, instead of updates")
    envs: int | None = _count(None, "environments side by side")
    batch: int | None = _count(None, "trajectories per update")
    rollout: int | None = _count(None, "steps per trajectory")
    replay_size: int | None = _count(None, "trajectories kept for replay")
    replay_share: float | None = _amount(None, "share of a batch that is replayed, 0 to 1")
    updates_per_rollout: int = _count(
        1, "updates after each rollout; with more than one, replay_share must be 1 or near"
    )
    learning_rate: float | None = _count(None, "step size")
    warmup_updates: int | None = _amount(None, "updates until the step size is reached")
    decay_updates: int | None = _amount(None, "updates until the step size has decayed to zero; 0: it stays")
    weight_decay: float | None = _amount(None, "decoupled weight decay")
    max_update: float | None = _count(None, "bound on each number of Adam's step")
    mask: str | None = _choice(None, "steps that count: reference (not the first of an episode) or all")
    burn_in: int = _amount(0, "steps of a trajectory that only warm up the memory of a recurrent agent")
    truncation: str = _choice(
        "bootstrap", "where a clock ends an episode: bootstrap (its value goes on) or reference (as any other end)"
    )
    discount: float | None = _count(
        None, "discount of what comes later; left out, or said with the rule: the rule's own"
    )
    frame_stack: int = _count(1, "observations that are seen at once, the newest last")
    lag: int = _amount(1, "rollouts that acting may lag behind where Python steps the environment; 0: they take turns")
    groups: int = _amount(0, "groups of environments that take turns where Python steps them; 0: 1 on CPU, else 2")
    hidden: tuple[int, ...] | None = _agent(None, "widths of the torso's layers, behind the convolutions if it has any")
    channels: tuple[int, ...] | None = _agent(None, "channels of each section of convolutions")
    fold: int | None = _agent(None, "side of the squares of pixels that become channels before the convolutions")
    memory_width: int | None = _agent(None, "width of the recurrent core", least="zero")
    model_width: int | None = _agent(None, "width of the action model")
    head_hidden: tuple[int, ...] | None = _agent(None, "widths inside the heads of the action model")
    normalise: bool = _agent(False, "bring vectors to mean 0 and deviation 1, by what was seen so far", least="")
    seed: int = _run(0, "random seed of the first agent")
    seeds: int = _run(1, "agents trained at once, on seeds that count up from --seed", least="positive")
    eval_episodes: int = _run(100, "episodes to evaluate each agent on at the end; 0: none")
    log_every: int | None = _run(None, "updates per row of metrics, and per compiled stretch", least="positive")
    checkpoint_every: int = _run(500, "updates between checkpoints; 0: only at the end")
    run_dir: str | None = _run(
        None, "folder of the run, {n} becomes a free number; the command makes runs/ENV-RULE-{n}"
    )

    def __post_init__(self) -> None:
        _check(self)

    @property
    def rule_label(self) -> str:
        """The rule's name for titles and folders; of a file only what people call it."""
        name, numbers = rule_numbers.split(self.rule or "default")
        return rule_numbers.join(Path(name).stem if name.endswith(".npz") else name, numbers)


NAMES = options.names(Settings)
# What may differ when a run goes on: none of these touches a number that training computes.
RESUMABLE = ("updates", "steps", "eval_episodes", "checkpoint_every", "run_dir")


def make(values: Mapping[str, Any], source: str = "") -> Settings:
    """Settings from names and values; None counts as not given."""
    return options.make(Settings, values, source)


def resolve(settings: Settings, rule: str, advice: Mapping[str, Any] | None = None) -> Settings:
    """Fills what was left open with the defaults of rule and agent; `advice` is what the rule's own file says."""
    agent = AGENT_DEFAULTS.get(settings.agent, AGENT_DEFAULTS["mlp"])  # of a network of one's own they mean nothing
    own = {**DEFAULTS, **RULE_DEFAULTS.get(rule, {}), **SIZE_DEFAULTS, **agent}
    # a rule's record is about an MLP; the sizes of other agents are their own
    own |= {name: x for name, x in (advice or {}).items() if settings.agent == "mlp" or name not in SIZES}
    if settings.steps is not None:
        del own["updates"]
    # left open, a replay holds at least the rollout that one asks for
    own["replay_size"] = max(own["replay_size"], settings.envs or own["envs"])
    return replace(settings, **{name: value for name, value in own.items() if getattr(settings, name) is None})


def read(path: str | Path) -> dict[str, Any]:
    """Names and values of a TOML file, unchecked: `make` checks them together with what overrides them."""
    return options.read(Settings, path)


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Later layers win; `updates` and `steps` are two ways to say one thing, so giving one takes back the other."""
    merged: dict[str, Any] = {}
    for layer in layers:
        given = {name: value for name, value in layer.items() if value is not None}
        if "updates" in given or "steps" in given:
            merged = {name: value for name, value in merged.items() if name not in ("updates", "steps")}
        merged |= given
    return merged


def differences(old: Settings, new: Settings) -> list[str]:
    """What forbids `new` to go on from `old`, as 'name: old -> new'."""
    return options.differences(old, new, RESUMABLE)


def _check(settings: Settings) -> None:
    check_numbers(settings)
    if settings.hidden == ():
        raise DiscorlError("hidden must name at least one layer, for example 512,512")
    if settings.updates is not None and settings.steps is not None:
        raise DiscorlError("give updates or steps, not both: each fixes the length of training")
    if settings.replay_share is not None and settings.replay_share > 1:
        raise DiscorlError(f"replay_share must lie between 0 and 1, got {settings.replay_share}")
    if settings.discount is not None and settings.discount > 1:
        raise DiscorlError(f"discount must lie between 0 and 1, got {settings.discount}")
    if settings.truncation not in TRUNCATIONS:
        known = near_matches(settings.truncation, TRUNCATIONS)
        raise DiscorlError(f"unknown truncation {settings.truncation!r}; {known}")
    if settings.seed + settings.seeds > MAX_SEED:
        raise DiscorlError(f"seed must be below {MAX_SEED}, got {settings.seed}")
