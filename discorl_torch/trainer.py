"""Everything between "I have an agent and an environment" and "it learns": replay, updates, logs, checkpoints."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, get_args

import torch
from torch import Tensor, nn

from discorl.errors import DiscorlError, near_matches, require_positive
from discorl_torch.learner import Learner, Mask
from discorl_torch.optim import ClippedAdam
from discorl_torch.own_network import as_network, check_network
from discorl_torch.replay import Replay
from discorl_torch.rollout import as_rollout, check_rollout
from discorl_torch.rule import DiscoRule
from discorl_torch.trees import tree_map
from discorl_torch.types import LSTMState, Moments, Rollout, RuleState, Tree


@dataclass(frozen=True)
class TrainerSettings:
    """How an agent is trained; the rule itself has its own constants (`DiscoConfig`)."""

    lr: float = 3e-4
    max_update: float = 1.0  # each element of Adam's step is clipped to ±this before the learning rate
    weight_decay: float = 0.0
    batch_size: int = 64  # trajectories per update
    replay_capacity: int = 1024  # trajectories
    min_replay: int | None = None  # trajectories before the first update; None: batch_size
    replay_ratio: int = 1  # updates per rollout
    replay_device: str | None = None  # None: the agent's
    mask: Mask = "reference"
    seed: int = 0  # of sampling from the replay

    def __post_init__(self) -> None:
        for name in ("lr", "max_update", "batch_size", "replay_capacity", "replay_ratio"):
            require_positive(name, getattr(self, name))
        if self.mask not in get_args(Mask):
            raise DiscorlError(f"there is no mask {self.mask!r}; {near_matches(self.mask, get_args(Mask))}")


RENAMED = {"weights_path": "rule", "max_grad_value": "max_update", "hyper_params": "the config of a rule file"}


class DiscoTrainer:
    """Trains `agent` by a discovered rule.

        trainer = DiscoTrainer(agent, "disco103", lr=1e-2)
        rollout, obs, state = collect_rollout(agent, env, obs, state, rollout_len=29)
        logs = trainer.step(rollout)

    `agent` is a `DiscoAgent` or a network of one's own (`own_network`); `rule` a `DiscoRule`, the name of one or the
    path of a rule file; the keywords are those of `TrainerSettings`. A network of one's own is checked here if
    `example_obs` (one observation) is given, else with the first rollout.
    """

    def __init__(
        self,
        agent: nn.Module,
        rule: DiscoRule | str | os.PathLike[str] | None = None,
        *,
        device: torch.device | str | None = None,
        example_obs: Tree = None,
        **settings: Any,
    ):
        self.settings = _settings(settings)
        if not any(True for _ in agent.parameters()):
            raise DiscorlError(f"{type(agent).__name__} has no parameters, so there is nothing to train")
        self.agent = agent if device is None else agent.to(device)
        self.rule = (rule if isinstance(rule, DiscoRule) else DiscoRule.from_file(rule)).to(self.device)
        network = as_network(self.agent)
        assert isinstance(network, nn.Module)
        optimizer = ClippedAdam(
            self.agent.parameters(),
            lr=self.settings.lr,
            max_update=self.settings.max_update,
            weight_decay=self.settings.weight_decay,
        )
        self.learner = Learner(network, self.rule, optimizer, mask=self.settings.mask)
        self.replay = Replay(self.settings.replay_capacity, device=self.settings.replay_device, seed=self.settings.seed)
        self.rule_name = rule_fingerprint(self.rule)
        self.updates = self.rollouts = 0
        self.num_actions: int | None = None
        example_obs = getattr(network, "example_obs", example_obs) if example_obs is None else example_obs
        if example_obs is not None:
            example = tree_map(lambda x: torch.as_tensor(x, device=self.device).expand(2, 3, *x.shape), example_obs)
            self.num_actions = check_network(self.learner.network, self.rule.config, example)

    @property
    def device(self) -> torch.device:
        return next((p.device for p in self.agent.parameters()), torch.device("cpu"))

    @property
    def optimizer(self) -> ClippedAdam:
        """For learning-rate schedules."""
        return self.learner.optimizer

    def step(self, rollout: Rollout | Mapping[str, Any]) -> dict[str, float]:
        """Keeps the rollout and, once there are enough, learns from a sample of all that are kept."""
        rollout = as_rollout(rollout)
        check_rollout(rollout)
        if self.num_actions is None:
            example = tree_map(lambda x: x[:2].to(self.device), rollout.obs)
            self.num_actions = check_network(self.learner.network, self.rule.config, example)
        if rollout.behaviour_logits.shape[-1] != self.num_actions:
            got = rollout.behaviour_logits.shape[-1]
            raise DiscorlError(f"the rollout has {got} actions, but the agent has {self.num_actions}")
        self.replay.add(rollout)
        self.rollouts += 1
        logs: dict[str, float] = {}
        enough = self.settings.min_replay or self.settings.batch_size
        if len(self.replay) >= enough:
            for _ in range(self.settings.replay_ratio):
                logs = self.update(self.replay.sample(self.settings.batch_size, self.device))
        return logs | {"updates": self.updates, "rollouts": self.rollouts, "replay_size": len(self.replay)}

    def update(self, batch: Rollout) -> dict[str, float]:
        """One update on exactly these trajectories, for those who keep their own replay, or none."""
        logs = self.learner.update(batch)
        self.updates += 1
        return dict(zip(logs, torch.stack(list(logs.values())).tolist(), strict=True))

    def future_value(self, obs: Tree, memory: Tree = ()) -> Tensor:
        """γ·V of observations [B, ...]: what an episode that was cut short there would still have been worth."""
        return self.rule.config.discount * self.learner.value(obs, memory)

    def to(self, device: torch.device | str) -> "DiscoTrainer":
        """Everything but a replay that was given its own device."""
        self.learner.to(device)
        if self.settings.replay_device is None:
            self.replay.to(device)
        return self

    def state_dict(self) -> dict[str, Any]:
        """All that going on needs, as tensors and plain data: `torch.load(..., weights_only=True)` reads it."""
        learner = self.learner
        return {
            "rule": self.rule_name,
            "agent": self.agent.state_dict(),
            "target_agent": learner.target_agent.state_dict(),
            "optimizer": learner.optimizer.state_dict(),
            "rule_state": {name: tuple(part) for name, part in learner.rule_state._asdict().items()},
            "replay": self.replay.state_dict(),
            "updates": self.updates,
            "rollouts": self.rollouts,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if missing := [key for key in self.state_dict() if key not in state]:
            raise DiscorlError(f"this is no state of a DiscoTrainer: it has no {missing[0]!r}")
        if state["rule"] != self.rule_name:
            raise DiscorlError(
                f"this state was saved with the rule {state['rule']}, but this trainer has {self.rule_name}"
            )
        for name, module in (("agent", self.agent), ("target_agent", self.learner.target_agent)):
            _same_shapes(module.state_dict(), state[name])
            module.load_state_dict(state[name])
        self.replay.load_state_dict(state["replay"])
        self.learner.optimizer.load_state_dict(state["optimizer"])
        parts = {name: tuple(x.to(self.device) for x in part) for name, part in state["rule_state"].items()}
        self.learner.rule_state = RuleState(
            lifetime=LSTMState(*parts["lifetime"]), advantage=Moments(*parts["advantage"]), td=Moments(*parts["td"])
        )
        self.updates, self.rollouts = state["updates"], state["rollouts"]


def rule_fingerprint(rule: DiscoRule) -> str:
    """Name and a short checksum of the weights: two rules of one name may differ."""
    digest = hashlib.sha256(repr(rule.config).encode())
    for name, value in sorted(rule.weights.items()):
        digest.update(name.encode() + value.detach().cpu().numpy().tobytes())
    return f"{rule.name} ({digest.hexdigest()[:12]})"


def _settings(given: dict[str, Any]) -> TrainerSettings:
    known = [f.name for f in fields(TrainerSettings)]
    for name in given:
        if name in RENAMED:
            raise DiscorlError(f"DiscoTrainer has no setting {name!r}; here it is called {RENAMED[name]}")
        if name not in known:
            raise DiscorlError(f"DiscoTrainer has no setting {name!r}; {near_matches(name, known)}")
    return TrainerSettings(**given)


def _same_shapes(ours: dict[str, Tensor], saved: dict[str, Tensor]) -> None:
    for name in sorted({*ours, *saved}):
        sides = [list(x[name].shape) if name in x else "nothing" for x in (saved, ours)]
        if sides[0] != sides[1]:
            raise DiscorlError(
                f"this state was saved for another agent: {name} is {sides[0]} there and {sides[1]} in this one"
            )
