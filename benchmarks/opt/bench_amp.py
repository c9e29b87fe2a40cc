# SPDX-License-Identifier: Apache-2.0
"""Cost of an update of the colours' harmonics with moments in float32, and in bfloat16 (the option amp).

    python benchmarks/opt/bench_amp.py --out benchmarks/results/NAME.json
    python benchmarks/opt/bench_amp.py --gaussians 100000 1000000 --sh-degree 3

The gradient is an outer product, as with fused_harmonics, or was written, as for steps of several images. First one update of each is
compared with torch's Adam in float64 from the same moments: values to 1e-4 of the largest, moments to that or, in bfloat16, to a unit
in the last place, and the mean of moments within chance. Versions that disagree are not timed. Then all take turns. On a GPU each
is captured in a graph and replayed, so that the host's time does not count. Bytes are the least that must move.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import sys
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.opt import kernel_times
from benchmarks.opt.bench_fused_adam import BETAS, CPU_GAUSSIANS, EPSILON, GPU_GAUSSIANS, RATE
from benchmarks.opt.kernel_times import Call, Report
from benchmarks.step.bench_step import positive
from nurec_lite.geometry.harmonics import sh_basis
from nurec_lite.native import ops

VERSIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
KINDS = ("outer", "written")  # gradients
TOLERANCE, UNIT = 1e-4, 2.0**-7
SPREAD = 6.0  # of a mean, in its own errors


@dataclass(frozen=True)
class Harmonics:
    """Harmonics of N Gaussians after 100 steps: the first coefficient, and the others."""

    parameters: list[Tensor]  # [N, 1, 3] and [N, S - 1, 3], as the two below
    first: list[Tensor]
    second: list[Tensor]
    steps: list[Tensor]
    directions: Tensor  # [N, 3]
    colours: Tensor  # [N, 3]
    gradients: list[Tensor]  # the same, written
    rates: Tensor

    def copy(self, moments: torch.dtype) -> "Harmonics":
        def copied(tensors: list[Tensor], dtype: torch.dtype | None = None) -> list[Tensor]:
            return [t.to(dtype or t.dtype, copy=True) for t in tensors]

        return Harmonics(
            copied(self.parameters), copied(self.first, moments), copied(self.second, moments), copied(self.steps),
            self.directions, self.colours, self.gradients, self.rates,
        )  # fmt: skip


def harmonics_of(n: int, degree: int, device: torch.device) -> Harmonics:
    """Moments are numbers that a bfloat16 holds, so that both versions begin from the same."""
    generator = torch.Generator(device).manual_seed(0)
    bands = (degree + 1) ** 2
    shapes = (n, 1, 3), (n, bands - 1, 3)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, generator=generator)

    first = [drawn(*shape).bfloat16().float() for shape in shapes]
    second = [drawn(*shape).square().bfloat16().float() for shape in shapes]
    directions, colours = F.normalize(drawn(n, 3), dim=-1), drawn(n, 3)
    written = sh_basis(directions, bands)[:, :, None] * colours[:, None]
    gradients = [g.contiguous() for g in written.tensor_split([1], dim=1)]
    steps = [torch.full((), 100.0, device=device) for _ in shapes]
    rates = torch.full((2,), RATE, device=device)
    return Harmonics([drawn(*shape) for shape in shapes], first, second, steps, directions, colours, gradients, rates)


def call_of(kind: str, h: Harmonics) -> Call:
    """One update, in place."""
    gradients, outer = (
        ([None, None], (h.directions[None], h.colours[None])) if kind == "outer" else (h.gradients, (None, None))
    )
    lists = h.parameters, gradients, h.first, h.second, h.steps
    return lambda: torch.ops.nurec_lite.adam(*lists, h.rates, None, [False] * 2, *BETAS, EPSILON, *outer)


def truth_of(start: Harmonics) -> list[list[Tensor]]:
    """Values, first and second moments after one step of torch's, in float64."""
    groups = [{"params": [p.double().requires_grad_()], "lr": RATE} for p in start.parameters]
    optimizer = torch.optim.Adam(groups, betas=BETAS, eps=EPSILON)
    values = [group["params"][0] for group in optimizer.param_groups]
    for p, g, m, v, step in zip(values, start.gradients, start.first, start.second, start.steps, strict=True):
        p.grad = g.double()
        optimizer.state[p] = {"step": step.cpu(), "exp_avg": m.double(), "exp_avg_sq": v.double()}
    optimizer.step()
    return [[p.detach() for p in values], *([optimizer.state[p][k] for p in values] for k in ("exp_avg", "exp_avg_sq"))]


def error_of(version: str, kind: str, start: Harmonics) -> float:
    """The worst error, relative to the tolerance, times TOLERANCE."""
    found = start.copy(VERSIONS[version])
    call_of(kind, found)()
    values, *moments = truth_of(start)
    worst = kernel_times.worst_error(found.parameters, values)
    pairs = [p for lists in zip((found.first, found.second), moments, strict=True) for p in zip(*lists, strict=True)]
    return max([worst, *(moment_error(version, ours, exact) for ours, exact in pairs if exact.numel())])


def moment_error(version: str, ours: Tensor, exact: Tensor) -> float:
    if version == "float32":
        return kernel_times.worst_error([ours], [exact])
    off = (ours.double() - exact) / (exact.abs() + TOLERANCE * exact.abs().max())  # in parts of each
    apart = float(off.abs().max()) / UNIT
    astray = float(off.mean().abs()) / (SPREAD * float(off.std()) / off.numel() ** 0.5)
    return TOLERANCE * max(apart, astray)


def least_bytes(version: str, kind: str, h: Harmonics) -> int:
    """Value and moments read and written, and gradients read."""
    n = sum(p.numel() for p in h.parameters)
    gradients = h.directions.nbytes + h.colours.nbytes if kind == "outer" else 4 * n
    return 2 * n * (4 + 2 * VERSIONS[version].itemsize) + gradients


def bench(args: argparse.Namespace, device: torch.device) -> Report:
    ops.load()
    calls: dict[tuple[str, str], Call] = {}
    moved: dict[tuple[str, str], int] = {}
    errors: dict[str, float] = {}
    for n in args.gaussians or (GPU_GAUSSIANS if device.type == "cuda" else CPU_GAUSSIANS):
        start = harmonics_of(n, args.sh_degree, device)
        for kind, version in product(KINDS, VERSIONS):
            on = f"{n} Gaussians, {kind}"
            errors[f"{version}, {on}"] = error_of(version, kind, start)
            if errors[f"{version}, {on}"] <= TOLERANCE:
                calls[version, on] = call_of(kind, start.copy(VERSIONS[version]))
                moved[version, on] = least_bytes(version, kind, start)
    wrong = {what: error for what, error in errors.items() if error > TOLERANCE}
    return {"errors": errors, "disagreements": wrong} | kernel_times.timed(calls, moved, args, device)


def main(arguments: list[str]) -> int:
    p = kernel_times.parser(__doc__)
    p.add_argument("--gaussians", nargs="+", type=positive, help=f"({GPU_GAUSSIANS}; on a CPU {CPU_GAUSSIANS})")
    p.add_argument("--sh-degree", type=int, default=3, choices=range(4), help="of the colours (%(default)s)")
    return kernel_times.main("benchmarks/opt/bench_amp.py", p, arguments, bench)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
