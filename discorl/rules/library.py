"""Rules by name: the ones written here, the ones in files."""

from collections.abc import Callable
from typing import NamedTuple

from discorl import rule_files
from discorl.rules.actor_critic import actor_critic
from discorl.rules.base import Eta, UpdateRule
from discorl.rules.disco import disco
from discorl.rules.meta_network import from_arrays
from discorl.rules.policy_gradient import policy_gradient

WRITTEN: dict[str, tuple[Callable[[], UpdateRule], str]] = {
    "actor_critic": (actor_critic, "actor-critic with V-trace, written by hand"),
    "policy_gradient": (policy_gradient, "policy gradient with a value function of its own, written by hand"),
}


class LoadedRule(NamedTuple):
    rule: UpdateRule
    eta: Eta  # () for rules without weights


def load_rule(rule: str | LoadedRule) -> LoadedRule:
    """A rule by its name (see `listing`) or by the path of its file."""
    if isinstance(rule, LoadedRule):
        return rule
    if rule in WRITTEN:
        return LoadedRule(rule=WRITTEN[rule][0](), eta=())
    file = rule_files.load(rule_files.find(rule, also=WRITTEN))
    return LoadedRule(rule=disco(file.config, name=rule), eta=from_arrays(file.arrays, file.config))


def listing() -> list[tuple[str, str]]:
    """(name, what it is) of every rule there is."""
    discovered = [(name, f"{what}; {where}") for name, where, what in rule_files.known()]
    return discovered + [(name, what) for name, (_, what) in WRITTEN.items()]
