"""The T-maze shows its sign at the entrance only and pays for the turn that it told."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discorl.envs import Environment, t_maze
from discorl.envs.compliance import check
from discorl.envs.names import make
from discorl.errors import DiscorlError

LEFT, AHEAD, RIGHT = 0, 1, 2


def walk(env, key, actions):
    """Observations, rewards and ends of one walk."""
    state, obs = env.reset(key)
    seen, rewards, ends = [obs.tolist()], [], []
    for action in actions:
        state, timestep = jax.jit(env.step)(key, state, jnp.int32(action))
        seen.append(timestep.obs.tolist())
        rewards.append(float(timestep.reward))
        ends.append((bool(timestep.terminated), bool(timestep.truncated)))
    return seen, rewards, ends


def test_it_keeps_the_contract():
    check(t_maze(3))


@pytest.mark.parametrize("turn", [LEFT, RIGHT])
def test_the_turn_that_the_sign_tells_pays(turn, key):
    signs = set()
    for i in range(8):
        seen, rewards, ends = walk(t_maze(3), jax.random.fold_in(key, i), [AHEAD] * 3 + [turn])
        sign = seen[0][0]
        assert seen[:4] == [[sign, 0], [0, 0], [0, 0], [0, 1]]
        assert rewards == [0, 0, 0, (turn == RIGHT) == (sign == 1)]
        assert ends == [(False, False)] * 3 + [(True, False)]
        signs.add(sign)
    assert signs == {-1, 1}


def test_turns_in_the_corridor_and_steps_beyond_the_junction_lead_nowhere(key):
    seen, rewards, ends = walk(t_maze(2), key, [LEFT, RIGHT, AHEAD, LEFT, AHEAD, AHEAD, AHEAD, AHEAD])
    assert np.asarray(seen)[:, 1].tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1]
    assert seen[1] == seen[2] == seen[0]
    assert rewards == [0] * 8
    assert ends == [(False, False)] * 7 + [(False, True)]  # 4 × 2 steps are enough


def test_drawn_and_named(key):
    env = make("t-maze:2")
    assert isinstance(env, Environment)
    assert env.spec.name == "t-maze:2" and make("t-maze").spec.time_limit == 40
    state, obs = env.reset(key)
    reward, nothing = ("  $", "   ") if obs[0] < 0 else ("   ", "  $")
    assert env.render(state) == f"{reward}\n@..\n{nothing}"
    for wrong in ("t-maze:long", "t-maze:0"):
        with pytest.raises(DiscorlError, match=r"length|step"):
            make(wrong)
