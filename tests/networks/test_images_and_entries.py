"""Images, dictionaries and vectors: what reaches the network, and which sizes it then has."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discorl import agents, networks, settings
from discorl.envs.base import EnvSpec
from discorl.errors import DiscorlError
from discorl.networks import AgentNetwork
from discorl.networks.base import embedding_width
from discorl.networks.observations import as_images, centred, folded
from discorl.types import Needs

NEEDS = Needs(y=5)
DISCO103 = Needs(y=600, z=600, q=601)


def spec_of(*shape: int, dtype=jnp.float32) -> EnvSpec:
    return EnvSpec("toy", 18, jax.ShapeDtypeStruct(shape, dtype))


def named(agent: str, spec: EnvSpec, needs: Needs = NEEDS, **options) -> AgentNetwork:
    return agents.by_name(agent, spec, needs, settings.resolve(settings.make({"agent": agent, **options}), ""))


def parameter_count(network: AgentNetwork) -> int:
    return sum(x.size for x in jax.tree.leaves(jax.eval_shape(network.init, jax.random.key(0))))


@pytest.mark.parametrize("shape", [(8, 8), (10, 10, 6), (84, 84, 4), (4, 84, 84), (4, 21, 16, 3), (1, 1, 2), (5, 9)])
@pytest.mark.parametrize("dtype", [jnp.uint8, jnp.float32])
def test_convolutions_take_images_of_any_size(shape: tuple[int, ...], dtype) -> None:
    spec = spec_of(*shape, dtype=dtype)
    assert embedding_width(networks.impala_torso(spec, (2, 3), (7,)), spec) == 7


def test_images_have_their_channels_last() -> None:
    shapes = {(8, 6): (8, 6, 1), (8, 6, 3): (8, 6, 3), (3, 8, 8): (8, 8, 3), (6, 7, 43): (6, 7, 43)}
    for shape, expected in shapes.items():
        assert as_images(jnp.zeros((2, *shape))).shape == (2, *expected)
    stack = np.arange(2 * 2 * 3 * 4 * 5).reshape(2, 2, 3, 4, 5)  # N S H W C
    images = as_images(jnp.asarray(stack, jnp.float32))
    for s in range(2):
        np.testing.assert_array_equal(images[..., s * 5 : (s + 1) * 5], stack[:, s])


def test_folding_moves_every_pixel_into_a_channel_of_its_square() -> None:
    image = jnp.arange(5 * 4 * 2.0).reshape(1, 5, 4, 2)
    got = np.asarray(folded(image, 2))
    assert got.shape == (1, 3, 2, 8)
    padded = np.pad(np.asarray(image), ((0, 0), (0, 1), (0, 0), (0, 0)))
    for row, column in np.ndindex(3, 2):
        square = padded[0, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        np.testing.assert_array_equal(got[0, row, column], square.ravel())


def test_boards_are_not_folded() -> None:
    sizes = {
        side: jax.eval_shape(networks.impala_torso(spec_of(side, side, 4), fold=2).init, jax.random.key(0))
        for side in (10, 32)
    }
    assert sizes[10].sections[0].conv.w.shape == (9 * 4, 16)
    assert sizes[32].sections[0].conv.w.shape == (9 * 4 * 4, 16)


def test_an_untrained_agent_sees_a_ball(key: jax.Array) -> None:
    """Four pixels of 7,056 on grey, as in Pong: embeddings of different places must differ."""
    spec = spec_of(84, 84, 4, dtype=jnp.uint8)
    torso = networks.impala_torso(spec, fold=4)
    frames = np.full((16, 84, 84, 4), 87, np.uint8)
    for i, (row, column) in enumerate(np.ndindex(4, 4)):
        frames[i, 10 + 16 * row : 12 + 16 * row, 10 + 16 * column : 12 + 16 * column] = 236
    images = jnp.asarray(frames)[None]
    embed = jax.jit(lambda key: torso.unroll(torso.init(key), (), images, jnp.zeros((1, 16), jnp.bool_))[0][0])
    for i in range(4):
        found = np.asarray(embed(jax.random.fold_in(key, i)))
        assert found.std(axis=0).mean() > 0.04  # with weights of the usual size and no centring 0.005 to 0.008
        assert np.sqrt(np.square(found).mean()) < 4  # not so large that a policy would begin far from uniform


def test_brightness_of_large_images_says_nothing(key: jax.Array) -> None:
    image = jax.random.uniform(key, (3, 6, 7, 2))
    expected = np.asarray(image) - np.asarray(image).mean(axis=(1, 2)).reshape(3, 1, 1, 2)
    np.testing.assert_allclose(centred(image), expected, atol=1e-6)
    for side, same in ((32, True), (31, False)):  # boards are not images: their numbers count
        torso = networks.impala_torso(spec_of(side, side, 1), (2,), (5,))
        params, obs = torso.init(key), jax.random.uniform(key, (1, 2, side, side, 1))
        seen, brighter = (torso.unroll(params, (), x, jnp.zeros((1, 2), jnp.bool_))[0] for x in (obs, obs + 0.3))
        assert np.allclose(seen, brighter, atol=1e-4) == same


@pytest.mark.parametrize("torso", [networks.mlp_torso, networks.impala_torso])
def test_bytes_are_scaled_and_floats_are_not(torso, key: jax.Array) -> None:
    """Bytes are seen as floats in [0, 1]; a float of 200 stays one."""
    pixels = jax.random.randint(key, (1, 2, 4, 4), 0, 256).astype(jnp.uint8)
    made = torso(spec_of(4, 4), hidden=(5,))
    params, first = jax.jit(made.init)(key), jnp.zeros((1, 2), jnp.bool_)
    see = jax.jit(lambda obs: made.unroll(params, (), obs, first)[0])
    np.testing.assert_allclose(see(pixels), see(pixels.astype(jnp.float32) / 255), rtol=1e-6)
    assert not np.allclose(see(pixels), see(pixels.astype(jnp.float32)))


def test_the_agent_of_the_paper_has_its_sizes_without_being_made() -> None:
    def section(i: int, o: int) -> int:
        return 9 * i * o + o + 4 * (9 * o * o + o)

    convolutions = section(4, 256) + section(256, 384) + section(384, 384) + section(384, 256)
    hidden = 6 * 6 * 256 * 768 + 768  # 84 -> 42 -> 21 -> 11 -> 6
    heads = 769 * (18 + 600)
    model = 769 * 1024 + (18 + 1024 + 1) * 4096 + 3 * 1025 * 1024 + 1025 * (600 + 601 + 18)
    network = named("impala-paper", spec_of(84, 84, 4, dtype=jnp.uint8), DISCO103)
    assert parameter_count(network) == convolutions + hidden + heads + model


@pytest.mark.parametrize("agent", settings.AGENT_DEFAULTS)
def test_every_agent_takes_a_dictionary(agent: str) -> None:
    observation = {
        "picture": jax.ShapeDtypeStruct((10, 10, 3), jnp.bool_),
        "place": jax.ShapeDtypeStruct((2,), jnp.float32),
        "lives": jax.ShapeDtypeStruct((), jnp.int32),
    }
    assert parameter_count(named(agent, EnvSpec("toy", 3, observation), DISCO103)) > 0  # checked while it is built


def test_entries_have_encoders_of_their_own_and_change_each_others_meaning(key: jax.Array) -> None:
    observation = {"a": jax.ShapeDtypeStruct((), jnp.int32), "b": (jax.ShapeDtypeStruct((2,), jnp.float32),)}
    spec = EnvSpec("toy", 3, observation)
    torso = networks.encoders(spec, hidden=(4,), own={"a": networks.one_hot(3, 2)})
    params, unroll = jax.jit(torso.init)(key), jax.jit(torso.unroll)
    assert [jax.tree.leaves(p)[0].shape for p in params.entries] == [(3, 2), (2, 4)]

    def see(a: int, b: float) -> np.ndarray:
        obs = {"a": jnp.full((1, 1), a), "b": (jnp.full((1, 1, 2), b),)}
        return np.asarray(unroll(params, torso.memory(1), obs, jnp.zeros((1, 1), jnp.bool_))[0])

    assert not np.allclose(see(1, 2.0) - see(0, 2.0), see(1, -1.0) - see(0, -1.0))
    with pytest.raises(DiscorlError, match="observes no entry 'b/1'; did you mean 'b/0'"):
        networks.encoders(spec, own={"b/1": networks.one_hot(3)})
    with pytest.raises(DiscorlError, match="one_hot encodes integers, but 'toy, entry b/0' observes float32"):
        networks.encoders(spec, own={"b/0": networks.one_hot(3)})


@pytest.mark.parametrize(
    ("agent", "options", "message"),
    [
        ("impala-smal", {}, "unknown agent 'impala-smal'; did you mean 'impala-small'"),
        ("impala-small", {}, r"convolutions need images, \[H, W\] or \[H, W, C\], but 'toy' observes \[3\]; use"),
        ("mlp", {"channels": (4,)}, r"channels \(4,\) does not fit the agent mlp: it is for encoders or impala-small"),
        ("mlp", {"memory_width": 4}, "memory_width 4 does not fit the agent mlp: it is for lstm or gru"),
        ("lstm", {"memory_width": 0}, "memory_width 0 does not fit"),
    ],
)
def test_an_agent_that_does_not_fit_is_named(agent: str, options: dict, message: str) -> None:
    with pytest.raises(DiscorlError, match=message):
        named(agent, spec_of(3), **options)
