"""Categorical distributions given by logits, and scalars written as such distributions."""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from discorl_torch.types import Categorical

HYPERBOLIC_EPS = 1e-3  # ε of the signed-hyperbolic transform
BIN_EPS = 1e-5  # keeps the two-hot weights finite where both neighbours are the same bin


def select(x: Tensor, action: Tensor) -> Tensor:
    """x[..., A] at the given action."""
    return x.gather(-1, action.unsqueeze(-1)).squeeze(-1)


def signed_log(x: Tensor) -> Tensor:
    return x.sign() * x.abs().log1p()


def categorical(logits: Tensor) -> Categorical:
    p = logits.softmax(-1)
    # the largest logit and its probability tell the normaliser, without another pass of exponentials
    return Categorical(logits, p, logits.amax(-1) - p.amax(-1).log())


def entropy(x: Categorical) -> Tensor:
    return x.lse - (x.p * x.logits).sum(-1)


def signed_hyperbolic(x: Tensor) -> Tensor:
    """h(x) = sign(x)(√(|x|+1) − 1) + εx: large values come close to each other."""
    return x.sign() * ((x.abs() + 1).sqrt() - 1) + HYPERBOLIC_EPS * x


def inverse_signed_hyperbolic(x: Tensor) -> Tensor:
    """h⁻¹(x) = sign(x)(((√(1+4ε(|x|+1+ε)) − 1)/2ε)² − 1)

    In float32 the difference cancels: results are good to about 2e-4·√(1+|h⁻¹|), with a bias of 1e-4 near 0. The order
    of operations is the one Disco103 was trained with, so that its bias is the same.
    """
    eps = HYPERBOLIC_EPS
    root = nearest_sqrt(1 + 4 * eps * (eps + 1 + x.abs())) / 2 / eps - 1 / 2 / eps
    return x.sign() * (root.square() - 1)


def nearest_sqrt(x: Tensor) -> Tensor:
    """√x, rounded to the nearest as IEEE 754 wants it.

    PyTorch on x86 asks MKL, which is off by one float32 in one of seven; h⁻¹ makes 1.2e-4·√(1+|h⁻¹|) of that. Some
    other devices have no float64.
    """
    return x.double().sqrt().to(x.dtype) if x.device.type == "cpu" else x.sqrt()


def scalar_value(p: Tensor, bins: Tensor) -> Tensor:
    """h⁻¹(Σₖ pₖ·binₖ): the number that a categorical value stands for.

    Bins lie symmetrically about 0, and ±k are summed as k·(pₖ − p₋ₖ). From end to end, a flat p makes the sum go to −75
    and come back: in float32 that costs 8e-6 to 1e-4, by the order in which a processor adds, not 2e-6 in any order.
    """
    half = bins.numel() // 2
    excess = p[..., :half].flip(-1).sub_(p[..., -half:])  # p₋ₖ − pₖ
    return inverse_signed_hyperbolic(excess @ -bins[-half:])


def two_hot(value: Tensor, bins: Tensor) -> tuple[Tensor, Tensor]:
    """Indices and weights, [..., 2] each, of the bins beside h(value)."""
    limit, step = bins[-1], bins[1] - bins[0]
    x = signed_hyperbolic(value).clamp(-limit, limit)
    position = (x - bins[0]) / step
    index = torch.stack([position.floor(), position.ceil()], -1).long().clamp(0, bins.numel() - 1)
    lower, upper = bins[index].unbind(-1)
    weight = (upper - x) / (upper - lower + BIN_EPS)
    return index, torch.stack([weight, 1 - weight], -1)


class _KL(torch.autograd.Function):
    """Σ p̂·(ŷ − y) − lse(ŷ) + lse(y) with gradient p − p̂ for the logits y, three passes forward and two back.

    y may have more rows than the target ŷ; those beyond get no gradient. Slicing them off first would cost a copy.
    """

    @staticmethod
    def forward(ctx, logits: Tensor, now: Categorical, target: Categorical) -> Tensor:
        rows = target.p.shape[0]
        ctx.save_for_backward(now.p, target.p)
        return (target.logits - logits[:rows]).mul_(target.p).sum(-1).sub_(target.lse).add_(now.lse[:rows])

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        p, target = ctx.saved_tensors
        rows = target.shape[0]
        grad = torch.empty_like(p)
        grad[rows:].zero_()
        torch.sub(p[:rows], target, out=grad[:rows]).mul_(grads[0].unsqueeze(-1))
        return grad, None, None


class _TwoHotCrossEntropy(torch.autograd.Function):
    """lse(q) − Σ weight·q[index], without writing the target as a vector of K numbers. Rows as in `_KL`."""

    @staticmethod
    def forward(ctx, logits: Tensor, now: Categorical, index: Tensor, weight: Tensor) -> Tensor:
        rows = index.shape[0]
        ctx.save_for_backward(now.p, index, weight)
        return now.lse[:rows] - (logits[:rows].gather(-1, index) * weight).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        p, index, weight = ctx.saved_tensors
        rows, outer = index.shape[0], grads[0].unsqueeze(-1)
        grad = torch.empty_like(p)
        grad[rows:].zero_()
        torch.mul(p[:rows], outer, out=grad[:rows]).scatter_add_(-1, index, -weight * outer)
        return grad, None, None, None


def kl(target: Categorical, now: Categorical) -> Tensor:
    """KL(target‖now) for the rows of `target`, which is a constant; the gradient goes to the logits of `now`."""
    return _KL.apply(now.logits, now, target)  # pyright: ignore[reportReturnType]


def value_cross_entropy(value: Tensor, now: Categorical, bins: Tensor) -> Tensor:
    """Cross-entropy between a number, as a two-hot distribution, and a categorical value; the number is a constant."""
    index, weight = two_hot(value.detach(), bins)
    return _TwoHotCrossEntropy.apply(now.logits, now, index, weight)  # pyright: ignore[reportReturnType]
