# SPDX-License-Identifier: Apache-2.0
"""short_keys: Gaussians are sorted from near to far by 24 or 16 bits of their distance instead of 32, so by fewer passes.

Idea: the radix sort of kernels/common takes 8 bits a pass, and a float's distance has many that say nothing: a sign, 240 octaves where
no Gaussian lies, and a mantissa finer than the rounding of a mean. A key here is the distance's own first bits within 16 octaves,
1/16 m to 4096 m: of floats' bits a difference, a clamp and a shift, which never put a nearer one after a farther one. With 24 bits
distances of one key differ by less than 2^-20 of themselves (0.06 mm at 80 m) and there are three passes, with 16 by less than 2^-12
(2 mm at 10 m, 16 mm at 80 m) and two. Steps grow with the distance, like the resolution of a sensor.
Source: none; floats' bits ascend as their logarithm does.
Gain, code before and after, limits: docs/options/short_keys.md.
Limits: on a GPU; on a CPU the order is the same, and nothing is gained. Rendering without training sorts by all bits. Gaussians with one
key are blended in the order of their index: all that are nearer than 1/16 m or behind the sensor, from where only a wide Gaussian
reaches a ray, and all beyond 4096 m. Class close: each Gaussian's response stays the same, and two change places in a ray's list
only where their distances share a key; that moves a pixel by at most a_i a_j |c_i - c_j| for each such pair, a its opacities there.
16 bits are the default: the quality gate of `all` was passed with them. 24 bits leave out about as much as the rounding of means some
hundred metres from the origin.
"""

from nurec_lite.base.errors import OptionError
from nurec_lite.training.stages import Stages, without_gpu

CLASS = "close"
REQUIRES: tuple[str, ...] = ()
BITS = (16, 24)


def unavailable(stages: Stages) -> str | None:
    return without_gpu(stages)


def apply(stages: Stages, *, bits: int) -> Stages:
    """`bits` of a key: 16 or 24."""
    if bits not in BITS:
        raise OptionError(f"option 'short_keys': bits is {bits}, but must be 16 or 24")
    return stages.planned("short_keys", depth_bits=bits)
