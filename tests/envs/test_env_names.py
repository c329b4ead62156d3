"""Names, modules and objects become environments, or one clear sentence."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from discorl.envs import EnvSpec, as_environment, batch, catch, listing, make, probes, suites
from discorl.errors import DiscorlError

MODULE = """
import jax.numpy as jnp
from discorl.envs import catch, require_discrete
from discorl.envs.probes import constant

ready = constant()
broken = ready._replace(reset=lambda key: jnp.int32(0))
endless_reward = ready._replace(
    step=lambda key, state, action: (lambda s, t: (s, t._replace(reward=t.reward / 0)))(*ready.step(key, state, action))
)
number = 3
name = "my_worlds:name"

def fails():
    raise RuntimeError("no luck")

class Worlds:
    tiny = ready
"""


@pytest.fixture
def my_worlds(tmp_path, monkeypatch):
    (tmp_path / "my_worlds.py").write_text(MODULE)
    (tmp_path / "needs_more.py").write_text("import a_library_nobody_has\n")
    (tmp_path / "misspelt.py").write_text("x = 1 +\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "my_worlds"
    for module in ("my_worlds", "needs_more", "misspelt"):
        sys.modules.pop(module, None)


def test_every_listed_name_can_be_made_and_has_one_line():
    rows = listing()
    assert len({name for name, _ in rows}) == len(rows)
    assert all(description and "\n" not in description for _, description in rows)
    plain = [name for name, _ in rows if ":" not in name]
    probe_names = [f"probe/{x}" for x in ("constant", "observation", "delayed", "action", "both", "memory", "clock")]
    assert plain == ["catch", "cartpole", "t-maze", *probe_names, *suites.FAMILIES]
    assert [make(name).spec.name for name in plain] == plain
    families = [
        "catch:ROWSxCOLUMNS",
        "t-maze:STEPS",
        "atari:GAME",
        "craftax:classic",
        "crafter:reward",
        "envpool:ID",
        "gymnasium:ID",
        "gymnax:ID",
        "jumanji:ID",
        "minatar:GAME",
        "pgx:ID",
        "procgen:GAME",
        "xminigrid:ID",
    ]
    assert [name for name, _ in rows if ":" in name] == [*families, "FAMILY:NUMBER", "MODULE:ATTRIBUTE"]


@pytest.mark.parametrize(
    "name, shape", [("catch", (8, 8)), ("catch:5x5", (5, 5)), ("catch:8x3", (8, 3)), ("catch:3x11", (3, 11))]
)
def test_catch_of_any_size_and_its_name_leads_back_to_it(name, shape):
    env = make(name)
    assert env.spec.observation.shape == shape
    assert env.spec == catch(*shape).spec == make(env.spec.name).spec
    assert make("catch:8x8").spec.name == "catch"


@pytest.mark.parametrize(
    "name, message",
    [
        ("cach", "unknown environment 'cach'; did you mean 'catch' or 'catch/"),
        ("probe/actoin", "did you mean 'probe/action'"),
        ("", "unknown environment ''; known: bandit/contextual, cartpole, catch, "),
        ("grid/key", "did you mean 'grid/keys'"),
        ("grid/keys:", "'grid/keys:' gives no task; write grid/keys:NUMBER, for example grid/keys:7"),
        ("grid/keys:seven", "'grid/keys:seven' gives no task"),
        ("grid/keys:-1", "'grid/keys:-1' gives no task"),
        ("grid/keys:99999999999", "tasks are numbered from 0 to 4294967295"),
        ("nowhere.to_be:found", "unknown environment 'nowhere.to_be:found', and there is no module 'nowhere.to_be'"),
        ("discorl.no_such_part:x", "there is no module 'discorl.no_such_part'"),
        ("craftx:classic", "and there is no module 'craftx'; did you mean 'craftax:classic'?"),
        ("jumanjy:Snake-v1", "and there is no module 'jumanjy'; did you mean 'jumanji:Snake-v1'?"),
        ("a path/x.py:env", "unknown environment 'a path/x.py:env'; "),
        ("catch:", "'catch:' gives no board size; write catch:ROWSxCOLUMNS"),
        ("catch:5", "'catch:5' gives no board size; write catch:ROWSxCOLUMNS"),
        ("catch:-5x5", "gives no board size"),
        ("catch:1x5", "at least 2 rows and 1 column, got 1x5"),
    ],
)
def test_unknown_names_are_refused_with_the_way_out(name, message):
    with pytest.raises(DiscorlError) as caught:
        as_environment(name)
    assert message in str(caught.value)


@pytest.mark.parametrize("attribute", ["ready", "constant", "Worlds.tiny"])
def test_an_environment_of_a_module(my_worlds, attribute):
    assert make(f"{my_worlds}:{attribute}").spec == probes.constant().spec


@pytest.mark.parametrize(
    "name, message",
    [
        ("my_worlds:raedy", "module 'my_worlds' has no attribute 'raedy'; did you mean 'ready'?"),
        ("my_worlds:number", "my_worlds:number is of class int, not a discorl.envs.Environment"),
        ("my_worlds:name", "my_worlds:name is of class str, not a discorl.envs.Environment"),
        ("my_worlds:fails", "calling my_worlds:fails raised RuntimeError: no luck"),
        ("my_worlds:require_discrete", "calling my_worlds:require_discrete raised TypeError"),
        ("my_worlds:broken", "environment 'probe/constant': reset must return (state, obs)"),
        ("my_worlds:endless_reward", "reward must be finite"),
        ("needs_more:env", "importing 'needs_more' raised ModuleNotFoundError: No module named 'a_library_nobody_has'"),
        ("misspelt:env", "importing 'misspelt' raised SyntaxError"),
    ],
)
def test_what_is_wrong_with_a_module_is_said(my_worlds, name, message):
    with pytest.raises(DiscorlError) as caught:
        make(name)
    assert message in str(caught.value)


def test_objects_and_functions_become_environments():
    env = catch(4, 4)
    assert as_environment(env) is env
    assert as_environment(catch).spec == as_environment("catch").spec == catch().spec


class CartPole(SimpleNamespace):
    pass


@pytest.mark.parametrize(
    "thing, message",
    [
        (None, "the environment that was given is of class NoneType, not a discorl.envs.Environment"),
        (lambda: 3, "what the environment that was given returned is of class int"),
        (batch(catch(), 2), "is a batch already; give the single environment"),
        (CartPole(action_space=lambda params: 3), "is of class CartPole, not a discorl.envs.Environment"),
        (
            CartPole(action_space=SimpleNamespace(n=2)),
            "(class CartPole) has an action space, but it is no environment of Gymnasium's",
        ),
        (CartPole(action_space=SimpleNamespace(nvec=[2, 2])), "(class CartPole) has a multi-dimensional action space"),
        (
            CartPole(action_space=SimpleNamespace(low=np.zeros(1), high=np.ones(1))),
            "(class CartPole) has a continuous action space",
        ),
        (
            catch()._replace(spec=EnvSpec(name="none", num_actions=0, observation=catch().spec.observation)),
            "environment 'none': spec.num_actions must be a whole number of at least 1",
        ),
    ],
)
def test_objects_that_are_no_environments_are_refused(thing, message):
    with pytest.raises(DiscorlError) as caught:
        as_environment(thing)
    assert message in str(caught.value)
