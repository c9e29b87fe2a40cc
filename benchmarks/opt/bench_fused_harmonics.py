# SPDX-License-Identifier: Apache-2.0
"""Cost of learning harmonics from colours: the backward pass of view_colour and the update of all Gaussians, with the
gradient of harmonics written in between (dense), and with the option fused_harmonics.

    python benchmarks/opt/bench_fused_harmonics.py --out benchmarks/results/NAME.json
    python benchmarks/opt/bench_fused_harmonics.py --sizes 100000x10 --rounds 100

A size is Gaussians x percent of them that belong to one of ten actors; harmonics are of degree 3. First gradients of means and rotations,
and after one update harmonics and their moments, are compared with those of torch in float64, to 1e-4 of the largest; versions that
disagree are not timed. Then the backward pass, the update, and one after the other take turns. On a GPU each is captured in a graph and
replayed, so that the host's time does not count. A fifth of the Gaussians have a gradient of their colour. Bytes are the least that must
move.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import sys
from dataclasses import replace

import torch
from torch import Tensor

from benchmarks.opt import bench_fused_adam, bench_fused_colour, kernel_times
from benchmarks.opt.bench_fused_adam import BETAS, EPSILON, Update, update_of
from benchmarks.opt.bench_fused_colour import SIZES, size_of, sized, with_gradients
from benchmarks.opt.kernel_times import Call, Report
from nurec_lite.native import ops
from nurec_lite.native.operators.view_colour import PlacementArrays
from nurec_lite.scene.gaussians import SplitGaussians
from nurec_lite.splat.render import view_colour

VERSIONS = ("dense", "fused")
DEGREE, COEFFICIENTS, OTHERS = 3, 16, 3 + 4 + 3 + 1 + 2  # numbers of a Gaussian that are no harmonics
SEEN = 0.2
TOLERANCE = 1e-4  # of the largest number: sums over an actor's Gaussians in single precision
Problem = tuple[SplitGaussians, Tensor, Tensor, Update]  # the Gaussians, the eye [3], the gradient of colours [N, 3]


def problem_of(size: str, device: torch.device) -> Problem:
    g, eye, d_colour = bench_fused_colour.problem_of(size, device)
    update = update_of(len(g), SEEN, DEGREE, device)
    for name in ("sh0", "sh_rest"):
        update.parameters[update.names.index(name)].copy_(getattr(g, name))
    return g, eye, d_colour, update


def harmonics_of(u: Update) -> tuple[int, int]:
    """Their places."""
    return u.names.index("sh0"), u.names.index("sh_rest")


def backward(version: str, g: SplitGaussians, eye: Tensor, d_colour: Tensor, u: Update) -> list[Tensor]:
    """Gradients of still means, means and rotations, then of the harmonics or their two factors."""
    placements = PlacementArrays(g.still_means, g.means, g.rotations, g.nodes)
    operator = (
        torch.ops.nurec_lite.view_colour_rank1 if version == "fused" else torch.ops.nurec_lite.view_colour_backward
    )
    return list(operator(placements, *(u.parameters[k] for k in harmonics_of(u)), eye, d_colour))


def update(version: str, u: Update, found: list[Tensor]) -> None:
    """Updates all parameters in place."""
    gradients: list[Tensor | None] = list(u.gradients)
    for k, gradient in zip(harmonics_of(u), found[3:], strict=True):
        gradients[k] = gradient if version == "dense" else None
    outer = [t[None] for t in found[3:]] if version == "fused" else (None, None)
    torch.ops.nurec_lite.adam(
        u.parameters, gradients, u.first, u.second, u.steps, u.rates, None, [False] * len(gradients), *BETAS, EPSILON,
        *outer,
    )  # fmt: skip


def both(version: str, g: SplitGaussians, eye: Tensor, d_colour: Tensor, u: Update) -> list[Tensor]:
    found = backward(version, g, eye, d_colour, u)
    update(version, u, found)
    return found


def error_of(version: str, g: SplitGaussians, eye: Tensor, d_colour: Tensor, u: Update) -> float:
    """Largest error, as a share of the largest number of each output."""
    exact = replace(g, **{k: v.double() for k, v in vars(g).items() if v.is_floating_point()})
    _, *d_placed, d_sh, d_rest = with_gradients(view_colour, exact, eye.double(), d_colour.double())
    ours, truth = u.copy(), u.copy(torch.float64)
    for k, gradient in zip(harmonics_of(u), (d_sh, d_rest), strict=True):
        truth.gradients[k] = gradient.contiguous()  # torch's fused Adam takes it for that
    found = both(version, g, eye, d_colour, ours)[:3]
    bench_fused_adam.call_of("torch", truth)()
    return kernel_times.worst_error([*found, *numbers(ours)], [*d_placed, *numbers(truth)])


def numbers(u: Update) -> list[Tensor]:
    """Harmonics and their moments."""
    return [one[k].detach() for one in (u.parameters, u.first, u.second) for k in harmonics_of(u)]


def calls_of(version: str, g: SplitGaussians, eye: Tensor, d_colour: Tensor, u: Update) -> dict[str, Call]:
    own = u.copy()
    found = backward(version, g, eye, d_colour, own)
    return {
        "backward": lambda: backward(version, g, eye, d_colour, own),
        "update": lambda: update(version, own, found),
        "both": lambda: both(version, g, eye, d_colour, own),
    }


def least_bytes(size: str, what: str) -> int:
    n, moving = size_of(size)
    backward = n * 4 * (3 + 3 * COEFFICIENTS + 3 + 3 + 6) + 8 * moving
    update = n * 4 * (6 * 3 * COEFFICIENTS + 6 + 7 * OTHERS)
    return {"backward": backward, "update": update, "both": backward + update}[what]


def bench(args: argparse.Namespace, device: torch.device) -> Report:
    ops.load()
    problems = {size: problem_of(size, device) for size in args.sizes}
    return kernel_times.compared(VERSIONS, problems, error_of, calls_of, least_bytes, TOLERANCE, args, device)


def main(arguments: list[str]) -> int:
    p = kernel_times.parser(__doc__)
    p.add_argument("--sizes", nargs="+", type=sized, default=list(SIZES), metavar="NxPERCENT", help="(%(default)s)")
    return kernel_times.main("benchmarks/opt/bench_fused_harmonics.py", p, arguments, bench)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
