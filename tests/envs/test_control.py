"""Control tasks against their published equations, written out in NumPy (float64)."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from walks import against_chance, walk

from discorl.envs import Environment, make, suites

T = 40


def started(env, x):
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    return state._replace(x=jnp.asarray(x, jnp.float32))


def cart_pole(x, action):
    """Barto, Sutton & Anderson 1983, as in CartPole-v1: Euler, 20 ms."""
    place, speed, angle, spin = x
    gravity, cart, pole, length, force = 9.8, 1.0, 0.1, 0.5, 10.0 if action == 1 else -10.0
    temp = (force + pole * length * spin**2 * math.sin(angle)) / (cart + pole)
    spin_acc = (gravity * math.sin(angle) - math.cos(angle) * temp) / (
        length * (4.0 / 3.0 - pole * math.cos(angle) ** 2 / (cart + pole))
    )
    acc = temp - pole * length * spin_acc * math.cos(angle) / (cart + pole)
    x = np.array([place + 0.02 * speed, speed + 0.02 * acc, angle + 0.02 * spin, spin + 0.02 * spin_acc])
    return x, 1.0, abs(x[0]) > 2.4 or abs(x[2]) > 12 * 2 * math.pi / 360


def mountain_car(x, action):
    """Moore 1990, as in MountainCar-v0."""
    place, speed = x
    speed = np.clip(speed + (action - 1) * 0.001 + math.cos(3 * place) * -0.0025, -0.07, 0.07)
    place = np.clip(place + speed, -1.2, 0.6)
    if place == -1.2 and speed < 0:
        speed = 0.0
    return np.array([place, speed]), -1.0, place >= 0.5 and speed >= 0


def pendulum(x, action):
    """As in Pendulum-v1, with five torques; the cost is divided by its maximum without torque."""
    angle, spin = x
    torque = (-2.0, -1.0, 0.0, 1.0, 2.0)[action]
    cost = angle**2 + 0.1 * spin**2 + 0.001 * torque**2
    spin = np.clip(spin + (3 * 10 / 2 * math.sin(angle) + 3.0 * torque) * 0.05, -8, 8)
    return np.array([wrap(angle + spin * 0.05), spin]), -cost / (math.pi**2 + 6.4), False


def acrobot(x, action):
    """Sutton & Barto 1998, as in Acrobot-v1 ("book" dynamics), Runge-Kutta over 0.2 s."""
    m = l1 = inertia = 1.0
    lc, g, torque = 0.5, 9.8, action - 1.0

    def slope(x):
        a1, a2, s1, s2 = x
        d1 = m * lc**2 + m * (l1**2 + lc**2 + 2 * l1 * lc * math.cos(a2)) + inertia + inertia
        d2 = m * (lc**2 + l1 * lc * math.cos(a2)) + inertia
        phi2 = m * lc * g * math.cos(a1 + a2 - math.pi / 2)
        phi1 = (
            -m * l1 * lc * s2**2 * math.sin(a2)
            - 2 * m * l1 * lc * s2 * s1 * math.sin(a2)
            + (m * lc + m * l1) * g * math.cos(a1 - math.pi / 2)
            + phi2
        )
        dd2 = (torque + d2 / d1 * phi1 - m * l1 * lc * s1**2 * math.sin(a2) - phi2) / (m * lc**2 + inertia - d2**2 / d1)
        return np.array([s1, s2, -(d2 * dd2 + phi1) / d1, dd2])

    k1 = slope(x)
    k2 = slope(x + 0.1 * k1)
    k3 = slope(x + 0.1 * k2)
    k4 = slope(x + 0.2 * k3)
    x = x + 0.2 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    x = np.array([wrap(x[0]), wrap(x[1]), np.clip(x[2], -12.566371, 12.566371), np.clip(x[3], -28.274334, 28.274334)])
    up = -math.cos(x[0]) - math.cos(x[0] + x[1]) > 1
    return x, 0.0 if up else -1.0, up


def wrap(angle):
    return (angle + math.pi) % (2 * math.pi) - math.pi


def swing(x):
    return [math.cos(x[0]), math.sin(x[0]), math.cos(x[1]), math.sin(x[1]), x[2] / (4 * math.pi), x[3] / (9 * math.pi)]


TWINS = {  # twin, starts, what is seen of a state, number of actions
    "control/cart-pole": (cart_pole, [[0.01, -0.03, 0.04, 0.02], [2.3, 1.5, -0.1, 0.5]], lambda x: x, 2),
    "control/mountain-car": (
        mountain_car,
        [[-0.5, 0.0], [0.4, 0.05], [-1.1, -0.06], [0.3, 0.0699]],
        lambda x: [x[0], x[1] / 0.07],
        3,
    ),
    "control/pendulum": (
        pendulum,
        [[3.0, 1.0], [0.1, -7.9]],
        lambda x: [math.cos(x[0]), math.sin(x[0]), x[1] / 8],
        5,
    ),
    "control/acrobot": (acrobot, [[0.05, -0.08, 0.01, 0.1], [2.0, 0.5, 3.0, -2.0], [1.0, 1.0, 12.0, 28.0]], swing, 3),
}
ENDED = {"control/cart-pole", "control/mountain-car", "control/acrobot"}


@pytest.mark.parametrize("name", TWINS)
def test_standard_constants_give_the_published_motion(name):
    twin, starts, seen, num_actions = TWINS[name]
    env = make(name)
    rng, ended = np.random.default_rng(0), set()
    for start in starts:
        actions = rng.integers(0, num_actions, T)
        steps = walk(env, started(env, start), actions)
        x = np.array(start)
        for t, action in enumerate(actions):
            x, reward, over = twin(x, action)
            np.testing.assert_allclose(steps.obs[t], seen(x), atol=2e-3)
            assert steps.reward[t] == pytest.approx(reward, abs=1e-3)
            assert (steps.terminated[t], steps.truncated[t]) == (over, False)
            ended.add(bool(over))
            if over:
                break
    assert True in ended if name in ENDED else ended == {False}


@pytest.mark.parametrize(
    "name, limit, low, high",
    [
        ("cartpole", 500, [-0.05] * 4, [0.05] * 4),
        ("control/mountain-car", 200, [-0.6, 0.0], [-0.4, 0.0]),
        ("control/pendulum", 200, [-math.pi, -1], [math.pi, 1]),
        ("control/acrobot", 500, [-0.1] * 4, [0.1] * 4),
    ],
)
def test_standard_starts_and_limits(name, limit, low, high):
    env = make(name)
    assert isinstance(env, Environment)
    state, _ = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 300))
    x, width = np.asarray(state.x), np.asarray(high) - low
    assert (x >= np.asarray(low) - 1e-6).all() and (x <= np.asarray(high) + 1e-6).all()
    assert (np.ptp(x, axis=0) >= 0.9 * width).all()
    one_step = jax.jit(env.step)
    for clock, truncated in ((limit - 2, False), (limit - 1, True)):
        late = jax.tree.map(lambda s: s[0], state)._replace(clock=jnp.int32(clock))
        _, step = one_step(jax.random.key(0), late, jnp.int32(0))
        assert (bool(step.truncated), bool(step.terminated)) == (truncated, False)


def test_steering_to_the_place_beats_chance(key):
    """control/reach: push along the longer of the ways that remain, seen from where the speed will have led."""
    family = suites.FAMILIES["control/reach"].family

    def good(obs):
        way = obs[4:] - obs[:2] - obs[2:4]
        axis = (jnp.abs(way[1]) > jnp.abs(way[0])).astype(jnp.int32)
        return 1 + 2 * axis + (jnp.where(axis == 1, way[1], way[0]) > 0).astype(jnp.int32)

    steered, chance = against_chance(family, good, key, steps=60)
    assert steered > 0 > -1 > chance
