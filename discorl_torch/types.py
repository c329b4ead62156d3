"""The records that travel between modules. No logic.

Axes, everywhere and in this order: T transitions, B trajectories side by side, A actions, Y size of the predictions y
and z, K bins of a categorical value, W numbers that an encoder makes of a prediction. `reward[t]` and `discount[t]` are
consequences of `action[t]`. Observations and what a network says of them have one row more than transitions: the last
one only bootstraps.
"""

from typing import Any, NamedTuple

from torch import Tensor

Tree = Any  # a tensor, or a tuple, list or dict of trees


class Rollout(NamedTuple):
    """What learning needs of acting: of the behaviour policy only its logits are kept."""

    obs: Tree  # [T+1, B, ...]
    first: Tensor  # [T+1, B] bool: obs[t] starts an episode
    action: Tensor  # [T, B] int64
    reward: Tensor  # [T, B] follows action[t]
    discount: Tensor  # [T, B] 0 where the episode ended after action[t], else 1
    behaviour_logits: Tensor  # [T, B, A]
    memory: Tree = ()  # [B, ...] the network's memory before obs[0]; () for feed-forward agents
    valid: Tensor | None = None  # [T, B] bool: False where no action was taken; None: everywhere
    rest: Tensor | tuple[()] = ()  # [T, B] value of what a clock kept from coming; () where its end counts as any other

    @property
    def earned(self) -> Tensor:
        """[T, B] what returns are made of; the rule itself looks at rewards as they were."""
        return self.reward if isinstance(self.rest, tuple) else self.reward + self.rest


class StateOutput(NamedTuple):
    """What a network says of a state: a policy, and a vector whose meaning the rule decides."""

    logits: Tensor  # [..., A]
    y: Tensor  # [..., Y]


class ActionOutput(NamedTuple):
    """What a network says of one action in a state."""

    z: Tensor  # [..., Y] a vector whose meaning the rule decides
    q: Tensor  # [..., K] categorical value
    aux_pi: Tensor | None  # [..., A] logits of the next state's policy; None where nobody asked


class Categorical(NamedTuple):
    """A distribution given by logits, and what is expensive to derive from them."""

    logits: Tensor  # [..., N]
    p: Tensor  # [..., N] softmax
    lse: Tensor  # [...] log Σ exp(logits)


class Said(NamedTuple):
    """All that an agent learns from. Only `logits` of each carries a gradient; everything has T+1 rows."""

    policy: Categorical  # [T+1, B, A]
    y: Categorical  # [T+1, B, Y]
    z: Categorical  # [T+1, B, Y] of the taken action; in the last row, where none was taken, of any
    q: Categorical  # [T+1, B, K]
    aux_pi: Categorical  # [T+1, B, A]


class Digest(NamedTuple):
    """All that the rule wants to know of an action's 1,201 outputs."""

    q: Tensor  # [..., A] value
    z_trajectory: Tensor  # [..., A, W] z through the encoder of the trajectory network
    z_lifetime: Tensor  # [..., A, W] z through the encoder of the lifetime network


class View(NamedTuple):
    """What one set of parameters says of a whole rollout. z and q of all actions are never kept."""

    policy: Tensor  # [T+1, B, A] logits
    y_trajectory: Tensor  # [T+1, B, W] y through the encoder of the trajectory network
    y_lifetime: Tensor  # [T+1, B, W] y through the encoder of the lifetime network
    actions: Digest  # [T+1, B, A, ...]


class Experience(NamedTuple):
    """A rollout seen by the agent's parameters and by its slowly moving target parameters."""

    rollout: Rollout
    online: View
    target: View


class Targets(NamedTuple):
    """What the agent's outputs should become, and the value of the taken action."""

    pi: Categorical  # [T, B, A]
    y: Categorical  # [T, B, Y]
    z: Categorical  # [T, B, Y]
    value: Tensor  # [T, B]


class LSTMState(NamedTuple):
    hidden: Tensor
    cell: Tensor


class Moments(NamedTuple):
    """Exponential averages of x and x²; `decay_product` corrects for their start at zero."""

    first: Tensor  # []
    second: Tensor  # []
    decay_product: Tensor  # []


class RuleState(NamedTuple):
    """The memory of one agent's lifetime."""

    lifetime: LSTMState
    advantage: Moments
    td: Moments
