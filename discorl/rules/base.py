"""The contract of an update rule, the same for learned and hand-written ones."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from jaxtyping import Array, Float, PyTree

from discorl.types import ActionOutput, Experience, Key, Needs, Observation, Rollout, StateOutput

Eta = PyTree
RuleState = PyTree
Targets = PyTree
Digest = PyTree
Info = Any  # NamedTuple of scalars, for people


class UpdateRule(NamedTuple):
    """Turns experience into targets for an agent, and says how far the agent is from them.

    Targets are computed outside the differentiated function and passed in, so training and discovery run the same
    code: whether η receives a gradient depends only on who differentiates.

    Outputs given to `loss` have T+1 rows. No action was taken in the last, where `ActionOutput` is of any: its row must
    not count.
    """

    name: str
    needs: Needs
    init: Callable[[Key], Eta]
    start: Callable[[Key, Observation], RuleState]  # memory of one agent's lifetime; `obs` is one example
    digest: Callable[[Eta, ActionOutput], Digest]  # all that `targets` may know of one action's output
    targets: Callable[[Eta, RuleState, Experience], tuple[Targets, RuleState, Info]]
    loss: Callable[[StateOutput, ActionOutput, Targets, Rollout], tuple[Float[Array, "T B"], Info]]
    # more scalars for people, dear enough to be asked for only now and then; None: there are none
    report: Callable[[StateOutput, ActionOutput, Targets], Info] | None = None
    # γ·v of the observations of an experience, to go on where a clock ended an episode; None: the rule has no values
    continuation: Callable[[Eta, RuleState, Experience], Float[Array, "T1 B"]] | None = None
    advice: Mapping[str, Any] = MappingProxyType({})  # training settings that suit it, by name
