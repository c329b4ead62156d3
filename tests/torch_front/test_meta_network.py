import pytest

pytest.importorskip("torch.nn", reason="needs PyTorch: pip install 'discorl[torch]'")

import torch
import torch_cases as cases
from torch import Tensor

from discorl import rule_files
from discorl_torch.rule import DiscoRule
from discorl_torch.types import Digest, Experience, Rollout, View


def view(T: int, B: int, A: int, seed: int) -> View:
    rng = torch.Generator().manual_seed(seed)
    z = [torch.randn(T + 1, B, A, 1, generator=rng) for _ in range(2)]
    digest = Digest(torch.randn(T + 1, B, A, generator=rng), *z)
    fast, slow = (torch.randn(T + 1, B, 1, generator=rng) for _ in range(2))
    return View(torch.randn(T + 1, B, A, generator=rng), fast, slow, digest)


def experience(T: int = 6, B: int = 3, A: int = 4, seed: int = 0) -> Experience:
    return Experience(cases.random_rollout(T, B, A, seed=seed), view(T, B, A, seed + 1), view(T, B, A, seed + 2))


def warm(rule: DiscoRule):
    """A state of the rule as after some updates: at the start the gate would hide most of the network."""
    state = rule.start()
    for seed in range(3):
        _, state = rule.targets(state, experience(seed=10 * seed))
    return state


@pytest.mark.parametrize("activation", ["relu", "silu"])
@pytest.mark.parametrize("A", [2, 5])
def test_policy_targets_follow_a_reordering_of_actions(A, activation):
    rule = cases.tiny_rule(activation=activation)
    before, order = experience(A=A), torch.randperm(A, generator=torch.Generator().manual_seed(0))

    def reorder(seen: View) -> View:
        actions = Digest(*(x[:, :, order] for x in seen.actions))
        return View(seen.policy[..., order], seen.y_trajectory, seen.y_lifetime, actions)

    rollout = before.rollout
    rollout = rollout._replace(
        action=order.argsort()[rollout.action], behaviour_logits=rollout.behaviour_logits[..., order]
    )
    after = Experience(rollout, reorder(before.online), reorder(before.target))
    one, one_state = rule.targets(warm(rule), before)
    two, two_state = rule.targets(warm(rule), after)
    torch.testing.assert_close(two.pi.logits, one.pi.logits[..., order])
    torch.testing.assert_close(two.y.logits, one.y.logits)
    torch.testing.assert_close(two.z.logits, one.z.logits)
    torch.testing.assert_close(two_state.lifetime.hidden, one_state.lifetime.hidden)


def picked(x: Experience, rows: slice, columns: slice) -> Experience:
    """A stretch of time of some trajectories."""
    extra = slice(rows.start, rows.stop + 1)

    def cut(seen: View) -> View:
        policy, fast, slow = (a[extra, columns] for a in (seen.policy, seen.y_trajectory, seen.y_lifetime))
        return View(policy, fast, slow, Digest(*(a[extra, columns] for a in seen.actions)))

    r = x.rollout
    rollout = Rollout(r.obs[extra, columns], r.first[extra, columns], *(a[rows, columns] for a in r[2:6]))
    return Experience(rollout, cut(x.online), cut(x.target))


def meta_targets(rule: DiscoRule, x: Experience) -> list[Tensor]:
    """Without the moments, which are taken over the whole batch."""
    state = warm(rule)
    fixed = rule.start().advantage._replace(decay_product=torch.tensor(0.5), second=torch.tensor(1.0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("discorl_torch.values.update_moments", lambda *_: fixed)
        targets, _ = rule.targets(state, x)
    return [targets.pi.logits, targets.y.logits, targets.z.logits, targets.value]


def test_trajectories_do_not_see_each_other():
    rule, x = cases.tiny_rule(), experience(B=4)
    for whole, alone in zip(
        meta_targets(rule, x), meta_targets(rule, picked(x, slice(0, 6), slice(1, 2))), strict=True
    ):
        torch.testing.assert_close(whole[:, 1:2], alone)


def test_episodes_do_not_see_each_other():
    rule, x = cases.tiny_rule(), experience(T=7)
    discount = x.rollout.discount.clone()
    discount[3] = 0
    x = x._replace(rollout=x.rollout._replace(discount=discount))
    for whole, alone in zip(
        meta_targets(rule, x), meta_targets(rule, picked(x, slice(0, 4), slice(0, 3))), strict=True
    ):
        torch.testing.assert_close(whole[:4], alone)


def test_earlier_steps_see_later_ones():
    rule, x = cases.tiny_rule(), experience(T=5)
    x = x._replace(rollout=x.rollout._replace(discount=torch.ones(5, 3)))
    later = x._replace(
        rollout=x.rollout._replace(reward=x.rollout.reward + torch.tensor([0, 0, 0, 0, 4.0]).unsqueeze(-1))
    )
    before, after = meta_targets(rule, x), meta_targets(rule, later)
    assert all((a[0] != b[0]).any() for a, b in zip(before, after, strict=True))


def test_gradients_reach_the_weights_once_asked_for():
    rule = cases.tiny_rule()
    assert not any(p.requires_grad for p in rule.parameters())
    rule.requires_grad_()
    targets, state = rule.targets(warm(rule), experience())
    parts = (targets.pi.logits, targets.y.logits, targets.z.logits, state.lifetime.hidden)
    sum(x.square().sum() for x in parts).backward()  # pyright: ignore[reportAttributeAccessIssue]
    silent = [name for name, p in rule.weights.items() if p.grad is None or not p.grad.any()]
    # the encoders of y and z are used in `digest`, which this experience has behind it, but for one that reads ŷ
    assert all("/mlp/" in name or "/mlp_1/" in name for name in silent), silent
    assert "lstm/~/meta_lstm/~unroll/mlp/~/linear_0/w" not in silent
    assert rule.digest_state(torch.rand(2, 6))[0].requires_grad
    assert rule.digest(torch.rand(2, 6), torch.rand(2, 9)).z_lifetime.requires_grad


def test_a_rule_in_the_box_is_found_by_its_name_and_is_the_default(tmp_path, monkeypatch):
    monkeypatch.setattr(rule_files, "BUNDLED", tmp_path)
    rule = cases.tiny_rule(activation="silu")
    rule.to_file(tmp_path / "disco-mini.npz")
    for found in (DiscoRule.from_file("disco-mini"), DiscoRule.from_file()):
        assert (found.name, found.config) == ("disco-mini", rule.config)
        for name, x in rule.weights.items():
            torch.testing.assert_close(found.weights[name], x, rtol=0, atol=0)


def test_a_rule_survives_its_file(tmp_path):
    rule = cases.tiny_rule(activation="silu")
    rule.to_file(tmp_path / "rule.npz", {"by": "test"})
    back = DiscoRule.from_file(tmp_path / "rule.npz")
    assert back.config == rule.config and back.name == "rule"
    for name, x in rule.weights.items():
        torch.testing.assert_close(back.weights[name], x, rtol=0, atol=0)
