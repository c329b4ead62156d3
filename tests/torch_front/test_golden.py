"""Our numbers against those recorded from the released code: outputs, targets, losses, three whole updates.

The value transform h⁻¹ cancels in float32: neighbouring roots are 1.2e-4·√(1+|q|) apart behind it, and the order in
which the recording summed 601 products decides between them; it decided as we do for 19 values of 20. So values are
compared at that tolerance, and what follows from them twice: from the recorded values at 1e-5, and unaided at 1e-5 plus
what such rounding does to us.
"""

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("torch.nn", reason="needs PyTorch: pip install 'discorl[torch]'")

import torch
import torch_cases as cases
from torch import Tensor

from discorl.rule_config import DiscoConfig
from discorl_torch.distributions import inverse_signed_hyperbolic, scalar_value
from discorl_torch.learner import Learner
from discorl_torch.losses import StepLosses
from discorl_torch.optim import ClippedAdam
from discorl_torch.rule import DiscoRule, Findings
from discorl_torch.types import Experience, Rollout, RuleState, Targets
from discorl_torch.views import see, see_and_take

pytestmark = pytest.mark.golden
MOST_SPREAD = 3e-4  # what that noise may do at most: it must not let just anything pass
SUM_NOISE = 7e-6  # how far a float32 sum of 601 products p·bin is from the exact one in 16 lanes; ours is within 2e-6


class Moment(NamedTuple):
    """Everything before an update and what the update logged."""

    agent: Any
    target_agent: Any
    rule_state: RuleState
    rollout: Rollout
    logs: dict[str, Tensor]
    grads: list[Tensor]
    parts: StepLosses


class Case(NamedTuple):
    data: dict[str, np.ndarray]
    rule: DiscoRule
    moments: list[Moment]
    learner: Learner  # after the last update
    noisy: list[tuple[list[Moment], Learner]]  # the same with other roundings of the values


@contextlib.contextmanager
def hearing(rule: DiscoRule) -> Iterator[list[StepLosses]]:
    """What `rule.loss` says of every step, while it is used by others."""
    heard: list[StepLosses] = []

    def loss(*args: Any) -> tuple[Tensor, StepLosses]:
        out = type(rule).loss(rule, *args)
        heard.append(out[1])
        return out

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule, "loss", loss, raising=False)
        yield heard


def three_updates(data: cases.Data, rule: DiscoRule) -> tuple[list[Moment], Learner]:
    agent = cases.recorded_agent(data)
    cfg = cases.settings(data)
    learner = Learner(agent, rule, ClippedAdam(agent.parameters(), lr=cfg["lr"]), mask="reference")
    moments = []
    for i in range(cfg["steps"]):
        before = copy.deepcopy(agent), copy.deepcopy(learner.target_agent), learner.rule_state
        rollout = cases.recorded_rollout(data, i)
        with hearing(rule) as heard:
            logs = learner.update(rollout)
        grads = [p.grad.clone() for p in agent.parameters() if p.grad is not None]
        moments.append(Moment(*before, rollout, logs, grads, StepLosses(*(x.detach() for x in heard[0]))))
    return moments, learner


@pytest.fixture(scope="module", params=["disco_seeded_a3", "disco_seeded_a6", "disco103_a3"])
def case(request: pytest.FixtureRequest) -> Case:
    data = cases.load(request.param)
    if "seeded" in request.param:
        rule = DiscoRule(DiscoConfig(), cases.seeded_arrays(cases.settings(data)["seed"] + 2))
    else:
        rule = DiscoRule.from_file(request.getfixturevalue("disco103_path"))
    noisy = []
    for seed in range(8):
        noise = torch.Generator().manual_seed(seed)

        def rounded(x: Tensor, noise: torch.Generator = noise) -> Tensor:
            return inverse_signed_hyperbolic(x + SUM_NOISE * (2 * torch.rand(x.shape, generator=noise) - 1))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("discorl_torch.distributions.inverse_signed_hyperbolic", rounded)
            noisy.append(three_updates(data, rule))
    return Case(data, rule, *three_updates(data, rule), noisy)


def close(got: Tensor, recorded: np.ndarray, rtol: float = 1e-5, atol: float = 0.0) -> None:
    """To `rtol` of the largest entry: single entries of a product may cancel to nothing."""
    np.testing.assert_allclose(got.detach(), recorded, rtol=rtol, atol=rtol * np.abs(recorded).max() + atol)


Read = Callable[[list[Moment], Learner], Tensor]


def close_up_to_rounding(case: Case, read: Read, recorded: np.ndarray, atol: float = 0.0) -> None:
    got = read(case.moments, case.learner)
    spread = max((read(*other) - got).abs().max().item() for other in case.noisy)
    assert spread < MOST_SPREAD * max(1.0, np.abs(recorded).max()), spread
    close(got, recorded, atol=2 * spread + atol)


def close_value(got: Tensor, recorded: np.ndarray) -> None:
    error = np.abs(got.numpy() - recorded)
    assert (error <= 2e-4 * np.sqrt(1 + np.abs(recorded))).all(), error.max()


def from_recorded_values(case: Case) -> tuple[Targets, Findings, StepLosses]:
    """The first update, with the recorded action values in place of our own; θ⁻ = θ there."""
    at = case.moments[0]
    with torch.no_grad():
        said, view = see_and_take(at.agent, case.rule, at.rollout)
        q = torch.tensor(case.data["step0/meta_out/q_value"])
        view = view._replace(actions=view.actions._replace(q=q))
        targets, _, findings = case.rule.explain(at.rule_state, Experience(at.rollout, view, view))
        _, parts = case.rule.loss(said, targets, at.rollout)
    return targets, findings, parts


def test_seeded_rule_is_the_recorded_one(case: Case) -> None:
    sums = {k.removeprefix("meta_params_checksum/"): v for k, v in case.data.items() if "checksum" in k}
    assert len(sums) in (0, 42)
    for name, total in sums.items():
        np.testing.assert_allclose(case.rule.eta[name].double().sum(), total, rtol=1e-6)


def test_outputs_of_every_action(case: Case) -> None:
    at = case.moments[0]
    outputs = at.agent(at.rollout.obs, at.rollout.first)
    assert set(outputs) == {"logits", "y", "z", "q", "aux_pi"}
    for name, got in outputs.items():
        close(got, case.data[f"step0/agent_out/{name}"])
    close_value(scalar_value(outputs["q"].detach().softmax(-1), case.rule.bins), case.data["step0/meta_out/q_value"])
    # logged there over all actions, here over the taken one
    np.testing.assert_allclose(outputs["z"][:-1].detach().mean(), case.data["step0/log/z"], rtol=1e-5, atol=1e-7)


def test_taken_action_is_one_of_them(case: Case) -> None:
    at = case.moments[0]
    everything = at.agent(at.rollout.obs, at.rollout.first)
    said, _ = see_and_take(at.agent, case.rule, at.rollout)
    for name in ("z", "q", "aux_pi"):
        x = everything[name][:-1]
        index = at.rollout.action[..., None, None].expand(*x.shape[:2], 1, x.shape[-1])
        close(getattr(said, name).logits[:-1], x.gather(2, index).squeeze(2).detach().numpy())


def test_action_values(case: Case) -> None:
    at = case.moments[0]
    view = see(at.agent, case.rule, at.rollout)
    recorded = case.data["step0/meta_out/q_value"]
    close_value(view.actions.q.detach(), recorded)
    # 0.94 to 0.96, on every instruction set tried; 0.7 to 0.87 with a root or a sum worse than float32 allows
    assert (view.actions.q.numpy() == recorded).mean() > 0.9
    values = case.rule.explain(at.rule_state, Experience(at.rollout, view, view))[2].values
    recorded = case.data["step0/meta_out/q_target"]
    np.testing.assert_allclose(values.q_target, recorded, rtol=0, atol=2e-4)


def test_what_follows_from_action_values(case: Case) -> None:
    values = from_recorded_values(case)[1].values
    recorded = {k.removeprefix("step0/meta_out/"): v for k, v in case.data.items() if "step0/meta_out" in k}
    for ours, theirs in {
        "q_target": "q_target",
        "advantage": "adv",
        "action_advantage": "qv_adv",
        "td": "q_td",
        "normalised_advantage": "normalized_adv",
        "normalised_action_advantage": "normalized_qv_adv",
        "normalised_td": "normalized_q_td",
    }.items():
        close(getattr(values, ours), recorded[theirs])


def test_targets(case: Case) -> None:
    _, findings, _ = from_recorded_values(case)
    for name in ("pi", "y", "z"):
        close(getattr(findings.meta, name).logits, case.data[f"step0/meta_out/{name}"])
    close(findings.meta.summary, case.data["step0/meta_out/meta_input_emb"])


def test_loss_of_every_step_from_recorded_values(case: Case) -> None:
    *_, parts = from_recorded_values(case)
    close(parts.pi + parts.y + parts.z + parts.aux, case.data["step0/agent_loss_per_step"])
    close(case.rule.config.value_cost * parts.q, case.data["step0/value_loss_per_step"])


@pytest.mark.parametrize("i", [0, 1, 2])
def test_loss_of_every_step(case: Case, i: int) -> None:
    def agent_loss(moments: list[Moment], _: Learner) -> Tensor:
        parts = moments[i].parts
        return parts.pi + parts.y + parts.z + parts.aux

    close_up_to_rounding(case, agent_loss, case.data[f"step{i}/agent_loss_per_step"])
    cost = case.rule.config.value_cost
    recorded = case.data[f"step{i}/value_loss_per_step"]
    close_up_to_rounding(case, lambda moments, _: cost * moments[i].parts.q, recorded)


LOGGED = {
    "total_loss": "total_loss",
    "global_gradient_norm": "gradient_norm",
    "global_update_norm": "update_norm",
    "agent_q_mean": "q",
    "q_target": "q_target",
    "td": "td",
    "normalized_td": "normalised_td",
    "pi_hat": "pi_hat",
    "y_hat": "y_hat",
    "z_hat": "z_hat",
    "pi_hat_entropy": "pi_hat_entropy",
    "pi_loss": "pi_loss",
    "aux_kl_loss": "aux_loss",
    "q_loss": "q_loss",
    "entropy": "entropy",
    "y_entropy": "y_entropy",
    "z_entropy": "z_entropy",
    "aux_policy_entropy": "aux_entropy",
    "aux_target_entropy": "aux_target_entropy",
    "logits": "logits",
    "y": "y",
}


@pytest.mark.parametrize("i", [0, 1, 2])
def test_every_logged_scalar(case: Case, i: int) -> None:
    recorded = {k.removeprefix(f"step{i}/log/"): v for k, v in case.data.items() if k.startswith(f"step{i}/log/")}
    assert set(recorded) == {*LOGGED, "z"}  # z: see test_outputs_of_every_action
    behind_transform = {"agent_q_mean", "q_target", "td", "normalized_td"}
    for theirs, ours in LOGGED.items():
        got, expected = case.moments[i].logs[ours], recorded[theirs]
        spread = max((moments[i].logs[ours] - got).abs().item() for moments, _ in case.noisy)
        values = theirs in behind_transform
        assert spread < (1e-3 if values else MOST_SPREAD) * max(1.0, abs(expected)), theirs
        atol = 2e-4 if values else 2e-6
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=atol + 2 * spread, err_msg=theirs)


@pytest.mark.parametrize("i", [0, 1, 2])
def test_lifetime_state_and_moments(case: Case, i: int) -> None:
    def after(moments: list[Moment], learner: Learner) -> RuleState:
        return moments[i + 1].rule_state if i < 2 else learner.rule_state

    for name in ("hidden", "cell"):
        recorded = case.data[f"step{i}/meta_rnn/lstm/meta_rnn_state/{name}"]
        close_up_to_rounding(case, lambda *run, name=name: getattr(after(*run).lifetime, name), recorded, atol=1e-5)
    for which, prefix in {"advantage": "adv_ema", "td": "td_ema"}.items():
        for ours, theirs in {"first": "moment1", "second": "moment2", "decay_product": "decay_product"}.items():
            read = lambda *run, which=which, ours=ours: getattr(getattr(after(*run), which), ours)  # noqa: E731
            close_up_to_rounding(case, read, case.data[f"step{i}/{prefix}/{theirs}"], atol=1e-5)


@pytest.mark.parametrize("which", ["agent", "target_agent"])
def test_parameters_after_three_updates(case: Case, which: str) -> None:
    """Adam divides a gradient by its own size: where it is nothing but rounding, so is the update."""
    recorded = cases.agent_arrays(case.data, "final/params" if which == "agent" else "final/target_params")

    def flat(learner: Learner) -> Tensor:
        params = dict(getattr(learner, which).named_parameters())
        assert set(params) == set(recorded)
        return torch.cat([params[name].detach().flatten() for name in recorded])

    error = (flat(case.learner) - torch.cat([x.flatten() for x in recorded.values()])).abs()
    spread = torch.stack([(flat(other) - flat(case.learner)).abs() for _, other in case.noisy]).amax(0)
    assert (spread < 1e-4).float().mean() > 0.99
    assert (error < 1e-4).float().mean() > 0.999
    names = [name for name, _ in case.learner.agent.named_parameters()]
    weakest = [torch.stack(grads).abs().amin(0) for grads in zip(*(m.grads for m in case.moments), strict=True)]
    clear = dict(zip(names, (weak.flatten() > 1e-6 for weak in weakest), strict=True))
    clear = torch.cat([clear[name] for name in recorded])
    assert clear.float().mean() > 0.5
    assert (error - 2 * spread)[clear].max() < 1e-4  # what the recording promises; 2e-6 here
