# SPDX-License-Identifier: Apache-2.0
"""Cost of an update of all Gaussians: torch's fused Adam, and the option fused_adam, dense and for touched Gaussians
alone.

    python benchmarks/opt/bench_fused_adam.py --out benchmarks/results/NAME.json
    python benchmarks/opt/bench_fused_adam.py --gaussians 1000000 --seen 0.1 0.4 --sh-degree 3

A share of the Gaussians, drawn at random, has gradients in all its tensors; sizes and opacities have one everywhere, as the regularisers
give it. First one update of each version is compared with torch's Adam in float64, to 1e-5 of the largest; with `touched`, values without a
gradient must stay. Versions that disagree are not timed. Then all take turns. On a GPU each is captured in a graph and replayed, so that
the host's time does not count. Bytes are the least that must move: dense, four numbers of every value read and three written; `touched`,
all gradients, and the rest of rows with one.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import sys
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.opt import kernel_times
from benchmarks.opt.kernel_times import Call, Report
from benchmarks.step.bench_step import positive
from nurec_lite.native import ops

EVERYWHERE = ("log_scales", "opacity_logits")  # have a gradient whether they are seen or not
VERSIONS = ("torch", "dense", "touched")
RATE, BETAS, EPSILON = 1e-3, (0.9, 0.999), 1e-15
TOLERANCE = 1e-5
CPU_GAUSSIANS, GPU_GAUSSIANS = (20_000,), (100_000, 1_000_000)


@dataclass(frozen=True)
class Update:
    """Tensors of all Gaussians, in the order of their names."""

    names: tuple[str, ...]
    parameters: list[Tensor]
    gradients: list[Tensor]
    first: list[Tensor]
    second: list[Tensor]
    steps: list[Tensor]
    rates: Tensor

    def copy(self, dtype: torch.dtype = torch.float32) -> "Update":
        lists = (self.parameters, self.gradients, self.first, self.second, self.steps)
        return Update(
            self.names, *([t.detach().to(dtype, copy=True) for t in one] for one in lists), self.rates.clone()
        )


def update_of(n: int, seen: float, degree: int, device: torch.device) -> Update:
    """Update with the state after 100 steps."""
    generator = torch.Generator(device).manual_seed(0)
    shapes = {"means": (3,), "quats": (4,), "log_scales": (3,), "opacity_logits": (), "sh0": (1, 3)}
    shapes |= {"sh_rest": ((degree + 1) ** 2 - 1, 3), "lidar_logits": (2,)}
    there = torch.rand(n, device=device, generator=generator) < seen

    def drawn() -> list[Tensor]:
        return [torch.randn(n, *shape, device=device, generator=generator) for shape in shapes.values()]

    gradients = [
        g if name in EVERYWHERE else g * there.view(-1, *[1] * (g.dim() - 1))
        for name, g in zip(shapes, drawn(), strict=True)
    ]
    steps = [torch.full((), 100.0, device=device) for _ in shapes]
    second = [v.square() for v in drawn()]
    return Update(
        tuple(shapes), drawn(), gradients, drawn(), second, steps, torch.full((len(shapes),), RATE, device=device)
    )


def call_of(version: str, u: Update) -> Call:
    """One update, in place."""
    if version != "torch":
        touched = [version == "touched"] * len(u.names)
        lists = u.parameters, u.gradients, u.first, u.second, u.steps
        return lambda: torch.ops.nurec_lite.adam(*lists, u.rates, None, touched, *BETAS, EPSILON)
    groups = [{"params": [p.requires_grad_()], "lr": RATE} for p in u.parameters]
    capturable = u.rates.is_cuda  # or torch refuses to be captured
    optimizer = torch.optim.Adam(groups, betas=BETAS, eps=EPSILON, fused=True, capturable=capturable)
    for p, gradient, m, v, step in zip(u.parameters, u.gradients, u.first, u.second, u.steps, strict=True):
        p.grad, optimizer.state[p] = gradient, {"step": step, "exp_avg": m, "exp_avg_sq": v}
    return optimizer.step


def error_of(version: str, start: Update) -> float:
    """Largest error of values and moments, as a share of the largest number of each tensor."""
    found, truth = start.copy(), start.copy(torch.float64)
    call_of(version, found)()
    call_of("torch", truth)()
    worst = 0.0
    for name in ("parameters", "first", "second"):
        lists = (getattr(u, name) for u in (found, truth, start))
        for ours, exact, before, gradient in zip(*lists, start.gradients, strict=True):
            expected = exact.detach()
            if version == "touched":
                expected = torch.where(gradient == 0, before.double(), expected)
            worst = max(worst, float((ours.detach().double() - expected).abs().max() / expected.abs().max()))
    return worst


def least_bytes(version: str, u: Update) -> int | None:
    n = sum(p.numel() for p in u.parameters)
    if version == "torch":
        return None
    with_gradient = n if version == "dense" else sum(int((g != 0).sum()) for g in u.gradients)
    return 4 * (n + 6 * with_gradient)


def bench(args: argparse.Namespace, device: torch.device) -> Report:
    ops.load()
    calls: dict[tuple[str, str], Call] = {}
    moved: dict[tuple[str, str], int] = {}
    errors: dict[str, float] = {}
    for n in args.gaussians or (GPU_GAUSSIANS if device.type == "cuda" else CPU_GAUSSIANS):
        for seen in args.seen:
            start, on = update_of(n, seen, args.sh_degree, device), f"{n} Gaussians, {100 * seen:g} % seen"
            for version in VERSIONS:
                errors[f"{version}, {on}"] = error_of(version, start)
                if errors[f"{version}, {on}"] > TOLERANCE:
                    continue
                calls[version, on] = call_of(version, start.copy())
                if (least := least_bytes(version, start)) is not None:
                    moved[version, on] = least
    wrong = {what: error for what, error in errors.items() if error > TOLERANCE}
    return {"errors": errors, "disagreements": wrong} | kernel_times.timed(calls, moved, args, device)


def main(arguments: list[str]) -> int:
    p = kernel_times.parser(__doc__)
    p.add_argument("--gaussians", nargs="+", type=positive, help=f"({GPU_GAUSSIANS}; on a CPU {CPU_GAUSSIANS})")
    p.add_argument("--seen", nargs="+", type=float, default=[0.3], help="shares that have gradients (%(default)s)")
    p.add_argument("--sh-degree", type=int, default=3, choices=range(4), help="of the colours (%(default)s)")
    return kernel_times.main("benchmarks/opt/bench_fused_adam.py", p, arguments, bench)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
