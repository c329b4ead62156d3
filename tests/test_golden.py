"""Our numbers against those recorded from the released code: outputs, targets, losses, three whole updates."""

from functools import partial
from typing import Any, NamedTuple

import golden
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discorl import networks
from discorl.distributions import ValueBins, scalar_value
from discorl.learner import LearnerInfo, LearnerState, agent_loss, make_learner, see
from discorl.networks.base import AgentNetwork
from discorl.optim import Hypers
from discorl.rule_config import DiscoConfig
from discorl.rules.base import UpdateRule
from discorl.rules.disco import DiscoTargets, disco, meta_inputs, step_losses
from discorl.rules.meta_network import MetaParams, MetaTargets, apply_meta_network, from_arrays
from discorl.rules.values import ActionValueInputs, ActionValues, estimate_action_values
from discorl.types import Experience, Rollout

pytestmark = pytest.mark.golden
BINS = ValueBins(601, 300.0)
ROUNDING = 1e-7  # gradients below it are not reproducible in float32


class Case(NamedTuple):
    data: dict[str, np.ndarray]
    rule: UpdateRule
    eta: MetaParams
    network: AgentNetwork
    states: list[LearnerState]  # before each update, and after the last
    infos: list[LearnerInfo]
    rollouts: list[Rollout]
    experiences: list[Experience]
    targets: list[DiscoTargets]
    gradients: list[Any]


@pytest.fixture(scope="module", params=["disco_seeded_a3", "disco_seeded_a6", "disco103_a3"])
def case(request: pytest.FixtureRequest) -> Case:
    data = golden.load(request.param)
    cfg = golden.config(data)
    if "seeded" in request.param:
        arrays = golden.seeded_rule(data)
    else:
        arrays = dict(np.load(request.getfixturevalue("disco103_path"), allow_pickle=False))
    rule, eta = disco(), from_arrays(arrays, DiscoConfig())
    network = networks.mlp(
        golden.env_spec(data),
        rule.needs,
        hidden=tuple(cfg["dense"]),
        model_width=cfg["lstm"],
        head_hidden=tuple(cfg["head"]),
    )
    learner = make_learner(network, rule, mask="reference")
    params = golden.agent_params(data, "agent_params")
    first = learner.init(jax.random.key(0), jnp.zeros(cfg["obs_shape"]))
    first = first._replace(params=params, target_params=params)
    rollouts = [golden.rollout(data, f"step{i}/rollout") for i in range(cfg["steps"])]

    @jax.jit
    def look(eta: MetaParams, state: LearnerState, rollout: Rollout) -> tuple[Experience, DiscoTargets, Any]:
        views = [see(network, rule, eta, p, rollout) for p in (state.params, state.target_params)]
        experience = Experience(rollout, *views)
        targets, _, _ = rule.targets(eta, state.rule, experience)
        grad = jax.grad(agent_loss, argnums=3, has_aux=True)
        return experience, targets, grad(network, rule, "reference", state.params, targets, rollout)[0]

    observe = partial(look, eta)
    step = jax.jit(learner.step)

    def lives(shift: Any) -> tuple[list[LearnerState], list[LearnerInfo]]:
        states, infos = [first], []
        for i, rollout in enumerate(rollouts):
            state, info = step(eta, Hypers(learning_rate=cfg["lr"]), states[-1], rollout)
            if i == 0:
                state = state._replace(params=jax.tree.map(jnp.add, state.params, shift))
            states.append(state)
            infos.append(info)
        return states, infos

    # Adam divides a gradient by its own size. Where the very first gradient is nothing but rounding, its sign is a
    # matter of summation order, and so is the direction of a whole step. Those few entries start from the recording.
    states, _ = lives(jax.tree.map(jnp.zeros_like, params))
    unclear = jax.tree.map(lambda g: (g != 0) & (jnp.abs(g) < ROUNDING), observe(first, rollouts[0])[2])
    assert sum(int(u.sum()) for u in jax.tree.leaves(unclear)) <= 0.02 * sum(x.size for x in jax.tree.leaves(params))
    recorded = golden.agent_params(data, "final/params")
    shift = jax.tree.map(lambda u, r, p: jnp.where(u, r - p, 0), unclear, recorded, states[-1].params)
    states, infos = lives(shift)
    experiences, targets, gradients = zip(*map(observe, states[:-1], rollouts), strict=True)
    return Case(data, rule, eta, network, states, infos, rollouts, list(experiences), list(targets), list(gradients))


def close(got: Any, recorded: np.ndarray, rtol: float = 1e-5) -> None:
    """To `rtol` of the largest entry: single entries of a product may cancel to nothing."""
    np.testing.assert_allclose(got, recorded, rtol=rtol, atol=rtol * np.abs(recorded).max())


def close_value(got: Any, recorded: np.ndarray, largest: np.ndarray | None = None) -> None:
    """Behind h⁻¹, whose slope is 2√(1+|x|). The recorded figures themselves are that far from their float64 value."""
    error = np.abs(np.asarray(got) - recorded)
    largest = np.abs(recorded) if largest is None else np.abs(largest).max()
    assert (error <= 2e-4 * np.sqrt(1 + largest)).all(), error.max()


def test_seeded_rule_is_the_recorded_one(case: Case) -> None:
    checksums = {k.removeprefix("meta_params_checksum/"): v for k, v in case.data.items() if "checksum" in k}
    arrays = golden.seeded_rule(case.data)
    for name, total in checksums.items():
        np.testing.assert_allclose(arrays[name].astype(np.float64).sum(), total, rtol=1e-6)


def all_actions(case: Case) -> dict[str, Any]:
    """Outputs of every action, which the learner itself never keeps."""
    params, rollout = case.states[0].params, case.rollouts[0]
    embedding, _ = case.network.unroll(params, (), rollout.obs, rollout.first)
    root = case.network.root(params, embedding)
    actions = jnp.arange(case.data["step0/agent_out/logits"].shape[-1])
    model = jax.vmap(lambda a: case.network.model(params, root, a), out_axes=2)(actions)
    return case.network.heads(params, embedding)._asdict() | model._asdict()


def test_outputs(case: Case) -> None:
    outputs = all_actions(case)
    for name in ("logits", "y", "z", "q", "aux_pi"):
        close(outputs[name], case.data[f"step0/agent_out/{name}"])
    close_value(scalar_value(jnp.asarray(outputs["q"]), BINS), case.data["step0/meta_out/q_value"])
    np.testing.assert_allclose(outputs["z"][:-1].mean(), case.data["step0/log/z"], rtol=1e-5, atol=1e-7)


def test_values(case: Case) -> None:
    experience, config = case.experiences[0], DiscoConfig()
    rollout, online, target = experience
    inputs = ActionValueInputs(
        reward=rollout.reward,
        discount=config.discount * rollout.discount,
        action=rollout.action,
        logits=online.logits,
        behaviour_logits=rollout.behaviour_logits,
        q=online.actions.q,
        target_q=target.actions.q,
    )
    moments = case.states[0].rule.moments
    values, _ = estimate_action_values(inputs, moments, config.trace_decay, config.moment_decay)
    recorded = recorded_values(case)
    close_value(values.q, recorded.q)
    for name in ("q_target", "advantage", "action_advantage", "td"):  # all bootstrap from values as large as q
        close_value(getattr(values, name), getattr(recorded, name), largest=recorded.q)
    spread = recorded.advantage.std()
    for name in ("normalised_advantage", "normalised_action_advantage", "normalised_td"):
        close_value(spread * getattr(values, name), spread * getattr(recorded, name), largest=recorded.q)


def test_values_are_as_exact_as_float32_allows(case: Case) -> None:
    """Against float64, our error is of the size of the recorded one."""
    logits = np.asarray(case.data["step0/agent_out/q"], np.float64)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    x = (weights * np.linspace(-300, 300, 601)).sum(-1) / weights.sum(-1)
    exact = np.sign(x) * (((np.sqrt(1 + 4e-3 * (np.abs(x) + 1 + 1e-3)) - 1) / 2e-3) ** 2 - 1)
    ours = np.abs(scalar_value(jnp.asarray(logits, jnp.float32), BINS) - exact).max()
    theirs = np.abs(case.data["step0/meta_out/q_value"] - exact).max()
    assert ours < 2 * theirs


def recorded_values(case: Case) -> ActionValues:
    get = {k.removeprefix("step0/meta_out/"): v for k, v in case.data.items() if "step0/meta_out" in k}
    policy = jax.nn.softmax(case.data["step0/agent_out/logits"])
    return ActionValues(
        q=get["q_value"],
        value=(policy * get["q_value"]).sum(-1),
        target_q=get["q_value"],  # the target parameters are still the agent's own
        q_target=get["q_target"],
        advantage=get["adv"],
        normalised_advantage=get["normalized_adv"],
        action_advantage=get["qv_adv"],
        normalised_action_advantage=get["normalized_qv_adv"],
        td=get["q_td"],
        normalised_td=get["normalized_q_td"],
    )


def meta_targets(case: Case) -> MetaTargets:
    """The meta-network on the recorded values: it alone is under test, not the rounding of h⁻¹ in its inputs."""
    values = jax.tree.map(jnp.asarray, recorded_values(case))

    @jax.jit
    def run(eta: MetaParams, experience: Experience, values: ActionValues) -> MetaTargets:
        inputs = meta_inputs(eta, experience, values)
        return apply_meta_network(eta, case.states[0].rule.lifetime, inputs, DiscoConfig())[0]

    return run(case.eta, case.experiences[0], values)


def test_targets(case: Case) -> None:
    exact = meta_targets(case)
    for name in ("pi", "y", "z"):
        recorded = case.data[f"step0/meta_out/{name}"]
        close(getattr(exact, name), recorded)
        close(getattr(case.targets[0], name), recorded, rtol=1e-4)  # end to end, rounding of h⁻¹ included


@pytest.mark.parametrize("i", [0, 1, 2])
def test_loss_of_every_step(case: Case, i: int) -> None:
    params, rollout, targets = case.states[i].params, case.rollouts[i], case.targets[i]
    if i == 0:
        targets = targets._replace(**meta_targets(case)._asdict())
    embedding, _ = case.network.unroll(params, (), rollout.obs, rollout.first)
    root = jax.tree.map(lambda x: x[:-1], case.network.root(params, embedding))
    action = case.network.model(params, root, rollout.action)
    parts = step_losses(case.network.heads(params, embedding), action, targets, rollout, BINS)
    close(parts.pi + parts.y + parts.z + parts.aux, case.data[f"step{i}/agent_loss_per_step"])
    close(DiscoConfig().value_cost * parts.q, case.data[f"step{i}/value_loss_per_step"])


LOGGED = {
    "total_loss": "total_loss",
    "global_gradient_norm": "gradient_norm",
    "global_update_norm": "update_norm",
    "agent_q_mean": "targets.q",
    "q_target": "targets.q_target",
    "td": "targets.td",
    "normalized_td": "targets.normalised_td",
    "pi_hat": "targets.pi_hat",
    "y_hat": "report.y_hat",
    "z_hat": "report.z_hat",
    "pi_hat_entropy": "targets.pi_hat_entropy",
    "pi_loss": "loss.pi_loss",
    "aux_kl_loss": "loss.aux_loss",
    "q_loss": "loss.q_loss",
    "entropy": "loss.entropy",
    "y_entropy": "report.y_entropy",
    "z_entropy": "report.z_entropy",
    "aux_policy_entropy": "loss.aux_entropy",
    "aux_target_entropy": "loss.aux_target_entropy",
    "logits": "loss.logits",
    "y": "report.y",
}


@pytest.mark.parametrize("i", [0, 1, 2])
def test_every_logged_scalar(case: Case, i: int) -> None:
    recorded = {k.removeprefix(f"step{i}/log/"): v for k, v in case.data.items() if k.startswith(f"step{i}/log/")}
    assert set(recorded) == {*LOGGED, "z"}  # z: of all actions there, of the taken one here; see test_outputs
    behind_transform = {"agent_q_mean", "q_target", "td", "normalized_td"}
    for theirs, ours in LOGGED.items():
        got: Any = case.infos[i]
        for part in ours.split("."):
            got = getattr(got, part)
        atol = 2e-4 if theirs in behind_transform else 2e-6
        np.testing.assert_allclose(got, recorded[theirs], rtol=1e-5, atol=atol, err_msg=theirs)


@pytest.mark.parametrize("i", [0, 1, 2])
def test_lifetime_state_and_moments(case: Case, i: int) -> None:
    rule = case.states[i + 1].rule
    for name in ("hidden", "cell"):
        recorded = case.data[f"step{i}/meta_rnn/lstm/meta_rnn_state/{name}"]
        np.testing.assert_allclose(getattr(rule.lifetime, name), recorded, rtol=1e-5, atol=1e-5)
    for moments, prefix in ((rule.moments.advantage, "adv_ema"), (rule.moments.td, "td_ema")):
        for ours, theirs in (("first", "moment1"), ("second", "moment2"), ("decay_product", "decay_product")):
            recorded = case.data[f"step{i}/{prefix}/{theirs}"]
            np.testing.assert_allclose(getattr(moments, ours), recorded, rtol=1e-5, atol=1e-5)


def test_parameters_after_three_updates(case: Case) -> None:
    """Everywhere but where a gradient of some update was nothing but rounding (see the fixture)."""
    weakest = jax.tree.map(lambda *g: np.min(np.abs(np.stack(g)), axis=0), *case.gradients)
    for name, got in (("params", case.states[-1].params), ("target_params", case.states[-1].target_params)):
        recorded = golden.agent_params(case.data, f"final/{name}")
        errors = jax.tree.leaves(jax.tree.map(lambda a, b: np.abs(np.asarray(a - b)), got, recorded))
        clear = [(g == 0) | (g > ROUNDING) for g in jax.tree.leaves(weakest)]
        assert sum(c.sum() for c in clear) > 0.95 * sum(c.size for c in clear)
        assert max(error[is_clear].max(initial=0) for error, is_clear in zip(errors, clear, strict=True)) < 1e-4
        assert max(error.max() for error in errors) < 1e-3
