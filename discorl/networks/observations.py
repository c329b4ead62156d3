"""What an observation is made of, and how its numbers reach a network."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from discorl.envs.base import EnvSpec
from discorl.envs.stacking import channels_first as channels_first

SMALLEST_IMAGE = 4  # cells; a smaller matrix is just numbers


def as_float(x: Array, dtype: jnp.dtype = jnp.dtype(jnp.float32)) -> Float[Array, "*S"]:
    """Bytes as numbers in [0, 1]; floats as they are; other integers and flags as their numbers."""
    numbers = x.astype(dtype)
    return numbers / 255 if x.dtype == jnp.uint8 else numbers


def entries(spec: EnvSpec) -> dict[str, EnvSpec]:
    """The entries of an observation by name, each as the only observation of an environment; '' if it has no parts."""
    leaves = jax.tree_util.tree_leaves_with_path(spec.observation)
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
    return {
        name: EnvSpec(f"{spec.name}, entry {name}" if name else spec.name, spec.num_actions, leaf)
        for name, (_, leaf) in zip(names, leaves, strict=True)
    }


def looks_like_image(shape: tuple[int, ...]) -> bool:
    """[H, W], [H, W, C], [C, H, W] or a stack of images [S, H, W, C]."""
    return len(shape) in (3, 4) or (len(shape) == 2 and min(shape) >= SMALLEST_IMAGE)


def as_images(x: Float[Array, "N *S"]) -> Float[Array, "N H W C"]:
    """Channels last; what is stacked becomes channels."""
    match x.ndim - 1:
        case 2:
            return x[..., None]
        case 4:
            return jnp.moveaxis(x, 1, -2).reshape(x.shape[0], *x.shape[2:4], -1)
        case _:
            return jnp.moveaxis(x, 1, -1) if channels_first(x.shape[1:]) else x


def centred(x: Float[Array, "N H W C"]) -> Float[Array, "N H W C"]:
    """Every channel of every image about its mean: a background is the same everywhere and says nothing."""
    return x - x.mean((1, 2), keepdims=True)


def folded(x: Float[Array, "N H W C"], side: int) -> Float[Array, "N H2 W2 C2"]:
    """Squares of `side`² pixels as channels; what is missing at the end is zero."""
    if side == 1:
        return x
    count, height, width, planes = x.shape
    padded = jnp.pad(x, ((0, 0), (0, -height % side), (0, -width % side), (0, 0)))
    squares = padded.reshape(count, -(-height // side), side, -(-width // side), side, planes)
    return jnp.moveaxis(squares, 2, 3).reshape(*squares.shape[:2], squares.shape[3], -1)
