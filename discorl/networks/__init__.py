"""Agents' networks: bring a torso and get the heads a rule needs, or bring everything."""

from discorl.networks.assembly import assemble as assemble
from discorl.networks.base import AgentNetwork as AgentNetwork
from discorl.networks.base import Torso as Torso
from discorl.networks.base import check_network as check_network
from discorl.networks.base import feed_forward as feed_forward
from discorl.networks.mlp import mlp as mlp
from discorl.networks.mlp import mlp_torso as mlp_torso
