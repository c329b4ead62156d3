"""Reinforcement-learning update rules that were discovered: use them, discover new ones, look inside them.

Names are loaded when they are asked for: `discorl --help`, rule files and the PyTorch front need no JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discorl import envs as envs
    from discorl import networks as networks
    from discorl.envs import Environment as Environment
    from discorl.errors import DiscorlError as DiscorlError
    from discorl.judging import evaluate as evaluate
    from discorl.learner import make_learner as make_learner
    from discorl.networks import AgentNetwork as AgentNetwork
    from discorl.networks import Torso as Torso
    from discorl.optim import Hypers as Hypers
    from discorl.results import TrainResult as TrainResult
    from discorl.rule_config import DiscoConfig as DiscoConfig
    from discorl.rules.actor_critic import actor_critic as actor_critic
    from discorl.rules.base import UpdateRule as UpdateRule
    from discorl.rules.disco import disco as disco
    from discorl.rules.library import load_rule as load_rule
    from discorl.rules.policy_gradient import policy_gradient as policy_gradient
    from discorl.settings import Settings as Settings
    from discorl.trainer import resume as resume
    from discorl.trainer import train as train
    from discorl.training import TrainConfig as TrainConfig
    from discorl.training import make_training as make_training
    from discorl.training import over_seeds as over_seeds

__version__ = "0.1.0"

_HOMES = {
    "AgentNetwork": "networks",
    "DiscoConfig": "rule_config",
    "DiscorlError": "errors",
    "Environment": "envs",
    "Hypers": "optim",
    "Settings": "settings",
    "Torso": "networks",
    "TrainConfig": "training",
    "TrainResult": "results",
    "UpdateRule": "rules.base",
    "actor_critic": "rules.actor_critic",
    "disco": "rules.disco",
    "evaluate": "judging",
    "load_rule": "rules.library",
    "make_learner": "learner",
    "make_training": "training",
    "over_seeds": "training",
    "policy_gradient": "rules.policy_gradient",
    "resume": "trainer",
    "train": "trainer",
}
_NAMES = sorted([*_HOMES, "envs", "networks"])


def __getattr__(name: str) -> Any:
    if name in ("envs", "networks"):
        return import_module(f"discorl.{name}")
    if name in _HOMES:
        return getattr(import_module(f"discorl.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'discorl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*_NAMES, "__version__"]
