# SPDX-License-Identifier: Apache-2.0
"""Cost of the colours of all Gaussians, forward and backward: directions in torch and the kernel of harmonics, and
fused_colour.

    python benchmarks/opt/bench_fused_colour.py --out benchmarks/results/NAME.json
    python benchmarks/opt/bench_fused_colour.py --sizes 100000x10 --rounds 100

A size is Gaussians x percent of them that belong to one of ten actors. First colours and gradients are compared with those of torch in
float64, to 1e-4 of the largest; versions that disagree are not timed. Then both take turns. On a GPU each is captured in a graph and
replayed, so that the host's time does not count. A fifth of the Gaussians have a gradient, as of an image that sees a fifth. Bytes are
the least that must move: forward means, nodes and coefficients read and colours written, backward also colours' gradients, and all
gradients written.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.opt import kernel_times
from benchmarks.opt.kernel_times import Call, Report
from nurec_lite.native import ops
from nurec_lite.native import stages as native
from nurec_lite.native.plan import CPU_PLAN
from nurec_lite.scene.gaussians import SplitGaussians
from nurec_lite.splat.render import view_colour

SIZES = ("100000x3", "1000000x3", "1000000x30")
ACTORS = 10
COEFFICIENTS = 16
TOLERANCE = 1e-4  # of the largest number: sums over an actor's Gaussians in single precision
LEAVES = ("still_means", "means", "rotations", "sh0", "sh_rest")
Colours = Callable[[SplitGaussians, Tensor], Tensor]  # as an eye sees them
VERSIONS: dict[str, Colours] = {
    "plain": native.colours_of,
    "fused": partial(native.colours_of, plan=replace(CPU_PLAN, fused_colour=True)),
}
Problem = tuple[SplitGaussians, Tensor, Tensor]  # the Gaussians, the eye [3], the gradient of colours [N, 3]


def size_of(size: str) -> tuple[int, int]:
    """Gaussians, and those of actors."""
    try:
        n, percent = (int(number) for number in size.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{size}' is no size such as 1000000x3") from None
    if n < 1 or not 0 <= percent <= 100:
        raise argparse.ArgumentTypeError(f"'{size}' has not one Gaussian or more, and 0 to 100 percent")
    return n, n * percent // 100


def problem_of(size: str, device: torch.device) -> Problem:
    (n, moving), generator = size_of(size), torch.Generator().manual_seed(0)
    still = n - moving

    def made(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    node = torch.randint(ACTORS, (moving,), generator=generator).sort().values.to(device)
    g = SplitGaussians(
        still_means=30 * made(still, 3), still_quats=made(still, 4), means=30 * made(moving, 3), quats=made(moving, 4),
        velocities=made(moving, 3), rotations=F.normalize(made(ACTORS, 4), dim=-1), nodes=node, scales=made(n, 3),
        opacities=made(n), sh0=made(n, 1, 3), sh_rest=0.1 * made(n, COEFFICIENTS - 1, 3), lidar=made(n, 2),
    )  # fmt: skip
    seen = torch.rand(n, 1, generator=generator) < 0.2
    return g, torch.tensor([0.5, -1.0, 1.6], device=device), made(n, 3) * seen.to(device)


def with_gradients(colours: Colours, g: SplitGaussians, eye: Tensor, d_colour: Tensor) -> list[Tensor]:
    leaves = {name: getattr(g, name).detach().requires_grad_() for name in LEAVES}
    colour = colours(replace(g, **leaves), eye)
    return [
        colour.detach(),
        *torch.autograd.grad(colour, list(leaves.values()), d_colour, materialize_grads=True, allow_unused=True),
    ]


def error_of(version: str, g: SplitGaussians, eye: Tensor, d_colour: Tensor) -> float:
    """Largest error, as a share of the largest number of each output."""
    exact = replace(g, **{k: v.double() for k, v in vars(g).items() if v.is_floating_point()})
    truth = with_gradients(view_colour, exact, eye.double(), d_colour.double())
    return kernel_times.worst_error(with_gradients(VERSIONS[version], g, eye, d_colour), truth)


def calls_of(version: str, g: SplitGaussians, eye: Tensor, d_colour: Tensor) -> dict[str, Call]:
    """Forward alone, and with the backward pass."""
    colours = VERSIONS[version]

    def forward() -> Tensor:
        with torch.no_grad():
            return colours(g, eye)

    return {"forward": forward, "and backward": lambda: with_gradients(colours, g, eye, d_colour)}


def least_bytes(size: str, what: str) -> int:
    n, moving = size_of(size)
    read, colours = n * (3 + 3 * COEFFICIENTS) * 4 + 8 * moving, 12 * n
    backward = read + colours + n * (3 + 3 * COEFFICIENTS) * 4
    return read + colours if what == "forward" else read + colours + backward


def bench(args: argparse.Namespace, device: torch.device) -> Report:
    ops.load()
    problems = {size: problem_of(size, device) for size in args.sizes}
    return kernel_times.compared(VERSIONS, problems, error_of, calls_of, least_bytes, TOLERANCE, args, device)


def sized(size: str) -> str:
    size_of(size)
    return size


def main(arguments: list[str]) -> int:
    p = kernel_times.parser(__doc__)
    p.add_argument("--sizes", nargs="+", type=sized, default=list(SIZES), metavar="NxPERCENT", help="(%(default)s)")
    return kernel_times.main("benchmarks/opt/bench_fused_colour.py", p, arguments, bench)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
