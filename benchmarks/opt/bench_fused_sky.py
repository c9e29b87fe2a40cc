# SPDX-License-Identifier: Apache-2.0
"""Cost of the sky behind an image, forward and backward: the plain one in torch, and the option fused_sky.

    python benchmarks/opt/bench_fused_sky.py --out benchmarks/results/NAME.json
    python benchmarks/opt/bench_fused_sky.py --sizes 1242x375 --rounds 100

First the image and the gradients of transmittance and map are compared with those of the plain one in float64, to 1e-4 of the largest;
versions that disagree are not timed. Then both take turns. On a GPU each is captured in a graph and replayed, so that the host's time
does not count. Rays are those of a camera that looks ahead, row by row, over a map of 128x256 texels; a lower half is nearly opaque, as a
street is. Bytes are the least that kernels which keep nothing must move: forward features, transmittance and directions read and the image
written, backward the image's gradient, transmittance and directions read and the transmittance's gradient written.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import sys
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.opt import kernel_times
from benchmarks.opt.bench_fused_ssim import size_of
from benchmarks.opt.kernel_times import Call, Report
from nurec_lite.native import ops
from nurec_lite.native.operators.over_sky import over_sky as fused_over_sky
from nurec_lite.scene import sky

SIZES = ("621x187", "1242x375", "1920x1080")
MAP = (128, 256)  # rows and columns, those of model.sky_height
TOLERANCE = 1e-4  # of the largest number: angles in single precision are off by 1e-5 of a texel, sums over a texel's rays by more
Scene = tuple[Tensor, Tensor, Tensor, Tensor]  # features [R, 3], transmittance [R], map [3, H, W], directions [R, 3]
VERSIONS: dict[str, Callable[..., Tensor]] = {
    "plain": sky.over_sky,
    "fused": lambda *scene: fused_over_sky(*scene, fallback=sky.over_sky),
}


def scene_of(size: str, device: torch.device) -> Scene:
    """Scene seen through 80 degrees; x is ahead, z up."""
    width, height = size_of(size)
    generator = torch.Generator().manual_seed(0)
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    focal = width / 1.68
    directions = torch.stack([torch.ones_like(x), (width / 2 - x) / focal, (height / 2 - y) / focal], dim=-1)
    passed = torch.where(y < height / 2, 0.9, 1e-3) * torch.rand(height, width, generator=generator)
    features = torch.rand(height * width, 3, generator=generator)
    logits = torch.randn(3, *MAP, generator=generator)
    found = features, passed.flatten(), logits, F.normalize(directions, dim=-1).flatten(0, 1)
    return tuple(tensor.to(device) for tensor in found)  # type: ignore[return-value]


def problem_of(size: str, device: torch.device) -> tuple[Scene, Tensor]:
    """A scene, and the gradient of its image."""
    scene = scene_of(size, device)
    return scene, torch.randn(scene[0].shape, generator=torch.Generator().manual_seed(1)).to(device)


def with_gradients(over: Callable[..., Tensor], scene: Scene, d_image: Tensor) -> list[Tensor]:
    """The image, and gradients of all but the directions."""
    leaves = [tensor.detach().requires_grad_() for tensor in scene[:3]]
    image = over(*leaves, scene[3])
    return [image.detach(), *torch.autograd.grad(image, leaves, d_image)]


def error_of(version: str, scene: Scene, d_image: Tensor) -> float:
    """Largest error, as a share of the largest number of each output."""
    exact = [tensor.double() for tensor in scene]
    truth = with_gradients(sky.over_sky, (exact[0], exact[1], exact[2], exact[3]), d_image.double())
    return kernel_times.worst_error(with_gradients(VERSIONS[version], scene, d_image), truth)


def calls_of(version: str, scene: Scene, d_image: Tensor) -> dict[str, Call]:
    """Forward alone, and with the backward pass; of ours the operators, as autograd calls them."""

    def both() -> object:
        image = torch.ops.nurec_lite.over_sky(*scene)
        return image, torch.ops.nurec_lite.over_sky_backward(*scene[1:], d_image)

    if version == "fused":
        return {"forward": lambda: torch.ops.nurec_lite.over_sky(*scene), "and backward": both}
    over = VERSIONS[version]
    return {"forward": lambda: over(*scene), "and backward": lambda: with_gradients(over, scene, d_image)}


def least_bytes(size: str, what: str) -> int:
    width, height = size_of(size)
    forward, backward = 3 + 1 + 3 + 3, 3 + 1 + 3 + 1
    return 4 * width * height * (forward if what == "forward" else forward + backward)


def bench(args: argparse.Namespace, device: torch.device) -> Report:
    ops.load()
    problems = {size: problem_of(size, device) for size in args.sizes}
    return kernel_times.compared(VERSIONS, problems, error_of, calls_of, least_bytes, TOLERANCE, args, device)


def main(arguments: list[str]) -> int:
    p = kernel_times.parser(__doc__)
    p.add_argument("--sizes", nargs="+", default=list(SIZES), metavar="WxH", help="of images (%(default)s)")
    return kernel_times.main("benchmarks/opt/bench_fused_sky.py", p, arguments, bench)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
