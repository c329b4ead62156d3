import pytest

pytest.importorskip("torch.nn", reason="needs PyTorch: pip install 'discorl[torch]'")

import torch
import torch_cases as cases
from torch import Tensor

from discorl_torch.moments import fresh_moments, normalise, update_moments
from discorl_torch.types import Experience
from discorl_torch.values import estimate_values, importance_ratio, retrace
from discorl_torch.views import see


def inputs(T: int, B: int, seed: int = 0) -> list[Tensor]:
    rng = torch.Generator().manual_seed(seed)
    reward, q = (torch.randn(T, B, generator=rng) for _ in range(2))
    discount = 0.9 * (torch.rand(T, B, generator=rng) > 0.3)
    return [reward, discount, torch.randn(T + 1, B, generator=rng), q, torch.rand(T, B, generator=rng)]


@pytest.mark.parametrize("T, B", [(1, 1), (2, 3), (7, 4)])
def test_retrace_equals_the_sum_over_all_later_steps(T, B):
    """G_t − Q_t = Σ_k (Π_{t<i≤k} γ_{i−1} c_i) δ_k, δ_k = r + γ V_{k+1} − Q_k: the definition, as a double loop."""
    reward, discount, value, q, trace = (x.double() for x in inputs(T, B))
    expected = torch.zeros(T, B, dtype=torch.float64)
    for t in range(T):
        weight, total = torch.ones(B, dtype=torch.float64), torch.zeros(B, dtype=torch.float64)
        for k in range(t, T):
            if k > t:
                weight = weight * discount[k - 1] * trace[k]
            total = total + weight * (reward[k] + discount[k] * value[k + 1] - q[k])
        expected[t] = q[t] + total
    torch.testing.assert_close(retrace(reward, discount, value, q, trace), expected)


def test_without_traces_retrace_looks_one_step_ahead():
    reward, discount, value, q, trace = inputs(6, 3)
    expected = reward + discount * value[1:]
    torch.testing.assert_close(retrace(reward, discount, value, q, 0 * trace), expected)


def test_no_return_crosses_the_end_of_an_episode():
    reward, discount, value, q, trace = inputs(6, 3)
    discount[2] = 0
    changed = [x.clone() for x in (reward, value, q, trace)]
    for x in changed:
        x[3:] += 5
    got = retrace(changed[0], discount, changed[1], changed[2], changed[3])
    torch.testing.assert_close(got[:3], retrace(reward, discount, value, q, trace)[:3])


def test_the_ratio_is_one_on_policy():
    logits, action = torch.randn(4, 2, 3), torch.randint(3, (4, 2))
    torch.testing.assert_close(importance_ratio(logits, logits, action), torch.ones(4, 2))
    assert not torch.allclose(importance_ratio(logits, -logits, action), torch.ones(4, 2))


def test_moments_of_many_batches_are_those_of_the_data():
    torch.manual_seed(0)
    moments = fresh_moments()
    for _ in range(400):
        moments = update_moments(moments, 3 + 2 * torch.randn(50, 40), 0.99)
    x = torch.tensor([3.0, 5.0])
    torch.testing.assert_close(normalise(moments, x), torch.tensor([0.0, 1.0]), rtol=0.02, atol=0.02)
    torch.testing.assert_close(normalise(moments, x, centre=False), x / 2, rtol=0.02, atol=0.0)


def test_the_first_batch_is_normalised_by_itself():
    x = torch.randn(8, 5)
    got = normalise(update_moments(fresh_moments(), x, 0.99), x)
    torch.testing.assert_close(got.mean(), torch.tensor(0.0), rtol=0, atol=1e-5)
    torch.testing.assert_close(got.square().mean(), torch.tensor(1.0), rtol=1e-4, atol=0)


def test_values_use_the_online_policy_on_the_target_values():
    rule, rollout = cases.tiny_rule(), cases.random_rollout()
    online, target = see(cases.tiny_agent(), rule, rollout), see(cases.tiny_agent(obs_size=4), rule, rollout)
    target = target._replace(actions=target.actions._replace(q=target.actions.q + 1.5), policy=target.policy + 3)
    values, _ = estimate_values(Experience(rollout, online, target), rule.start(), rule.config)
    policy = online.policy.softmax(-1)
    torch.testing.assert_close(values.value, (policy * online.actions.q).sum(-1))
    v = (policy * target.actions.q).sum(-1)
    torch.testing.assert_close(values.advantage, values.q_target - v[:-1])
    torch.testing.assert_close(values.action_advantage, target.actions.q - v.unsqueeze(-1))
