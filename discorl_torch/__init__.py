from discorl_torch.agent import DiscoAgent as DiscoAgent
from discorl_torch.optim import ClippedAdam as ClippedAdam
from discorl_torch.rule import DiscoRule as DiscoRule
from discorl_torch.torsos import MLPTorso as MLPTorso
from discorl_torch.types import Rollout as Rollout
