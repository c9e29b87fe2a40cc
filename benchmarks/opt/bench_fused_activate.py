# SPDX-License-Identifier: Apache-2.0
"""Work of a step on all Gaussians, activation, regularisers and noise, and a relocation's work on copies, in torch's
kernels and in those of fused_activate.

    python benchmarks/opt/bench_fused_activate.py --out benchmarks/results/NAME.json
    python benchmarks/opt/bench_fused_activate.py --sizes 100000x2 --rounds 100

A size is Gaussians x columns of lidar logits; a third column is the lidar's own opacity. First values, terms, gradients and moved
means are compared with those of torch in float64, to 1e-5 of the largest; versions that disagree are not timed. Then both take turns. On
a GPU each is captured in a graph and replayed, so that the host's time does not count. Regularisers are timed with their gradients, as a
loss weighs them. Noise is timed with its random numbers: torch writes them first, the kernel of fused_activate draws its own, and the
comparison includes both. One Gaussian in 20 has several copies: half of these have two or three, one in 25 the largest number. Bytes are
the least that must move: stored and given arrays read, asked ones written, and values read again for gradients.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from benchmarks.opt import kernel_times
from benchmarks.opt.kernel_times import Call, Report
from nurec_lite.native import ops
from nurec_lite.opt.all import fused_activate
from nurec_lite.scene.gaussians import LIDAR_VALUES, Gaussians, activate
from nurec_lite.training.density import DEAD_OPACITY, MAX_COPIES, McmcSplit, mcmc_split, sgld_noise
from nurec_lite.training.losses import regularisers

SIZES = ("100000x3", "1000000x2", "1000000x3")
TOLERANCE = 1e-5  # of the largest number
STORED = ("quats", "log_scales", "opacity_logits", "lidar_logits")
WEIGHTS = {"opacity": 0.01, "scale": 0.02, "tie": 0.01}  # of the regularisers
AMOUNT = 0.05  # standard deviations, of the noise
SEED = 0  # of its draws
SEVERAL = 0.05  # of the Gaussians have several copies
TELLING = 4.0  # largest compared logit: beyond, single precision tells opacities of copies too poorly


def plain_noise(g: Gaussians, eta: Tensor | None, step: Tensor, amount: Tensor, failed: Tensor) -> None:
    """Adds noise to the means in plain torch; draws the numbers if none are given."""
    g.clamp_min_scale_()
    drawn = torch.randn_like(g.log_scales) if eta is None else eta
    g.means += sgld_noise(g.quats, g.log_scales, g.greatest_opacity(), amount * (1 - failed), drawn)


def fused_noise(g: Gaussians, eta: Tensor | None, step: Tensor, amount: Tensor, failed: Tensor) -> None:
    """Draws in any case."""
    fused_activate.add_sgld_noise(g, step, SEED, amount, failed)


@dataclass(frozen=True)
class Version:
    activate: Callable[[Gaussians], dict[str, Tensor]]
    regularisers: Callable[[Tensor, Tensor, Tensor], dict[str, Tensor]]
    noise: Callable[[Gaussians, Tensor | None, Tensor, Tensor, Tensor], None]
    mcmc_split: McmcSplit


VERSIONS = {
    "plain": Version(activate, regularisers, plain_noise, mcmc_split),
    "fused": Version(fused_activate.activate, fused_activate.regularisers, fused_noise, fused_activate.mcmc_split),
}
Problem = tuple[
    Gaussians, dict[str, Tensor], Tensor, Tensor
]  # stored parameters, gradients of their values, draws of fused_noise [N, 3], copies [N]


def size_of(size: str) -> tuple[int, int]:
    """Gaussians, and columns of lidar logits."""
    try:
        n, columns = (int(number) for number in size.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{size}' is no size such as 1000000x3") from None
    if n < 1 or columns not in (LIDAR_VALUES, LIDAR_VALUES + 1):
        raise argparse.ArgumentTypeError(f"'{size}' has not one Gaussian or more, and 2 or 3 columns")
    return n, columns


def problem_of(size: str, device: torch.device) -> Problem:
    (n, columns), generator = size_of(size), torch.Generator().manual_seed(0)

    def made(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    g = Gaussians(
        means=30 * made(n, 3), quats=made(n, 4), log_scales=made(n, 3) - 3, opacity_logits=3 * made(n) - 2,
        sh0=made(n, 1, 3), sh_rest=made(n, 0, 3), lidar_logits=3 * made(n, columns) - 2,
        node=torch.zeros(n, dtype=torch.int64, device=device),
    )  # fmt: skip
    given = {"quats": made(n, 4), "scales": made(n, 3), "opacities": made(n), "lidar": made(n, LIDAR_VALUES)}
    given |= {"lidar_opacities": made(n)} if columns > LIDAR_VALUES else {}
    return g, given, drawn_for(g), copies_of(n, generator).to(device)


def copies_of(n: int, generator: torch.Generator) -> Tensor:  # [n] int64
    """Mostly one; 2 of k that have several have k or more."""
    several, more = torch.rand(2, n, generator=generator)
    return torch.where(several < SEVERAL, (2 / more.clamp(min=1e-3)).clamp(max=MAX_COPIES).long(), 1)


def drawn_for(g: Gaussians) -> Tensor:  # [N, 3] normal
    """Draws for fused_noise: it moves upright Gaussians of a metre by these, at the amount that gives opacity 0 a
    standard deviation of 1."""
    upright = torch.zeros_like(g.quats)
    upright[:, 0] = 1
    zero, unseen = torch.zeros_like(g.means), torch.full_like(g.opacity_logits, -math.inf)
    plain = replace(
        g, means=zero, log_scales=zero.clone(), quats=upright, opacity_logits=unseen, lidar_logits=unseen[:, None]
    )
    step, amount, failed = scalars(g.means)
    fused_noise(plain, None, step, amount.fill_(1 + math.exp(-100 * DEAD_OPACITY)), failed)
    return plain.means


def differentiated(version: Version, g: Gaussians, given: dict[str, Tensor]) -> list[Tensor]:
    """Values, and gradients of stored parameters."""
    leaves = {name: getattr(g, name).detach().requires_grad_() for name in STORED}
    values = version.activate(replace(g, **leaves))
    wanted = [values[name] for name in given]
    return [*(v.detach() for v in wanted), *torch.autograd.grad(wanted, list(leaves.values()), list(given.values()))]


def regularised(version: Version, opacities: Tensor, lidar_opacities: Tensor, scales: Tensor) -> list[Tensor]:
    """Terms, and gradients of their weighted sum."""
    seen, size = opacities.detach().requires_grad_(), scales.detach().requires_grad_()
    by_lidar = seen if lidar_opacities is opacities else lidar_opacities.detach().requires_grad_()
    terms = version.regularisers(seen, by_lidar, size)
    loss = torch.stack([WEIGHTS[name] * term for name, term in terms.items()]).sum()
    leaves = [seen, size] if by_lidar is seen else [seen, by_lidar, size]
    return [*(term.detach() for term in terms.values()), *torch.autograd.grad(loss, leaves)]


def moved(version: Version, g: Gaussians, eta: Tensor) -> Tensor:
    """Motion of means at 0 by the noise."""
    own = replace(g, means=torch.zeros_like(g.means), log_scales=g.log_scales.clone())
    version.noise(own, eta, *scalars(g.means))
    return own.means


def opacities_of_copies(version: Version, g: Gaussians, copies: Tensor) -> list[Tensor]:
    """Opacities of the copies, and the factors of their scales."""
    logits, factor = version.mcmc_split(g.all_opacity_logits().clamp(max=TELLING), copies, MAX_COPIES)
    return [torch.sigmoid(logits.double()), factor]


def scalars(like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The number of the step, the amount of noise, and whether the step failed."""
    step = torch.ones((), device=like.device)  # in single precision beside any other
    return step, like.new_full((), AMOUNT), like.new_zeros(())


def everything(version: Version, g: Gaussians, given: dict[str, Tensor], eta: Tensor, copies: Tensor) -> list[Tensor]:
    values = activate(g)  # so that one error is not reported twice
    seen = (values[name] for name in ("opacities", "lidar_opacities", "scales"))
    own = moved(version, g, eta), *opacities_of_copies(version, g, copies)
    return [*differentiated(version, g, given), *regularised(version, *seen), *own]


def error_of(version: str, g: Gaussians, given: dict[str, Tensor], eta: Tensor, copies: Tensor) -> float:
    """Largest error, as a share of the largest number of each output."""
    exact = replace(g, **{k: v.double() for k, v in vars(g).items() if v.is_floating_point()})
    truth = everything(VERSIONS["plain"], exact, {k: d.double() for k, d in given.items()}, eta.double(), copies)
    return kernel_times.worst_error(everything(VERSIONS[version], g, given, eta, copies), truth)


def calls_of(version: str, g: Gaussians, given: dict[str, Tensor], eta: Tensor, copies: Tensor) -> dict[str, Call]:
    v, own = VERSIONS[version], replace(g, means=g.means.clone(), log_scales=g.log_scales.clone())
    logits = g.all_opacity_logits()
    values = activate(g)
    seen, numbers = [values[name] for name in ("opacities", "lidar_opacities", "scales")], scalars(g.means)

    def forward() -> dict[str, Tensor]:
        with torch.no_grad():
            return v.activate(g)

    return {
        "forward": forward,
        "and backward": lambda: differentiated(v, g, given),
        "regularisers": lambda: regularised(v, *seen),
        "noise": lambda: v.noise(own, None, *numbers),
        "part": lambda: v.mcmc_split(logits, copies, MAX_COPIES),
    }


def least_bytes(size: str, what: str) -> int:
    n, columns = size_of(size)
    own, stored = columns - LIDAR_VALUES, 4 + 3 + 1 + columns
    numbers = {
        "forward": 2 * stored,
        "and backward": 2 * stored + 3 * stored,
        "regularisers": 4 + own + 4 * own,  # gradients that are the same for all are one number
        "noise": 4 + 3 + 1 + own + 2 * 3,
        "part": 2 * (1 + own) + 1 + 2,  # a number of copies is as long as two
    }
    return 4 * n * numbers[what]


def bench(args: argparse.Namespace, device: torch.device) -> Report:
    ops.load()
    problems = {size: problem_of(size, device) for size in args.sizes}
    return kernel_times.compared(VERSIONS, problems, error_of, calls_of, least_bytes, TOLERANCE, args, device)


def sized(size: str) -> str:
    size_of(size)
    return size


def main(arguments: list[str]) -> int:
    p = kernel_times.parser(__doc__)
    p.add_argument("--sizes", nargs="+", type=sized, default=list(SIZES), metavar="NxCOLUMNS", help="(%(default)s)")
    return kernel_times.main("benchmarks/opt/bench_fused_activate.py", p, arguments, bench)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
