"""Environments of other JAX libraries keep our contract and take the steps that their library takes."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discorl import envs
from discorl.envs.adapters.libraries import library
from discorl.envs.adapters.pure import picture
from discorl.errors import DiscorlError

STEPS, LANES = 40, 3


@pytest.fixture(autouse=True)
def as_lenient_as_jax() -> Iterator[None]:
    """Our own code is tested more strictly than other people's can be asked to be."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


def wanted(module: str, extra: str) -> Any:
    return pytest.importorskip(module, reason=f"{module} is not installed: pip install 'discorl[{extra}]'")


def agree(name: str, reset: Callable[[Any], Any], step: Callable[[Any, Any, Any], tuple]) -> None:
    """Random actions, both worlds compiled; `step` returns state, obs, reward, terminated, truncated of the library."""
    env = envs.make(name)
    assert isinstance(env, envs.Environment)
    envs.check(env, steps=8)
    key = jax.random.key(3)
    actions = jax.random.randint(key, (STEPS, LANES), 0, env.spec.num_actions, jnp.int32)
    keys = jax.random.split(key, (STEPS + 1, LANES))

    def walk(start: Callable, move: Callable) -> Any:
        def one(carry: Any, at: Any) -> Any:
            state, came = jax.vmap(move)(at[0], carry, at[1])
            return state, came

        return jax.jit(lambda: jax.lax.scan(one, jax.vmap(start)(keys[0]), (keys[1:], actions))[1])()

    def ours(key: Any, state: Any, action: Any) -> Any:
        state, came = env.step(key, state, action)
        # their auto-reset, or none: only what comes before the first end is compared
        return state, (came.obs, came.reward, came.terminated, came.truncated)

    mine = walk(lambda key: env.reset(key)[0], ours)
    theirs = walk(reset, lambda key, state, action: (lambda s, *rest: (s, rest))(*step(key, state, action)))
    over = np.asarray(mine[2] | mine[3])
    alive = np.concatenate([np.ones((1, LANES), bool), ~np.logical_or.accumulate(over)[:-1]])
    assert alive.sum() > 10
    for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        keep = alive & ~over if i == 0 else alive  # the library may show the next episode already
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
            np.testing.assert_allclose(np.asarray(x)[keep], np.asarray(y)[keep], rtol=1e-6, atol=1e-6)


def test_minatar_of_pgx() -> None:
    game = wanted("pgx", "minatar").make("minatar-breakout")

    def step(key: Any, state: Any, action: Any) -> tuple:
        state = game.step(state, action, key)
        return state, state.observation, state.rewards[0], state.terminated, state.truncated

    agree("minatar:breakout", game.init, step)


def test_legal_moves_of_a_game_for_one() -> None:
    game = wanted("pgx", "minatar").make("2048")

    def step(key: Any, state: Any, action: Any) -> tuple:
        state = game.step(state, action, key)
        seen = {"action_mask": state.legal_action_mask, "observation": state.observation}
        return state, seen, state.rewards[0], state.terminated, state.truncated

    agree("pgx:2048", game.init, step)


def test_games_of_two_against_chance() -> None:
    """The library's own steps, taken one by one in Python: whoever's turn it is, until it is the agent's again."""
    game = wanted("pgx", "minatar").make("tic_tac_toe")
    env = envs.make("pgx:tic_tac_toe/random")
    assert isinstance(env, envs.Environment)
    envs.check(env, steps=8)
    reset, step, init, move = (jax.jit(f) for f in (env.reset, env.step, game.init, game.step))
    results, begins = [], set()

    def others(key: Any, state: Any, reward: float) -> tuple[Any, float]:
        while state.current_player != 0 and not state.terminated:
            key, key_choice, key_step = jax.random.split(key, 3)
            legal = jnp.where(state.legal_action_mask, 0.0, -jnp.inf)
            state = move(state, jax.random.categorical(key_choice, legal), key_step)
            reward += float(state.rewards[0])
        return state, reward

    for seed in range(8):
        key, rng = jax.random.key(seed), np.random.default_rng(seed)
        ours, obs = reset(key)
        theirs, _ = others(jax.random.split(key)[1], init(jax.random.split(key)[0]), 0.0)
        begins.add(int(theirs.observation.sum()))
        reward = 0.0
        while not theirs.terminated:
            np.testing.assert_array_equal(obs["observation"], theirs.observation)
            np.testing.assert_array_equal(obs["action_mask"], theirs.legal_action_mask)
            action = jnp.int32(rng.choice(np.flatnonzero(obs["action_mask"])))
            key = jax.random.fold_in(key, 1)
            ours, came = step(key, ours, action)
            key_game, key_others = jax.random.split(key)
            theirs = move(theirs, action, key_game)
            theirs, reward = others(key_others, theirs, float(theirs.rewards[0]))
            assert (float(came.reward), bool(came.terminated)) == (reward, bool(theirs.terminated))
            obs = came.obs
        results.append(reward)
    assert begins == {0, 1}  # either side begins
    assert {-1.0, 1.0} <= set(results) <= {-1.0, 0.0, 1.0}


def test_games_of_pgx_that_will_not_do() -> None:
    wanted("pgx", "minatar")
    with pytest.raises(
        DiscorlError, match="is a game of 2 players: say who plays against the agent, 'pgx:tic_tac_toe/r"
    ):
        envs.make("pgx:tic_tac_toe")
    with pytest.raises(DiscorlError, match="unknown opponent 'randon' in 'pgx:hex/randon'; did you mean 'random'"):
        envs.make("pgx:hex/randon")
    with pytest.raises(DiscorlError, match="that game has one player: write 'pgx:2048'"):
        envs.make("pgx:2048/random")
    with pytest.raises(DiscorlError, match="'minatar:brekout'; did you mean 'breakout'"):
        envs.make("minatar:brekout")


@pytest.mark.parametrize("name", ["CartPole-v1", "Breakout-MinAtar"])
def test_gymnax(name: str) -> None:
    world, params = wanted("gymnax", "gymnax").make(name)

    def step(key: Any, state: Any, action: Any) -> tuple:
        obs, state, reward, terminated, truncated, _ = world.step(key, state, action, params)
        return state, obs, reward, terminated, truncated

    agree(f"gymnax:{name}", lambda key: world.reset(key, params)[1], step)


def test_environments_of_gymnax_that_will_not_do() -> None:
    wanted("gymnax", "gymnax")
    with pytest.raises(DiscorlError, match="'gymnax:Pendulum-v1' has a continuous action space"):
        envs.make("gymnax:Pendulum-v1")
    with pytest.raises(DiscorlError, match="unknown environment 'gymnax:CartPol-v1'; did you mean 'CartPole-v1'"):
        envs.make("gymnax:CartPol-v1")


def test_minigrid() -> None:
    world, params = wanted("xminigrid", "xminigrid").make("MiniGrid-Empty-5x5")

    def step(key: Any, state: Any, action: Any) -> tuple:
        state = world.step(params, state, action)
        tiles, colours = (jax.nn.one_hot(state.observation[..., i], n, dtype=bool) for i, n in ((0, 13), (1, 12)))
        obs = jnp.concatenate([tiles, colours], -1)
        return state, obs, state.reward, state.last() & (state.discount == 0), state.last() & (state.discount == 1)

    agree("xminigrid:MiniGrid-Empty-5x5", lambda key: world.reset(params, key), step)


@pytest.mark.parametrize(
    "name, limit, action_of",
    [("Snake-v1", 4000, lambda a: a), ("Tetris-v0", 400, lambda a: jnp.stack([a // 10, a % 10]))],
)
def test_jumanji(name: str, limit: int, action_of: Callable) -> None:
    world = wanted("jumanji", "jumanji").make(name)

    def step(key: Any, state: Any, action: Any) -> tuple:
        state, came = world.step(state, action_of(action))
        obs = dict(came.observation._asdict())
        obs |= {"step_count": obs["step_count"] / limit, "action_mask": obs["action_mask"].reshape(-1)}
        return state, obs, came.reward, came.last() & (came.discount == 0), came.last() & (came.discount == 1)

    agree(f"jumanji:{name}", lambda key: world.reset(key)[0], step)


def test_environments_of_jumanji_that_will_not_do() -> None:
    wanted("jumanji", "jumanji")
    with pytest.raises(DiscorlError, match="'jumanji:Snak-v1'; did you mean 'Snake-v1'"):
        envs.make("jumanji:Snak-v1")
    with pytest.raises(DiscorlError, match="which makes 729 combinations"):
        envs.make("jumanji:Sudoku-v0")
    with pytest.raises(DiscorlError, match="gives 2 rewards, one to each of its agents"):
        envs.make("jumanji:LevelBasedForaging-v0")


@pytest.mark.slow
def test_craftax() -> None:
    make = wanted("craftax.craftax_env", "craftax").make_craftax_env_from_name
    world = make("Craftax-Classic-Symbolic-v1", auto_reset=False)

    def step(key: Any, state: Any, action: Any) -> tuple:
        obs, state, reward, over, _ = world.step(key, state, action)
        return state, obs, reward, over, jnp.zeros((), bool)  # no clock within so few steps

    agree("craftax:classic", lambda key: world.reset(key)[1], step)


def test_atari() -> None:
    wanted("ale_py", "atari")
    env = envs.make("atari:pong")
    assert isinstance(env, envs.HostEnvironment)
    assert (env.spec.num_actions, env.spec.observation.shape) == (6, (84, 84, 4))
    vector = env.open(2)
    obs = vector.reset(0)
    for t in range(5):
        came = vector.step(np.array([0, t], np.int32))
        np.testing.assert_array_equal(came.obs[..., :-1], obs[..., 1:])  # the newest frame comes last
        obs = came.obs
    env.open(2).reset(2**32 - 1)  # any seed of ours is one that ale-py takes
    with pytest.raises(DiscorlError, match="unknown environment 'atari:pongg'; did you mean 'pong'"):
        envs.make("atari:pongg")


def test_a_missing_library_is_named_with_its_extra() -> None:
    with pytest.raises(DiscorlError) as caught:
        library("a_library_nobody_has.part", "gym", "environment 'x'")
    assert str(caught.value) == (
        "environment 'x' needs the library a_library_nobody_has, but a_library_nobody_has is not installed; "
        "install it with: pip install 'discorl[gym]'"
    )


def test_pictures_in_text() -> None:
    planes = np.zeros((2, 3, 2), bool)
    planes[0, 1, 0] = planes[1, 2, 1] = True
    assert picture(planes) == ".a.\n..b"
    assert picture({"x": np.array([0.5, -2.0]), "y": np.zeros(100)}) == "0.5 -2\nfloat64[100]"
