import numpy as np
import pytest

pytest.importorskip("torch.nn", reason="needs PyTorch: pip install 'discorl[torch]'")

import torch
from torch import Tensor

from discorl_torch import distributions as d
from discorl_torch.types import Categorical

BINS = torch.linspace(-300, 300, 601)


def logits(*shape: int, seed: int = 0, scale: float = 2.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def learning(x: Tensor) -> tuple[Tensor, Categorical]:
    x = x.clone().requires_grad_()
    return x, d.categorical(x.detach())._replace(logits=x)


def test_categorical_knows_its_normaliser():
    x = d.categorical(logits(4, 5, 7, scale=30.0))
    torch.testing.assert_close(x.lse, x.logits.logsumexp(-1))
    torch.testing.assert_close(x.p, x.logits.softmax(-1))
    torch.testing.assert_close(d.entropy(x), torch.distributions.Categorical(logits=x.logits).entropy())


def test_kl_equals_the_plain_formula_and_its_gradient():
    target = d.categorical(logits(4, 3, 7, seed=1))
    x, now = learning(logits(4, 3, 7))
    weights = torch.rand(4, 3)
    (d.kl(target, now) * weights).sum().backward()
    plain = x.detach().clone().requires_grad_()
    log_p = target.logits.log_softmax(-1)
    expected = (log_p.exp() * (log_p - plain.log_softmax(-1))).sum(-1)
    (expected * weights).sum().backward()
    torch.testing.assert_close(d.kl(target, now), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(x.grad, plain.grad)


def test_kl_of_a_distribution_to_itself_is_zero():
    x = d.categorical(logits(6, 9))
    torch.testing.assert_close(d.kl(x, x), torch.zeros(6), rtol=0, atol=1e-6)


def test_rows_beyond_the_target_get_no_gradient():
    target = d.categorical(logits(4, 3, 7, seed=1))
    x, now = learning(logits(5, 3, 7))
    d.kl(target, now).sum().backward()
    assert x.grad is not None and (x.grad[-1] == 0).all() and (x.grad[:-1] != 0).any(-1).all()
    q, now = learning(logits(5, 3, 601))
    d.value_cross_entropy(torch.randn(4, 3), now, BINS).sum().backward()
    assert q.grad is not None and (q.grad[-1] == 0).all() and (q.grad[:-1] != 0).any(-1).all()


@pytest.mark.parametrize("value", [-1e6, -37.2, -1.0, 0.0, 0.4, 2.0, 812.5, 1e6])
def test_value_cross_entropy_equals_the_dense_formula_and_its_gradient(value):
    x, now = learning(logits(2, 3, 601))
    got = d.value_cross_entropy(torch.full((2, 3), value), now, BINS)
    got.sum().backward()
    # the target written out, as one vector of 601 numbers
    position = np.clip(np.sign(value) * (np.sqrt(abs(value) + 1) - 1) + 1e-3 * value, -300, 300)
    lower, upper = np.floor(position), np.ceil(position)
    weight = (upper - position) / (upper - lower + 1e-5)
    dense = torch.zeros(601)
    dense[int(lower) + 300] += float(weight)
    dense[int(upper) + 300] += float(1 - weight)
    plain = x.detach().clone().requires_grad_()
    expected = -(dense * plain.log_softmax(-1)).sum(-1)
    expected.sum().backward()
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(x.grad, plain.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("value", [-900.0, -3.5, 0.0, 0.25, 17.0, 4000.0])
def test_a_value_survives_being_written_as_two_bins(value):
    index, weight = d.two_hot(torch.tensor([value]), BINS)
    p = torch.zeros(1, 601).scatter_add_(-1, index, weight)
    torch.testing.assert_close(d.scalar_value(p, BINS), torch.tensor([value]), rtol=1e-3, atol=2e-3)


def test_a_value_is_as_exact_as_its_probabilities(monkeypatch: pytest.MonkeyPatch):
    """On every processor: each adds in another order, and the plain sum of 601 products is off by 8e-6 at best."""
    monkeypatch.setattr(d, "inverse_signed_hyperbolic", lambda x: x)
    p = logits(50, 601, scale=0.3).softmax(-1)
    exact = p.double() @ BINS.double()
    torch.testing.assert_close(d.scalar_value(p, BINS).double(), exact, rtol=0, atol=4e-6)
    for bins in (torch.linspace(-4, 4, 9), torch.linspace(-4, 4, 8)):  # with a bin at 0 and without
        p = logits(3, 5, bins.numel()).softmax(-1)
        torch.testing.assert_close(d.scalar_value(p, bins), (p * bins).sum(-1))


def test_roots_are_rounded_to_the_nearest():
    x = 1 + torch.rand(10_000, generator=torch.Generator().manual_seed(0))
    np.testing.assert_array_equal(d.nearest_sqrt(x), np.sqrt(x.numpy()))


def test_signed_hyperbolic_and_its_inverse_cancel():
    x = torch.linspace(-500, 500, 101)
    torch.testing.assert_close(d.inverse_signed_hyperbolic(d.signed_hyperbolic(x)), x, rtol=1e-3, atol=1e-3)
