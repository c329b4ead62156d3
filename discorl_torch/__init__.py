"""Discovered update rules for PyTorch: the same rule files and the same numbers as `discorl`, without JAX."""

from discorl_torch.agent import AgentNetwork as AgentNetwork
from discorl_torch.agent import DiscoAgent as DiscoAgent
from discorl_torch.optim import ClippedAdam as ClippedAdam
from discorl_torch.rollout import collect_rollout as collect_rollout
from discorl_torch.rule import DiscoRule as DiscoRule
from discorl_torch.torsos import ConvTorso as ConvTorso
from discorl_torch.torsos import MLPTorso as MLPTorso
from discorl_torch.torsos import RecurrentTorso as RecurrentTorso
from discorl_torch.trainer import DiscoTrainer as DiscoTrainer
from discorl_torch.types import Rollout as Rollout
