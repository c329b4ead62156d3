"""Everything one can tell a discovery run, and its presets. Knows no JAX."""

from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from discorl.errors import DiscorlError, near_matches
from discorl.options import check_numbers, option
from discorl.rule_config import DiscoConfig

_what, _count, _amount, _agent, _rule, _run = (
    partial(option, **options)
    for options in (
        {"group": "what"},
        {"group": "discovery", "least": "positive"},
        {"group": "discovery", "least": "zero"},
        {"group": "agents", "least": "positive"},
        {"group": "rule", "least": "positive"},
        {"group": "run", "least": "zero"},
    )
)
CHOICES = {
    "gradient": ("mixed", "reverse", "evolution"),
    "optimizer": ("agent", "single"),
    "clip": ("none", "norm", "element"),
    "alignment": ("correct", "reference"),
    "behaviour": ("current", "start"),
    "mask": ("reference", "all"),
    "activation": ("silu", "relu"),
}


@dataclass(frozen=True)
class DiscoverySettings:
    """What `discorl discover` can be told. The defaults are the preset `small`."""

    suite: str = _what("catch", "environments to discover on: a suite or a family of `discorl envs`")
    rule: str | None = _what(None, "rule to start from, by name or file; without one, from random weights")

    meta_steps: int = _count(2000, "meta-steps")
    agents: int = _count(4, "agents of each family of environments")
    at_once: int | None = _count(None, "agents computed side by side; the others wait their turn (default: all)")
    window: int = _count(3, "updates that a meta-gradient goes through")
    stride: int | None = _count(None, "updates from one window to the next; fewer: windows overlap (default: window)")
    gradient: str = _what("mixed", "how to differentiate: mixed, reverse or evolution")
    sigma: float = _count(0.02, "evolution: size of a perturbation")
    pairs: int = _count(4, "evolution: pairs of perturbations per agent")
    meta_learning_rate: float = _count(5e-3, "step size of the rule")
    meta_warmup: int = _amount(0, "meta-steps until that step size is reached")
    meta_decay: int | None = _amount(
        None, "meta-steps until it has decayed to zero; 0: it stays (default: all meta-steps)"
    )
    max_meta_update: float = _count(1.0, "bound on each number of the rule's Adam step")
    optimizer: str = _what("agent", "agent: one Adam per agent, steps averaged; single: one on the mean gradient")
    clip: str = _what("norm", "of each agent's meta-gradient: none, norm or element")
    clip_at: float = _count(1e-3, "where to clip it")
    validation_envs: int = _count(32, "fresh trajectories that judge an agent")
    validation_rollout: int = _count(16, "their steps")
    policy_entropy: float = _amount(3e-3, "weight of the policy's entropy")
    prediction_entropy: float = _amount(1e-3, "weight of the predictions' entropy")
    target_mean: float = _amount(1e-3, "weight that keeps targets centred")
    target_kl: float = _amount(2e-3, "weight that keeps the policy target close to the slow policy")
    value_hidden: tuple[int, ...] = _count((64, 64), "layers of the value function that judges")
    value_learning_rate: float = _count(3e-3, "its step size")
    value_discount: float = _amount(0.99, "its discount")
    value_trace_decay: float = _amount(0.95, "its λ")
    alignment: str = _what("correct", "rewards that judge an action: correct, or reference (as the released code)")

    envs: int = _agent(8, "environments of an agent")
    batch: int = _agent(16, "trajectories per update")
    rollout: int = _agent(16, "steps per trajectory")
    replay_size: int = _agent(256, "trajectories kept for replay")
    replay_share: float = _agent(0.5, "share of a batch that is replayed, 0 to 1", least="zero")
    behaviour: str = _what("current", "who acts within a window: current policy, or the one of its start")
    mask: str = _what("all", "steps that count: reference (not the first of an episode) or all")
    lifetimes: tuple[int, ...] = _agent((400,), "lengths of lives in updates, drawn as likely as they are short")
    learning_rates: tuple[float, ...] = _agent((1e-2, 1e-2), "least and greatest step size of agents, drawn at birth")
    hidden: tuple[int, ...] = _agent((64, 64), "widths of the torso's layers")
    model_width: int = _agent(32, "width of the action model")
    head_hidden: tuple[int, ...] = _agent((32,), "widths inside the heads of the action model")

    predictions: int = _rule(64, "size of the predictions y and z")
    value_bins: int = _rule(41, "bins of the value")
    max_value: float = _rule(20.0, "greatest value, in signed-hyperbolic space")
    trajectory_width: int = _rule(128, "width of the network along a trajectory")
    lifetime_width: int = _rule(64, "width of the network along a life")
    prediction_embedding: tuple[int, ...] = _rule((16, 1), "layers that shrink a prediction")
    action_channels: tuple[int, ...] = _rule((16, 8), "blocks that look at all actions")
    policy_channels: tuple[int, ...] = _rule((16,), "blocks that shape the policy target")
    lifetime_inputs: int = _rule(16, "inputs of the network along a life")
    activation: str = _what("silu", "of the blocks: silu or relu")
    discount: float = _rule(0.997, "discount of the rule", least="zero")
    trace_decay: float = _rule(0.95, "its λ", least="zero")
    entropy_cost: float = _rule(0.0, "weight of the policy's entropy in the loss of its agents", least="zero")
    init_heads: float = _rule(0.3, "scale of its heads at birth", least="zero")
    init_gate: float = _rule(1.0, "scale of its gate at birth", least="zero")
    init_gate_bias: float = _rule(1.0, "bias of its gate at birth; at 0 a rule teaches nothing at first", least="zero")

    seed: int = _run(0, "random seed")
    devices: int | None = _run(
        None, "devices that share the agents (default: the most that share them evenly)", least="positive"
    )
    log_every: int = _run(10, "meta-steps per row of metrics, and per compiled stretch", least="positive")
    checkpoint_every: int = _run(100, "meta-steps between checkpoints", least="positive")
    snapshot_every: int = _run(100, "meta-steps between snapshots of the rule", least="positive")
    run_dir: str | None = _run(None, "folder of the run, {n} becomes a free number; the command makes runs/SUITE-{n}")

    def __post_init__(self) -> None:
        check_numbers(self)
        for name, choices in CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise DiscorlError(f"{name} cannot be {value!r}; it is one of {', '.join(choices)}")
        if len(self.learning_rates) != 2 or self.learning_rates[0] > self.learning_rates[1]:
            raise DiscorlError(f"learning_rates are a least and a greatest, got {self.learning_rates}")
        if self.meta_decay and self.meta_decay < self.meta_steps:
            raise DiscorlError(
                f"the rule's step size is zero from meta-step {self.meta_decay} on (meta_decay), so {self.meta_steps} "
                "meta-steps would be wasted; start a new run from the rule that was found (--rule), or decay later"
            )
        for name in ("value_discount", "value_trace_decay", "discount", "trace_decay", "replay_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise DiscorlError(f"{name} must lie between 0 and 1, got {getattr(self, name)}")

    @property
    def rule_config(self) -> DiscoConfig:
        names = {f.name for f in fields(DiscoConfig)} & {f.name for f in fields(self)}
        return DiscoConfig(**{name: getattr(self, name) for name in names})


PUBLISHED: dict[str, Any] = {
    "predictions": 600,
    "value_bins": 601,
    "max_value": 300.0,
    "trajectory_width": 256,
    "lifetime_width": 128,
    "action_channels": (16, 2),
    "activation": "relu",
    "init_gate_bias": 0.0,
    "mask": "reference",
    "clip": "none",
    "policy_entropy": 1e-2,
    "target_kl": 1e-2,
    "value_hidden": (256, 256),
    "meta_decay": 0,
}
PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "small": ("a small rule on two cores in minutes", {}),
    "mini": (
        "how the bundled rule began: all discovery families, hours on two cores",
        {
            "suite": "small-worlds",
            "meta_steps": 2400,
            "agents": 3,
            "policy_entropy": 5e-3,
            "lifetimes": (150, 300, 600),
            "learning_rates": (3e-3, 1e-2),
            "snapshot_every": 50,
        },
    ),
    "notebook": (
        "the settings of the released notebook",
        PUBLISHED
        | {
            "suite": "catch",
            "meta_steps": 1000,
            "agents": 2,
            "window": 2,
            "rollout": 16,
            "envs": 32,
            "batch": 32,
            "replay_size": 32,
            "replay_share": 0.0,
            "validation_rollout": 32,
            "hidden": (512, 512),
            "model_width": 256,
            "head_hidden": (256,),
            "optimizer": "single",
            "meta_learning_rate": 5e-4,
            "value_learning_rate": 1e-3,
            "value_trace_decay": 0.96,
            "alignment": "reference",
            "behaviour": "start",
            "lifetimes": (10**9,),
        },
    ),
    "paper": (
        "the settings of the paper, for an accelerator pod (docs/discovery.md has the cost)",
        PUBLISHED
        | {
            "suite": "small-worlds",
            "meta_steps": 1_000_000,
            "agents": 16,
            "window": 20,
            "rollout": 29,
            "envs": 10,
            "batch": 96,
            "replay_share": 0.9,
            "replay_size": 4096,
            "validation_envs": 48,
            "validation_rollout": 29,
            "hidden": (512, 512),
            "model_width": 1024,
            "head_hidden": (1024,),
            "meta_learning_rate": 1e-3,
            "value_discount": 0.997,
            "value_learning_rate": 3e-4,
            "learning_rates": (3e-4, 3e-4),
            # 20, 50, 100 and 200 million steps of 290 an update
            "lifetimes": (68_966, 172_414, 344_828, 689_655),
            "checkpoint_every": 1000,
            "snapshot_every": 1000,
        },
    ),
}
# What may differ when a run goes on: none of these touches a number that discovery computes (devices: its last bits).
RESUMABLE = ("meta_steps", "devices", "checkpoint_every", "snapshot_every", "run_dir")


def preset(name: str) -> dict[str, Any]:
    if name not in PRESETS:
        raise DiscorlError(f"unknown preset {name!r}; {near_matches(name, PRESETS)}")
    return PRESETS[name][1]
