# SPDX-License-Identifier: Apache-2.0
"""Cost of the loss of a sweep, forward and backward: the plain one in torch, and the option fused_range.

    python benchmarks/opt/bench_fused_range.py --out benchmarks/results/NAME.json
    python benchmarks/opt/bench_fused_range.py --rays 8192 --rounds 100

First the weighted terms and their gradients are compared with those of the plain loss in float64, to 1e-4 of the largest; versions that
disagree are not timed. Then both take turns, with the ranges as targets and without. On a GPU each is captured in a graph and replayed,
so that the host's time does not count. Bytes are the least that must move: 26 a ray are read each way and 16 are written.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import sys
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from benchmarks.opt import kernel_times
from benchmarks.opt.kernel_times import Call, Report
from benchmarks.step.bench_step import positive
from nurec_lite.config import LossWeights
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.native import ops
from nurec_lite.opt.all import fused_range
from nurec_lite.splat.render import LidarReturns
from nurec_lite.training import losses

RAYS = (8192, 32768, 131072)
READ, WRITTEN = 26, 16  # bytes of a ray
TOLERANCE = 1e-4  # of the plain one in single precision, where a drop is nearly certain
Problem = tuple[LidarReturns, Sweep, Tensor, bool]  # as lidar_loss takes them
VERSIONS: dict[str, Callable[..., dict[str, Tensor]]] = {
    "plain": losses.lidar_loss,
    "fused": fused_range.lidar_loss,
}


def problem_of(rays: int, aimed: bool, device: torch.device) -> Problem:
    """Nine of ten rays return, and 99 of 100 count."""
    generator = torch.Generator().manual_seed(0)
    there, counted, passed, intensity, off = torch.rand(5, rays, generator=generator)
    returned = there < 0.9
    ranges, off = torch.where(returned, 80 * there, 0.0), off - 0.5
    features = torch.stack([intensity, 0.05 + 0.4 * off.abs()], dim=-1)
    returns = LidarReturns(off.abs() if aimed else ranges + off, ranges, features, 0.5 * passed)
    nothing = torch.zeros(rays)
    sweep = Sweep(nothing.expand(3, -1).T, ranges, torch.where(returned, there, 0.0), nothing, nothing.long(), returned)
    on_device = LidarReturns(*(getattr(returns, name).to(device) for name in LidarReturns.__dataclass_fields__))
    return on_device, sweep.to(device), (counted < 0.99).to(device), aimed


def problems_of(rays: list[int], device: torch.device) -> dict[str, Problem]:
    return {
        f"{n} rays{', aimed' if aimed else ''}": problem_of(n, aimed, device) for n in rays for aimed in (False, True)
    }


def in_double(returns: LidarReturns, sweep: Sweep) -> tuple[LidarReturns, Sweep]:
    doubled = LidarReturns(*(getattr(returns, name).double() for name in LidarReturns.__dataclass_fields__))
    return doubled, replace(sweep, ranges=sweep.ranges.double(), intensities=sweep.intensities.double())


def with_gradients(loss: Callable[..., dict[str, Tensor]], problem: Problem) -> list[Tensor]:
    """The terms, and gradients of the renderer's outputs."""
    returns, *others = problem
    leaves = [t.detach().requires_grad_() for t in (returns.distance, returns.features, returns.transmittance)]
    terms = loss(LidarReturns(leaves[0], returns.median, *leaves[1:]), *others)
    losses.backward(terms, LossWeights())
    grads = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves]
    return [torch.stack([term.detach() for term in terms.values()]), *grads]


def error_of(version: str, *problem: *Problem) -> float:
    """Largest error, as a share of the largest number of each output."""
    returns, sweep, *others = problem
    truth = with_gradients(losses.lidar_loss, (*in_double(returns, sweep), *others))
    return kernel_times.worst_error(with_gradients(VERSIONS[version], problem), truth)


def calls_of(version: str, *problem: *Problem) -> dict[str, Call]:
    """Forward alone, and with the backward pass; of ours the operators, as autograd calls them."""
    loss, (returns, sweep, *others) = VERSIONS[version], problem
    if version != "fused":
        return {"forward": lambda: loss(*problem), "and backward": lambda: with_gradients(loss, problem)}
    rendered = returns.distance, returns.features, returns.transmittance
    rays = *rendered, sweep.ranges, sweep.intensities, sweep.returned, *others
    one = torch.ones((), device=returns.distance.device)

    def both() -> object:
        *terms, counts = torch.ops.nurec_lite.lidar_loss(*rays)
        return terms, torch.ops.nurec_lite.lidar_loss_backward(*rays, counts, one, one, one)

    return {"forward": lambda: torch.ops.nurec_lite.lidar_loss(*rays), "and backward": both}


def least_bytes(size: str, what: str) -> int:
    return int(size.split()[0]) * (READ if what == "forward" else 2 * READ + WRITTEN)


def bench(args: argparse.Namespace, device: torch.device) -> Report:
    ops.load()
    problems = problems_of(args.rays, device)
    return kernel_times.compared(VERSIONS, problems, error_of, calls_of, least_bytes, TOLERANCE, args, device)


def main(arguments: list[str]) -> int:
    p = kernel_times.parser(__doc__)
    p.add_argument("--rays", type=positive, nargs="+", default=list(RAYS), help="of a sweep (%(default)s)")
    return kernel_times.main("benchmarks/opt/bench_fused_range.py", p, arguments, bench)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
