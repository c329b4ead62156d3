"""The records that travel between modules. No logic.

Axes, everywhere and in this order:

    T  transitions of a rollout          Y  size of the predictions y and z
    B  trajectories side by side         K  bins of a categorical value
    A  actions                           N  inner updates in a meta-gradient window
                                         P  agents of a population

`reward[t]` and `discount[t]` are consequences of `action[t]`. Observations and what a network says of them have one
row more than transitions: the last one only bootstraps. NamedTuples hold arrays and cross `jit`;
frozen dataclasses are static.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtyping import Array, Bool, Float, Int, PyTree

Key = Any  # a typed key of jax.random.key; jaxtyping has no name for it that beartype can check under vmap
Params = PyTree
Memory = PyTree
Observation = PyTree


class Cuts(NamedTuple):
    """Where clocks ended episodes of a rollout, and what would have gone on: up to S times per trajectory.

    The row after such an end holds the next episode's first observation, so what the action led to is kept here, for
    its value to be counted as the rest of the return.
    """

    at: Int[Array, "S B"]  # the transition; T where there is none
    obs: Observation  # [S, B, ...]
    memory: Memory  # [S, B, ...] the network's memory before obs


class Rollout(NamedTuple):
    """What learning needs of acting: of the behaviour policy only its logits are kept."""

    obs: Observation  # [T+1, B, ...]
    first: Bool[Array, "T1 B"]  # obs[t] starts an episode
    action: Int[Array, "T B"]
    reward: Float[Array, "T B"]  # follows action[t]
    discount: Float[Array, "T B"]  # 0 where the episode ended after action[t], else 1
    behaviour_logits: Float[Array, "T B A"]
    memory: Memory  # [B, ...] the network's memory before obs[0]; () for feed-forward agents
    cuts: Cuts | tuple[()] = ()  # () where a clock's end counts as any other
    rest: Float[Array, "T B"] | tuple[()] = ()  # value of what a clock kept from coming, made when learning

    @property
    def earned(self) -> Float[Array, "T B"]:
        """What returns are made of."""
        return self.reward if isinstance(self.rest, tuple) else self.reward + self.rest


@dataclass(frozen=True)
class Needs:
    """What a rule asks of a network: the sizes of its outputs. Without `z` and `q` there is no action model."""

    y: int = 0
    z: int = 0
    q: int = 0
    target_keep: float | None = None  # share of the target parameters that stays at each update; None: there are none

    @property
    def model(self) -> bool:
        return self.z > 0 or self.q > 0


class StateOutput(NamedTuple):
    """What a network says of a state: a policy, and a vector whose meaning the rule decides."""

    logits: Float[Array, "*S A"]
    y: Float[Array, "*S Y"]


class ActionOutput(NamedTuple):
    """What a network says of one action in a state."""

    z: Float[Array, "*S Y"]  # a vector whose meaning the rule decides
    q: Float[Array, "*S K"]  # categorical value
    aux_pi: Float[Array, "*S A"]  # logits of the next state's policy


class View(NamedTuple):
    """What one set of parameters says of a whole rollout, as far as a rule wants to know.

    `actions` is the rule's own digest of every action's output: z and q of all actions are never kept, with 18
    actions they would be the largest arrays of the program.
    """

    logits: Float[Array, "T1 B A"]
    y: Float[Array, "T1 B Y"]
    actions: PyTree[Array]  # [T+1, B, A, ...]


class Experience(NamedTuple):
    """A rollout seen by the agent's parameters and by its slowly moving target parameters."""

    rollout: Rollout
    online: View
    target: View
