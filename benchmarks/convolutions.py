"""Residual convolutions on CPU: gradients by XLA's own against products, alone and in a loop, with and without folding.

    python benchmarks/convolutions.py [--rounds 5] [--images 128]

One gradient of the torso of `impala-small` by its parameters. Training on compiled environments is a loop of updates;
there XLA makes gradients of convolutions by naive code. Milliseconds, medians, both ways taking turns.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from discorl import convolution
from discorl.envs.base import EnvSpec
from discorl.networks import Torso, impala_torso


def gradient(torso: Torso, images: Any, loop: int) -> Callable[[Any], Any]:
    """Parameters after `loop` steps down the gradient; 0: after one, without a loop."""
    first = jnp.zeros((1, len(images)), jnp.bool_)

    def step(params: Any, _: Any = None) -> tuple[Any, None]:
        found = jax.grad(lambda p: jnp.square(torso.unroll(p, (), images[None], first)[0]).mean())(params)
        return jax.tree.map(lambda x, dx: x - 1e-6 * dx, params, found), None

    return jax.jit(lambda params: jax.lax.scan(step, params, length=loop)[0] if loop else step(params)[0])


def with_convolution(convolve: Callable[..., Any], make: Callable[[], Callable[[Any], Any]], params: Any) -> Any:
    """A program that was traced while `convolution._convolve` was another function."""
    ours, convolution._convolve = convolution._convolve, convolve
    try:
        program = make()
        jax.block_until_ready(program(params))
        return program
    finally:
        convolution._convolve = ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=128)
    args = parser.parse_args()
    print("| images | | XLA's own | products | ratio |\n|---|---|---|---|---|")
    for shape, channels, fold in (
        ((10, 10, 4), (16, 32), 1),
        ((84, 84, 4), (16, 32, 32), 1),
        ((84, 84, 4), (16, 32, 32), 2),
        ((84, 84, 4), (16, 32, 32), 4),
    ):
        spec = EnvSpec("images", 6, jax.ShapeDtypeStruct(shape, jnp.float32))
        torso = impala_torso(spec, channels, fold=fold)
        params = jax.jit(torso.init)(jax.random.key(0))
        images = jax.random.normal(jax.random.key(1), (args.images, *shape))
        for loop in (0, 2):
            make = partial(gradient, torso, images, loop)
            ways = [
                with_convolution(way, make, params) for way in (convolution._convolve_natively, convolution._convolve)
            ]
            times = np.array([[_seconds(way, params) for way in ways] for _ in range(args.rounds)]) / max(1, loop)
            native, ours = np.median(times, axis=0) * 1000
            ratio = np.median(times[:, 0] / times[:, 1])
            what = f"{args.images} of {'x'.join(map(str, shape))}" + (f", folded by {fold}" if fold > 1 else "")
            print(
                f"| {what} | {'in a loop' if loop else 'alone'} | {native:.0f} | {ours:.0f} | {ratio:.1f} |", flush=True
            )


def _seconds(program: Callable[[Any], Any], params: Any) -> float:
    begun = time.perf_counter()
    jax.block_until_ready(program(params))
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
