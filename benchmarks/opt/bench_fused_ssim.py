# SPDX-License-Identifier: Apache-2.0
"""Cost of the loss of an image, forward and backward: the plain one in torch, and the option fused_ssim.

    python benchmarks/opt/bench_fused_ssim.py --out benchmarks/results/NAME.json
    python benchmarks/opt/bench_fused_ssim.py --sizes 1242x375 --rounds 100

First the loss and its gradient are compared with those of the plain one in float64, to 1e-4 of the largest; versions that disagree are
not timed. Then both take turns. On a GPU each is captured in a graph and replayed, so that the host's time does not count. Bytes are the
least that kernels which keep three maps must move: forward two images read and three written, backward five read and one written.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.opt import kernel_times
from benchmarks.opt.kernel_times import Call, Report
from nurec_lite.native import ops
from nurec_lite.opt.all import fused_ssim
from nurec_lite.training import losses

SIZES = ("621x187", "1242x375", "1920x1080")
WEIGHT = 0.2
TOLERANCE = 1e-4  # variances are differences: the plain one in single precision is off by 5e-5 at 621x187 (CPU)
Pair = tuple[Tensor, Tensor]  # rendered (a leaf) and target, [H, W, 3]
VERSIONS: dict[str, Callable[..., Tensor]] = {"plain": losses.image_loss, "fused": fused_ssim.image_loss}


def size_of(text: str) -> tuple[int, int]:  # width, height
    width, height = map(int, text.split("x"))
    return width, height


def pair_of(size: str, device: torch.device) -> Pair:
    """Smooth, with noise."""
    width, height = size_of(size)
    generator = torch.Generator().manual_seed(0)
    y, x = torch.meshgrid(torch.linspace(0, 20, height), torch.linspace(0, 60, width), indexing="ij")
    target = 0.5 + 0.4 * torch.sin(torch.stack([x, y, x + y], dim=-1))
    rendered = target + 0.1 * torch.randn(target.shape, generator=generator)
    return rendered.to(device).requires_grad_(), target.to(device)


def with_gradient(loss: Callable[..., Tensor], pair: Pair) -> Pair:
    value = loss(*pair, WEIGHT)
    return value.detach(), torch.autograd.grad(value, pair[0])[0]


def error_of(version: str, pair: Pair) -> float:
    """Larger error of the loss and its gradient, as a share of the largest number."""
    exact = pair[0].detach().double().requires_grad_(), pair[1].double()
    return kernel_times.worst_error(with_gradient(VERSIONS[version], pair), with_gradient(losses.image_loss, exact))


def calls_of(version: str, pair: Pair) -> dict[str, Call]:
    """Forward alone, and with the backward pass; of ours the operators, as autograd calls them."""
    rendered, target = pair[0].detach(), pair[1]
    one = torch.ones((), device=target.device)

    def both() -> object:
        loss, slopes = torch.ops.nurec_lite.image_loss(rendered, target, WEIGHT)
        return loss, torch.ops.nurec_lite.image_loss_backward(rendered, target, WEIGHT, slopes, one)

    if version == "fused":
        return {"forward": lambda: torch.ops.nurec_lite.image_loss(rendered, target, WEIGHT), "and backward": both}
    loss = VERSIONS[version]
    return {"forward": lambda: loss(rendered, target, WEIGHT), "and backward": lambda: with_gradient(loss, pair)}


def least_bytes(size: str, what: str) -> int:
    width, height = size_of(size)
    return 4 * 3 * width * height * (5 if what == "forward" else 5 + 6)


def bench(args: argparse.Namespace, device: torch.device) -> Report:
    ops.load()
    problems = {size: (pair_of(size, device),) for size in args.sizes}
    return kernel_times.compared(VERSIONS, problems, error_of, calls_of, least_bytes, TOLERANCE, args, device)


def main(arguments: list[str]) -> int:
    p = kernel_times.parser(__doc__)
    p.add_argument("--sizes", nargs="+", default=list(SIZES), metavar="WxH", help="of images (%(default)s)")
    return kernel_times.main("benchmarks/opt/bench_fused_ssim.py", p, arguments, bench)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
