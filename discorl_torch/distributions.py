"""Categorical distributions given by logits, and scalars written as such distributions."""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

HYPERBOLIC_EPS = 1e-3  # ε of the signed-hyperbolic transform
BIN_EPS = 1e-5  # keeps the two-hot weights finite where both neighbours are the same bin


def select(x: Tensor, action: Tensor) -> Tensor:
    """x[..., A] at the given action."""
    return x.gather(-1, action.unsqueeze(-1)).squeeze(-1)


def signed_log(x: Tensor) -> Tensor:
    return x.sign() * x.abs().log1p()


def entropy(logits: Tensor) -> Tensor:
    log_p = logits.log_softmax(-1)
    return -(log_p.exp() * log_p).sum(-1)


def signed_hyperbolic(x: Tensor) -> Tensor:
    """h(x) = sign(x)(√(|x|+1) − 1) + εx: large values come close to each other."""
    return x.sign() * ((x.abs() + 1).sqrt() - 1) + HYPERBOLIC_EPS * x


def inverse_signed_hyperbolic(x: Tensor) -> Tensor:
    """h⁻¹(x) = sign(x)(((√(1+4ε(|x|+1+ε)) − 1)/2ε)² − 1)

    In float32 the difference cancels: results are good to about 2e-4·√(1+|h⁻¹|), with a bias of 1e-4 near 0. The order
    of operations is the one Disco103 was trained with, so that its bias is the same.
    """
    eps = HYPERBOLIC_EPS
    root = (1 + 4 * eps * (eps + 1 + x.abs())).sqrt() / 2 / eps - 1 / 2 / eps
    return x.sign() * (root.square() - 1)


def scalar_value(logits: Tensor, bins: Tensor) -> Tensor:
    """h⁻¹(Σₖ pₖ·binₖ): the number that a categorical value stands for."""
    return inverse_signed_hyperbolic(logits.softmax(-1) @ bins)


def two_hot(value: Tensor, bins: Tensor) -> tuple[Tensor, Tensor]:
    """Indices and weights, [..., 2] each, of the bins beside h(value)."""
    limit, step = bins[-1], bins[1] - bins[0]
    x = signed_hyperbolic(value).clamp(-limit, limit)
    position = (x - bins[0]) / step
    index = torch.stack([position.floor(), position.ceil()], -1).long().clamp(0, bins.numel() - 1)
    lower, upper = bins[index].unbind(-1)
    weight = (upper - x) / (upper - lower + BIN_EPS)
    return index, torch.stack([weight, 1 - weight], -1)


def _leading(rows: int, full: Tensor) -> tuple[Tensor, Tensor]:
    """A gradient for `full` of which only the first rows are yet to be filled, and those rows."""
    grad = torch.empty_like(full)
    grad[rows:].zero_()
    return grad, grad[:rows]


class _KL(torch.autograd.Function):
    """KL(P(target)‖P(logits)) over the last axis; gradient for `logits` only. Half the passes of the plain formula.

    `logits` may have more rows than `target`; those beyond get no gradient. Slicing them off first would cost a copy.
    """

    @staticmethod
    def forward(ctx, target: Tensor, logits: Tensor) -> Tensor:
        log_p, log_q = target.log_softmax(-1), logits[: target.shape[0]].log_softmax(-1)
        p = log_p.exp()
        ctx.save_for_backward(p, log_q, logits)
        return log_p.sub_(log_q).mul_(p).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads: Tensor):
        p, log_q, logits = ctx.saved_tensors
        grad, rows = _leading(p.shape[0], logits)
        torch.exp(log_q, out=rows).sub_(p).mul_(grads[0].unsqueeze(-1))
        return None, grad


class _TwoHotCrossEntropy(torch.autograd.Function):
    """−Σ weight·log P(logits)[index], without writing the target as a vector of K numbers. Rows as in `_KL`."""

    @staticmethod
    def forward(ctx, logits: Tensor, index: Tensor, weight: Tensor) -> Tensor:
        log_q = logits[: index.shape[0]].log_softmax(-1)
        ctx.save_for_backward(log_q, index, weight, logits)
        return -(log_q.gather(-1, index) * weight).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads: Tensor):
        log_q, index, weight, logits = ctx.saved_tensors
        grad, rows = _leading(log_q.shape[0], logits)
        torch.exp(log_q, out=rows).mul_(weight.sum(-1, keepdim=True)).scatter_add_(-1, index, -weight)
        rows.mul_(grads[0].unsqueeze(-1))
        return grad, None, None


def kl(target: Tensor, logits: Tensor) -> Tensor:
    """KL(P(target)‖P(logits)) for the rows of `target`, logits both; the target is a constant."""
    return _KL.apply(target.detach(), logits)  # pyright: ignore[reportReturnType]


def value_cross_entropy(value: Tensor, logits: Tensor, bins: Tensor) -> Tensor:
    """Cross-entropy between a number, as a two-hot distribution, and a categorical value; the number is a constant."""
    index, weight = two_hot(value.detach(), bins)
    return _TwoHotCrossEntropy.apply(logits, index, weight)  # pyright: ignore[reportReturnType]
