"""Running mean and variance, kept over a lifetime, to bring advantages to one scale."""

import torch
from torch import Tensor

from discorl_torch.types import Moments

ROOT_EPS = 1e-12  # inside √: keeps d√x/dx finite
SCALE_EPS = 1e-6  # outside √: bounds the normalised value


def fresh_moments(device: torch.device | str | None = None) -> Moments:
    zero = torch.zeros((), device=device)
    return Moments(first=zero, second=zero.clone(), decay_product=zero + 1)


def update_moments(moments: Moments, x: Tensor, decay: float) -> Moments:
    return Moments(
        first=decay * moments.first + (1 - decay) * x.mean(),
        second=decay * moments.second + (1 - decay) * x.square().mean(),
        decay_product=decay * moments.decay_product,
    )


def normalise(moments: Moments, x: Tensor, *, centre: bool = True) -> Tensor:
    """(x − mean)/σ; without `centre` the mean stays. Update first, then normalise with the new moments."""
    correction = 1 - moments.decay_product
    mean = moments.first / correction
    variance = (moments.second / correction - mean.square()).clamp(min=0)
    return (x - mean if centre else x) / ((variance + ROOT_EPS).sqrt() + SCALE_EPS)
