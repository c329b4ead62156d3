"""Adam as the agents of DiscoRL use it: each element of its step is clipped before the learning rate."""

from typing import Any

import torch
from torch import Tensor


class ClippedAdam(torch.optim.Optimizer):
    """Δ = −lr·(clip(m̂/(√ν̂ + ε), ±max_update) + weight_decay·θ)

    Kingma & Ba 2015 (https://arxiv.org/abs/1412.6980); the decay is decoupled (Loshchilov & Hutter 2019). Works with
    torch's learning-rate schedulers.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 3e-4,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        max_update: float = 1.0,
        weight_decay: float = 0.0,
    ):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, max_update=max_update, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure: None = None) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Changes the parameters and returns the norm of the change."""
        del closure
        norms = [self._move(p, group) for group in self.param_groups for p in group["params"] if p.grad is not None]
        return torch.stack(norms).norm() if norms else torch.zeros(())

    def _move(self, p: Tensor, group: dict[str, Any]) -> Tensor:
        assert p.grad is not None
        state = self.state[p]
        if not state:
            state.update(step=0, first=torch.zeros_like(p), second=torch.zeros_like(p))
        state["step"] += 1
        b1, b2 = group["betas"]
        state["first"].lerp_(p.grad, 1 - b1)
        state["second"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
        # m̂/(√ν̂ + ε) with both corrections in one factor: fewer passes over the parameters
        fix_first, fix_second = 1 - b1 ** state["step"], (1 - b2 ** state["step"]) ** 0.5
        scale = state["second"].sqrt().mul_(fix_first / fix_second).add_(fix_first * group["eps"])
        change = torch.div(state["first"], scale, out=scale).clamp_(-group["max_update"], group["max_update"])
        if group["weight_decay"]:
            change.add_(p, alpha=group["weight_decay"])
        p.sub_(change, alpha=group["lr"])
        return group["lr"] * change.norm()
