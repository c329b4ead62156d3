"""Rules by name: the ones written here, the ones in files."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from discorl import options, rule_files, rule_numbers
from discorl.rules.actor_critic import ActorCriticConfig, actor_critic
from discorl.rules.base import Eta, UpdateRule
from discorl.rules.disco import disco
from discorl.rules.meta_network import from_arrays
from discorl.rules.policy_gradient import PolicyGradientConfig, policy_gradient
from discorl.rules.value_function import ValueFunctionConfig


class WrittenRule(NamedTuple):
    make: Callable[..., UpdateRule]
    configs: tuple[type, ...]  # of its numbers, in the order of its arguments
    text: str


WRITTEN = {
    "actor_critic": WrittenRule(
        actor_critic, (ActorCriticConfig,), "actor-critic with V-trace, written by hand; actor_critic:entropy_cost=0.05"
    ),
    "policy_gradient": WrittenRule(
        policy_gradient,
        (PolicyGradientConfig, ValueFunctionConfig),
        "policy gradient with a value function of its own, written by hand",
    ),
}

# What a rule was discovered with is how it is used, unless one says otherwise.
DISCOVERED_WITH = ("envs", "batch", "rollout", "replay_size", "replay_share", "mask", "model_width")
LAYERS = ("hidden", "head_hidden")


class LoadedRule(NamedTuple):
    rule: UpdateRule
    eta: Eta  # () for rules without weights


def load_rule(rule: str | LoadedRule) -> LoadedRule:
    """A rule by its name (see `listing`) or by the path of its file.

    After a colon, it takes numbers of its own: `actor_critic:entropy_cost=0.01,discount=0.99`.
    """
    if isinstance(rule, LoadedRule):
        return rule
    name, numbers = rule_numbers.split(rule)
    if name in WRITTEN:
        return LoadedRule(rule=_written(name, numbers), eta=())
    file = rule_files.named(rule, also=WRITTEN)
    made = disco(file.config, name=name)._replace(advice=advice(file.provenance))
    return LoadedRule(rule=made, eta=from_arrays(file.arrays, file.config))


def _written(name: str, numbers: str) -> UpdateRule:
    how = WRITTEN[name]
    known = [option for config in how.configs for option in options.names(config)]
    given = rule_numbers.parse(name, numbers, known)
    return how.make(
        *(
            options.make(config, {n: x for n, x in given.items() if n in options.names(config)})
            for config in how.configs
        )
    )


def advice(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Training settings that suit a rule: those of its discovery, and those found better since (`training`)."""
    since = provenance.get("training")
    return _discovered_with(provenance.get("settings")) | _plain(since, (*DISCOVERED_WITH, "learning_rate"))


def _plain(known: Any, names: Iterable[str]) -> dict[str, Any]:
    """Of a record that anybody may have written, the entries that can be settings."""
    if not isinstance(known, dict):
        return {}
    return {name: known[name] for name in names if isinstance(known.get(name), (int, float, str))}


def _discovered_with(known: Any) -> dict[str, Any]:
    """Agents learnt at one rate, or at several."""
    found = _plain(known, DISCOVERED_WITH)
    if not isinstance(known, dict):
        return found
    for name in LAYERS:
        if isinstance(widths := known.get(name), (list, tuple)) and all(isinstance(x, int) for x in widths):
            found[name] = tuple(widths)
    rates = known.get("learning_rates")
    if isinstance(rates, list) and len(rates) == 2 and all(isinstance(x, float) and x > 0 for x in rates):
        found["learning_rate"] = max(rates)  # agents learn sooner with it than with the mean, and no worse
    return found


def listing() -> list[tuple[str, str]]:
    """(name, what it is) of every rule there is."""
    discovered = [(name, f"{what}; {where}") for name, where, what in rule_files.known()]
    return discovered + [(name, written.text) for name, written in WRITTEN.items()]
