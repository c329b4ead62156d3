"""Outer loss and meta-gradients against those recorded from the released code."""

from functools import partial
from typing import Any

import golden
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discorl import networks, nn
from discorl.discovery import gradients
from discorl.discovery.objective import ObjectiveConfig, outer_loss, target_regularizer
from discorl.learner import LearnerState, agent_loss, make_learner
from discorl.optim import Hypers
from discorl.rule_config import DiscoConfig
from discorl.rules.disco import disco
from discorl.rules.meta_network import from_arrays, to_arrays
from discorl.rules.value_function import ValueFunctionConfig, estimate, init_value_function, update_value_function
from discorl.types import Rollout

# Adam divides by |g|: where the first gradient of a weight is this small, float32 noise in it (1e-8) decides how much
# a change of η moves the weight. The recorded weights tell what the gradient was there.
ROUNDING = 2e-6


def value_params(data: dict[str, np.ndarray]) -> tuple[nn.Linear, ...]:
    names = (
        "~_embedding_pass/torso/~/linear_0",
        "~_embedding_pass/torso/~/linear_1",
        "~_head_pass/torso_head/~/linear_0",
    )
    return tuple(nn.Linear(*(jnp.asarray(data[f"value_params/value_fn/{n}/{p}"]) for p in "wb")) for n in names)


def as_recorded(data: dict[str, np.ndarray], prefix: str) -> Rollout:
    """For the value function, which the released code feeds with the rewards of one step earlier."""
    return golden.rollout(data, prefix)._replace(
        reward=jnp.asarray(data[f"{prefix}/rewards"][:-1]), discount=jnp.asarray(data[f"{prefix}/discounts"][:-1])
    )


def floor(data: dict[str, np.ndarray]) -> float:
    """Rounding: one array's gradient is 6e-8 of the whole."""
    return 1e-9 * float(data["meta_grad_global_norm"])


class Recorded:
    """One meta-step of the recording, computed by our parts."""

    def __init__(self, data: dict[str, np.ndarray], arrays: dict[str, np.ndarray]) -> None:
        self.data, cfg = data, golden.config(data)
        self.rule, self.eta = disco(), from_arrays(arrays, DiscoConfig())
        sizes = {"hidden": tuple(cfg["dense"]), "model_width": cfg["lstm"], "head_hidden": tuple(cfg["head"])}
        self.network = networks.mlp(golden.env_spec(data), self.rule.needs, **sizes)
        self.hypers, self.updates = Hypers(learning_rate=cfg["lr"]), cfg["N"]
        v = cfg["value"]
        self.value = ValueFunctionConfig(tuple(v["dense"]), v["discount"], v["td_lambda"], v["lr"])
        params = golden.agent_params(data, "agent_params")
        learner = make_learner(self.network, self.rule)
        first = learner.init(jax.random.key(0), jnp.zeros(cfg["obs_shape"]))
        self.first = first._replace(params=params, target_params=params)

    def window(self, eta: Any, noise: Any) -> tuple[jax.Array, Any]:
        """`noise` is added to the gradient of the first update."""
        mixed = gradients.mixed()

        def shifted(loss: Any) -> Any:
            inner = mixed.inner(jnp.int32(0), loss)

            def value_and_grad(params: Any, targets: Any, rollout: Any) -> Any:
                value, grads = inner(params, targets, rollout)
                return value, jax.tree.map(jnp.add, grads, noise)

            return value_and_grad

        objective, regularizer = ObjectiveConfig(), jnp.zeros(())
        state: LearnerState = self.first
        value = init_value_function(jax.random.key(0), jnp.zeros(5), self.value)
        value = value._replace(params=value_params(self.data))
        for i in range(self.updates):
            index = jnp.int32(i)
            inner, seen = partial(mixed.inner, index) if i else shifted, mixed.seen(index, self.network)
            learner = make_learner(self.network, self.rule, gradient=inner, seen=seen)
            state, _, lesson = learner.lesson(eta, self.hypers, state, golden.rollout(self.data, f"train{i}"))
            regularizer += target_regularizer(lesson, objective) / self.updates
            logits = jax.lax.stop_gradient(lesson.experience.online.logits)
            value, _, _ = update_value_function(value, as_recorded(self.data, f"train{i}"), logits, self.value)
        rollout = golden.rollout(self.data, "valid")
        embedding, _ = self.network.unroll(state.params, (), rollout.obs, rollout.first)
        logits = jax.lax.stop_gradient(self.network.heads(state.params, embedding).logits)
        found, _ = estimate(value, as_recorded(self.data, "valid"), logits, self.value)
        loss, info = outer_loss(self.network, state.params, rollout, found.normalised_advantage, regularizer, objective)
        return loss, (info, found.normalised_advantage, state.params)

    def first_gradient(self) -> Any:
        rollout = golden.rollout(self.data, "train0")
        lesson = make_learner(self.network, self.rule).lesson(self.eta, self.hypers, self.first, rollout)[2]
        grad = jax.grad(agent_loss, argnums=3, has_aux=True)
        return grad(self.network, self.rule, "reference", self.first.params, lesson.targets, rollout)[0]


def recorded_noise(case: Recorded, window: Any) -> Any:
    """What the recorded gradients of ROUNDING size were, read off the recorded weights (Newton, entry by entry)."""
    first = jax.jit(case.first_gradient)()
    tiny = jax.tree.map(lambda g: (jnp.abs(g) < ROUNDING) & (g != 0), first)
    wanted = golden.agent_params(case.data, "final/params")
    noise, probe = jax.tree.map(jnp.zeros_like, first), 1e-8
    for _ in range(3):
        at, beside = (
            window(case.eta, jax.tree.map(lambda n, t, d=d: n + jnp.where(t, d, 0.0), noise, tiny))[0][1][2]
            for d in (0.0, probe)
        )

        def step(n: Any, x: Any, y: Any, w: Any, t: Any) -> Any:
            slope = (y - x) / probe
            sure = t & (jnp.abs(slope) * 1e-9 > 1e-8)  # float32 cannot tell less
            return n + jnp.where(sure, jnp.clip((w - x) / jnp.where(sure, slope, 1), -1e-7, 1e-7), 0)

        noise = jax.tree.map(step, noise, at, beside, wanted, tiny)
    return noise


def finer(case: Recorded, window: Any, noise: Any) -> Any:
    """Weights are stored to 7 digits, which leaves 1e-9 open in the first layer's one gradient of ROUNDING size.

    That one number is chosen, within 1e-9, by the largest error of a norm; 40 norms and all entries are checked.
    """
    first, probe = noise.torso[0].w, 1e-9
    hit = first != 0
    if not hit.any():
        return noise

    def at(shift: float) -> Any:
        layer = noise.torso[0]._replace(w=jnp.where(hit, first + shift, first))
        return noise._replace(torso=(layer, *noise.torso[1:]))

    def errors(shift: float) -> np.ndarray:
        grads = to_arrays(window(case.eta, at(shift))[1], DiscoConfig())
        wanted = {key: float(case.data[f"meta_grads_norm/{key}"]) for key in grads}
        known = [key for key, norm in wanted.items() if 1e-3 * norm > floor(case.data)]
        return np.array([np.linalg.norm(grads[key].astype(np.float64)) / wanted[key] - 1 for key in known])

    here = errors(0.0)
    slope = (errors(probe) - here) / probe
    shifts = np.linspace(-probe, probe, 41)
    return at(min(shifts, key=lambda shift: np.abs(here + shift * slope).max()))


@pytest.mark.parametrize("name", ["metagrad_seeded_a3", "metagrad_disco103_a3"])
def test_outer_loss_and_meta_gradient(name: str, request: pytest.FixtureRequest) -> None:
    data = golden.load(name)
    seeded = "seeded" in name
    arrays = golden.seeded_rule(data) if seeded else dict(np.load(request.getfixturevalue("disco103_path")))
    case = Recorded(data, arrays)
    window = jax.jit(jax.value_and_grad(case.window, has_aux=True))
    zero = jax.tree.map(jnp.zeros_like, case.first.params)
    (loss, (info, advantage, _)), _ = window(case.eta, zero)
    np.testing.assert_allclose(loss, data["meta_loss"], rtol=1e-5)
    np.testing.assert_allclose(info.policy_loss, data["pg_loss"], rtol=1e-5)
    np.testing.assert_allclose(info.regularizer, data["reg_loss"], rtol=1e-5)
    np.testing.assert_allclose(advantage, data["normalized_adv"], rtol=1e-4, atol=1e-4)

    _, grads = window(case.eta, finer(case, window, recorded_noise(case, window)))
    for key, got in to_arrays(grads, DiscoConfig()).items():
        norm, entries = float(data[f"meta_grads_norm/{key}"]), data[f"meta_grads/{key}"]
        assert np.linalg.norm(got.astype(np.float64)) == pytest.approx(norm, rel=1e-3, abs=floor(data)), key
        shown = got.reshape(-1)[: entries.size].reshape(entries.shape)  # of large arrays only the first rows are stored
        np.testing.assert_allclose(shown, entries, rtol=0, atol=1e-3 * norm + floor(data), err_msg=key)
