"""Environments as pure functions: the contract, batches of them, and a few small worlds."""

from discorl.envs import probes as probes
from discorl.envs import suites as suites
from discorl.envs.base import BatchedEnvironment as BatchedEnvironment
from discorl.envs.base import BatchState as BatchState
from discorl.envs.base import BatchStep as BatchStep
from discorl.envs.base import Environment as Environment
from discorl.envs.base import EnvSpec as EnvSpec
from discorl.envs.base import EpisodeEnd as EpisodeEnd
from discorl.envs.base import TimeStep as TimeStep
from discorl.envs.base import batch as batch
from discorl.envs.catch import catch as catch
from discorl.envs.compliance import check as check
from discorl.envs.host import HostEnvironment as HostEnvironment
from discorl.envs.host import HostStep as HostStep
from discorl.envs.host import HostVector as HostVector
from discorl.envs.names import as_environment as as_environment
from discorl.envs.names import listing as listing
from discorl.envs.names import make as make
from discorl.envs.spaces import require_discrete as require_discrete
from discorl.envs.stacking import stacked as stacked
from discorl.envs.t_maze import t_maze as t_maze
