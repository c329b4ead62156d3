"""Action spaces of other libraries, recognised by their looks."""

from types import SimpleNamespace

import numpy as np
import pytest

from discorl.envs import require_discrete
from discorl.errors import DiscorlError


class Box:
    def __init__(self, low, high):
        self.low, self.high = low, high
        self.shape = low.shape


class Discrete(SimpleNamespace):
    pass


@pytest.mark.parametrize("n", [1, 4, np.int64(18)])
def test_discrete_spaces_give_their_number_of_actions(n):
    assert require_discrete(Discrete(n=n, shape=(), start=0), "Pong") == n
    assert require_discrete(Discrete(n=n), "Pong") == n


@pytest.mark.parametrize(
    "space, message",
    [
        (Box(np.zeros(3, np.float32), np.ones(3, np.float32)), r"a continuous action space \(Box of shape \(3,\)\)"),
        (Box(np.zeros(2, np.int8), np.ones(2, np.int8)), r"a multi-dimensional action space \(Box of shape \(2,\)\)"),
        (SimpleNamespace(nvec=np.array([3, 2]), shape=(2,)), r"a multi-dimensional action space \(.*of sizes \[3, 2\]"),
        (SimpleNamespace(n=5, shape=(5,)), "a multi-dimensional action space"),
        (SimpleNamespace(n=np.array([2, 2])), "a multi-dimensional action space"),
        (SimpleNamespace(spaces={"a": Discrete(n=2)}), "a composite action space"),
        (SimpleNamespace(), "an action space of unknown kind"),
    ],
)
def test_other_spaces_are_refused_with_the_way_out(space, message):
    with pytest.raises(DiscorlError, match=f"^Walker has {message}.*wrap it so that its action space is Discrete$"):
        require_discrete(space, "Walker")


def test_a_discrete_space_without_actions_is_refused():
    with pytest.raises(DiscorlError, match="Walker has a discrete action space of 0 actions"):
        require_discrete(Discrete(n=0), "Walker")
