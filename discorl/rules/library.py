"""Rules by name: the ones written here, the ones in files."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

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


# What a rule was discovered with is how it is used, unless one says otherwise.
DISCOVERED_WITH = ("envs", "batch", "rollout", "replay_size", "replay_share", "mask", "model_width")
LAYERS = ("hidden", "head_hidden")


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
    made = disco(file.config, name=rule)._replace(advice=advice(file.provenance))
    return LoadedRule(rule=made, eta=from_arrays(file.arrays, file.config))


def advice(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Training settings from the record of how a rule was discovered; agents learnt at one or at several rates."""
    known = provenance.get("settings")
    if not isinstance(known, dict):
        return {}
    found = {name: known[name] for name in DISCOVERED_WITH if isinstance(known.get(name), (int, float, str))}
    for name in LAYERS:
        if isinstance(widths := known.get(name), (list, tuple)) and all(isinstance(x, int) for x in widths):
            found[name] = tuple(widths)
    rates = known.get("learning_rates")
    if isinstance(rates, list) and len(rates) == 2 and all(isinstance(x, float) and x > 0 for x in rates):
        found["learning_rate"] = max(rates)  # disco-mini learns sooner with it than with the mean, and no worse
    return found


def listing() -> list[tuple[str, str]]:
    """(name, what it is) of every rule there is."""
    discovered = [(name, f"{what}; {where}") for name, where, what in rule_files.known()]
    return discovered + [(name, what) for name, (_, what) in WRITTEN.items()]
