"""Images through residual convolutions, after Espeholt et al. 2018, fig. 3 (https://arxiv.org/abs/1802.01561)."""

from collections.abc import Iterator
from typing import NamedTuple

import jax
from jaxtyping import Array, Float

from discorl import nn
from discorl.convolution import conv, conv_size, max_pool
from discorl.envs.base import EnvSpec
from discorl.errors import DiscorlError
from discorl.networks.base import Torso, feed_forward
from discorl.networks.observations import as_float, as_images, centred, entries, folded, looks_like_image
from discorl.types import Key, Observation

SMALL = (16, 32, 32)  # channels of Espeholt et al.
PAPER = (256, 384, 384, 256)  # of the agents that Disco103 was evaluated with, Oh et al. 2025
BLOCKS = 2
LARGE = 32  # pixels; boards of fewer cells are never folded, nor centred


class Section(NamedTuple):
    conv: nn.Linear
    blocks: tuple[tuple[nn.Linear, nn.Linear], ...]


class ImpalaParams(NamedTuple):
    sections: tuple[Section, ...]
    hidden: tuple[nn.Linear, ...]


def impala_torso(
    spec: EnvSpec,
    channels: tuple[int, ...] = SMALL,
    hidden: tuple[int, ...] = (256,),
    *,
    blocks: int = BLOCKS,
    fold: int = 1,
) -> Torso:
    """Sections of convolution, max-pool and residual blocks, each of half the size; then layers of widths `hidden`.

    Images of bytes or floats: [H, W], [H, W, C], square planes [C, H, H], stacks [S, H, W, C]; small boards too. With
    `fold`, large images are first made smaller without losing a pixel: its squares become channels.
    """
    height, width, planes = _image_shape(spec)
    large = min(height, width) >= LARGE
    fold = fold if large else 1
    height, width, planes = -(-height // fold), -(-width // fold), planes * fold**2
    for _ in channels:
        height, width = -(-height // 2), -(-width // 2)

    def init(key: Key) -> ImpalaParams:
        sizes = [size for i, o in zip((planes, *channels), channels, strict=False) for size in _section_sizes(i, o)]
        flat = height * width * (channels[-1] if channels else planes)
        layers = iter(nn.init_linears(key, [_before_relu(size) for size in (*sizes, *nn.mlp_sizes(flat, hidden))]))
        return ImpalaParams(sections=tuple(_section(layers) for _ in channels), hidden=tuple(layers))

    def _section_sizes(inputs: int, outputs: int) -> list[nn.LinearSize]:
        return [conv_size(inputs, outputs), *[conv_size(outputs, outputs)] * (2 * blocks)]

    def _section(layers: Iterator[nn.Linear]) -> Section:
        return Section(next(layers), tuple((next(layers), next(layers)) for _ in range(blocks)))

    def apply(params: ImpalaParams, obs: Observation) -> Float[Array, "N E"]:
        (image,) = jax.tree.leaves(obs)
        x = as_images(as_float(image, params.hidden[0].w.dtype))
        x = folded(centred(x), fold) if large else x
        for section in params.sections:
            x = max_pool(conv(section.conv, x))
            for one, two in section.blocks:
                x = x + conv(two, jax.nn.relu(conv(one, jax.nn.relu(x))))
        x = jax.nn.relu(x).reshape(x.shape[0], -1)
        return jax.nn.relu(nn.mlp(params.hidden, x))

    return feed_forward(init, apply)


def _before_relu(size: nn.LinearSize) -> nn.LinearSize:
    """√2 times the usual weights (He et al. 2015): over so many ReLUs, small differences of images would be lost."""
    return size._replace(scale=(2 / size.inputs) ** 0.5)


def _image_shape(spec: EnvSpec) -> tuple[int, int, int]:
    shapes = [entry.observation.shape for entry in entries(spec).values()]
    if len(shapes) != 1:
        raise DiscorlError(f"{spec.name!r} has {len(shapes)} entries per observation: give each an encoder of its own")
    if not looks_like_image(shapes[0]):
        raise DiscorlError(
            f"convolutions need images, [H, W] or [H, W, C], but {spec.name!r} observes {list(shapes[0])}; "
            "use the agent mlp, lstm or gru"
        )
    example = jax.ShapeDtypeStruct((1, *shapes[0]), jax.numpy.float32)
    _, height, width, planes = jax.eval_shape(as_images, example).shape
    return height, width, planes
