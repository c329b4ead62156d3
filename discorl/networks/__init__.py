"""Agents' networks: bring a torso and get the heads a rule needs, or bring everything."""

from discorl.networks.assembly import assemble as assemble
from discorl.networks.base import AgentNetwork as AgentNetwork
from discorl.networks.base import Statistics as Statistics
from discorl.networks.base import Torso as Torso
from discorl.networks.base import check_network as check_network
from discorl.networks.base import feed_forward as feed_forward
from discorl.networks.encoders import encoders as encoders
from discorl.networks.encoders import one_hot as one_hot
from discorl.networks.flat import flat as flat
from discorl.networks.impala import impala_torso as impala_torso
from discorl.networks.masked import has_mask as has_mask
from discorl.networks.masked import masked as masked
from discorl.networks.mlp import mlp as mlp
from discorl.networks.mlp import mlp_torso as mlp_torso
from discorl.networks.normalise import normalised as normalised
from discorl.networks.recurrent import recurrent as recurrent
