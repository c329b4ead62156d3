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
        norms = []
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if params:
                change = self._change(group, params)
                norms += torch._foreach_norm(change)
                torch._foreach_add_(params, change)
        return torch.stack(norms).norm() if norms else torch.zeros(())

    def _change(self, group: dict[str, Any], params: list[Tensor]) -> list[Tensor]:
        for p in params:
            if not self.state[p]:
                self.state[p] = {"step": 0, "first": torch.zeros_like(p), "second": torch.zeros_like(p)}
            self.state[p]["step"] += 1
        grads = [p.grad for p in params if p.grad is not None]
        first, second = ([self.state[p][key] for p in params] for key in ("first", "second"))
        b1, b2 = group["betas"]
        torch._foreach_lerp_(first, grads, 1 - b1)
        torch._foreach_mul_(second, b2)
        torch._foreach_addcmul_(second, grads, grads, 1 - b2)
        steps = [self.state[p]["step"] for p in params]
        change = torch._foreach_div(first, [1 - b1**n for n in steps])
        scale = torch._foreach_div(second, [1 - b2**n for n in steps])
        torch._foreach_sqrt_(scale)
        torch._foreach_add_(scale, group["eps"])
        torch._foreach_div_(change, scale)
        torch._foreach_clamp_min_(change, -group["max_update"])
        torch._foreach_clamp_max_(change, group["max_update"])
        if group["weight_decay"]:
            torch._foreach_add_(change, params, alpha=group["weight_decay"])
        torch._foreach_mul_(change, -group["lr"])
        return list(change)
