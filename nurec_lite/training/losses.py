# SPDX-License-Identifier: Apache-2.0
"""Terms of the training loss. Nothing here waits for the device: masks enter as factors, never as indices."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from nurec_lite.base.transfer import upload
from nurec_lite.config import LossWeights
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.scene.bilateral import variation
from nurec_lite.scene.calibration import Calibration
from nurec_lite.splat.render import LidarReturns
from nurec_lite.splat.views import LidarView

_WINDOW = 11  # pixels
_SIGMA = 1.5  # pixels
_C1, _C2 = 0.01**2, 0.03**2  # of Wang et al. 2004 for values in 0..1
_PROBABILITY_EPS = 1e-6
_METRES_A_RADIAN = 10.0  # weight of a rotation against a translation: its motion at this distance
_METRES_A_SECOND = 1.0  # weight of a clock: less than a rig's speed, as clocks are known less well than places
_ALIKE = (
    0.01  # opacities that differ by less are tied by the square: rounding must not choose the sign of a whole slope
)

SOMETIMES = {  # fields of LossWeights with a term that not every step has, and those that are parts of a term
    "image", "range", "intensity", "drop", "tie", "calibration", "drift", "bilateral", "ssim", "reach",
}  # fmt: skip


def check_terms(
    terms: Mapping[str, Tensor],  # of a step
    weights: LossWeights,
) -> None:
    """Asserts that every weighted term exists: a stage of an option may not know a new one."""
    always = (f.name for f in fields(LossWeights) if f.name not in SOMETIMES and getattr(weights, f.name) > 0)
    missing = [name for name in always if name not in terms]
    assert not missing, (
        f"the step has no loss term {', '.join(missing)}: a stage of an option leaves it out; add it there, or to SOMETIMES of "
        "nurec_lite/training/losses.py if it need not be there in every step"
    )


def backward(
    terms: dict[str, Tensor],  # scalars, by the names of LossWeights
    weights: LossWeights,
) -> None:
    """Adds the gradients of the weighted sum of all terms to the parameters. Terms are not added up, so that each begins as soon as it is
    there, on its own stream."""
    learned = {name: term for name, term in terms.items() if term.requires_grad}
    if learned:
        first = next(iter(learned.values()))
        factors = _factors(tuple(getattr(weights, name) for name in learned), first.dtype, first.device)
        whole: Tensor = _Whole.apply(factors, *learned.values())
        whole.backward()


class _Whole(torch.autograd.Function):
    """Weighted sum of all terms, for autograd alone; nothing reads its value. torch's own way, gradients of
    several roots, imports sympy, which takes a second."""

    @staticmethod
    def forward(ctx: Any, factors: tuple[Tensor, ...], *terms: Tensor) -> Tensor:
        ctx.factors = factors
        return torch.empty_like(factors[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.factors


@lru_cache(maxsize=32)
def _factors(weights: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
    """[] each, copied to the device once. Nothing may be written into them."""
    return upload(torch.tensor(weights, dtype=dtype), device).unbind()


def ssim(
    a: Tensor,  # [H, W, C] 0 to 1
    b: Tensor,  # [H, W, C]
) -> Tensor:  # scalar, 1 for equal images
    """Mean structural similarity, every pixel and channel counted alike."""
    return ssim_map(a, b).mean()


def ssim_map(
    a: Tensor,  # [H, W, C] 0 to 1
    b: Tensor,  # [H, W, C]
) -> Tensor:  # [C, H, W]
    """Structural similarity (Wang et al. 2004) of the window about each pixel: 11x11, Gaussian of sigma 1.5.

    Images are padded with zeros, as 3DGS does (Kerbl et al. 2023): so images smaller than the window have a value too, and pixels at
    the border are compared through the darkness outside.
    """
    a, b = a.movedim(-1, 0), b.movedim(-1, 0)
    mean_a, mean_b, aa, bb, ab = _blur(torch.stack([a, b, a * a, b * b, a * b]))
    square_a, square_b, product = mean_a * mean_a, mean_b * mean_b, mean_a * mean_b
    luminance = (2 * product + _C1) / (square_a + square_b + _C1)
    structure = (2 * (ab - product) + _C2) / (aa - square_a + bb - square_b + _C2)
    return luminance * structure


def _blur(
    maps: Tensor,  # [n, C, H, W]
) -> Tensor:  # [n, C, H, W]
    """Gaussian window in two 1-D passes; the window is made on the device, so that nothing is copied to it.

    One depthwise convolution of all maps: at 310x93, forward and backward take 7 times longer with the maps as a batch (CPU).
    """
    at = torch.arange(_WINDOW, device=maps.device, dtype=maps.dtype) - _WINDOW // 2
    window = torch.softmax(-0.5 * (at / _SIGMA).square(), dim=0)
    n, half = maps.shape[0] * maps.shape[1], _WINDOW // 2
    rows = F.conv2d(maps.flatten(0, 1)[None], window.expand(n, 1, 1, -1), padding=(0, half), groups=n)
    blurred = F.conv2d(rows, window[:, None].expand(n, 1, -1, -1), padding=(half, 0), groups=n)
    return blurred.view_as(maps)


def image_loss(
    rendered: Tensor,  # [H, W, 3]
    target: Tensor,  # [H, W, 3] 0 to 1
    ssim_weight: float = 0.2,
) -> Tensor:  # scalar
    """(1 - w) L1 + w (1 - SSIM), with w = 0.2 in 3DGS (Kerbl et al. 2023)."""
    l1 = (rendered - target).abs().mean()
    return (1 - ssim_weight) * l1 + ssim_weight * (1 - ssim(rendered, target))


def lidar_loss(
    returns: LidarReturns,  # of R rays
    sweep: Sweep,  # the same R rays, on the same device
    counted: Tensor | None = None,  # [R] bool, rays that count; None: all
    with_targets: bool = False,  # the view had range targets: the returns' distance is the mean residual of their Gaussians
) -> dict[str, Tensor]:  # scalars `range` in metres, `intensity`, `drop`
    """L1 of range and of intensity over the rays that returned, and cross entropy of the ray drop over all rays that count.

    The range is the expected one, or every Gaussian along the ray is compared by its weight, sum of w min(|t - range|, reach): a mean
    may be right where no surface is, and the median, which a lidar measures, only is where the weight is."""
    off = returns.distance if with_targets else (returns.distance - sweep.ranges).abs()
    intensity, drop = returns.values()
    both = torch.stack([off, (intensity - sweep.intensities).abs()])
    in_range, in_intensity = _masked_mean(both, sweep.returned).unbind()
    return {"range": in_range, "intensity": in_intensity, "drop": drop_loss(drop, sweep.returned, counted)}


def with_range_targets(
    view: LidarView,
    sweep: Sweep,  # of the same rays
    reach: float,  # metres: largest residual of a Gaussian; 0: no targets
) -> LidarView:
    """Returns the view with the measured ranges as targets; Gaussians on rays without return have no residual."""
    if reach == 0:
        return view
    return replace(view, targets=torch.stack([sweep.ranges, sweep.returned * reach], dim=-1))


def drop_loss(
    drop: Tensor,  # [R] probability that nothing returns
    returned: Tensor,  # [R] bool
    counted: Tensor | None = None,  # [R] bool, rays that count; None: all
) -> Tensor:  # scalar
    """Binary cross entropy with the target 1 where nothing returned."""
    p = drop.clamp(_PROBABILITY_EPS, 1 - _PROBABILITY_EPS)
    surprise = -torch.where(returned, 1 - p, p).log()
    return surprise.sum() / max(len(drop), 1) if counted is None else _masked_mean(surprise, counted)


def regularisers(
    opacities: Tensor,  # [N] 0 to 1, the camera's
    lidar_opacities: Tensor,  # [N] the very same tensor where the lidar has none of its own
    scales: Tensor,  # [N, 3] metres
) -> dict[str, Tensor]:  # scalars `opacity`, `scale`, and `tie` if there are two opacities
    """Means of opacity (summed over the sensors, so that each has its full effect) and of scale. They make needless Gaussians die out
    (3DGS-MCMC, Kheradmand et al. 2024). `tie` is the mean difference of both opacities (XSIM, IJCAI 2026; here
    with a rounded bottom): each sensor may differ where its measurements ask for it, and follows the other where it has none."""
    terms = {"opacity": opacities.mean(), "scale": scales.mean()}
    if lidar_opacities is opacities:
        return terms
    # both by a mean over elements, so that equal weights cancel exactly: Adam would make a step of the rounding error
    tie = F.smooth_l1_loss(opacities, lidar_opacities, reduction="none", beta=_ALIKE).mean()
    return terms | {"opacity": terms["opacity"] + lidar_opacities.mean(), "tie": tie}


def calibration_terms(
    calibration: Calibration | None,
) -> dict[str, Tensor]:  # scalars `calibration`, `drift`, and `bilateral` if there are grids; or none
    """Mean squares, which leave a correction where measurements ask for it: of poses and clocks in metres; of exposures, of how they
    change from knot to knot, of vignetting and of grids, which would trade a constant with the scene; and how much grids vary."""
    if calibration is None:
        return {}
    c = calibration
    turns, shifts, clocks = _METRES_A_RADIAN**2, 1.0, _METRES_A_SECOND**2
    poses = (
        (c.rig_rotations, turns), (c.camera_rotations, turns),
        (c.rig_translations, shifts), (c.camera_translations, shifts), (c.camera_offsets, clocks),
    )  # fmt: skip
    tones = [(c.exposure_drift, 1.0), (c.exposure_drift.diff(dim=1), 10.0), (c.vignetting, 1.0)]
    if c.bilateral is None:
        return {"calibration": _mean_squares(poses), "drift": _mean_squares(tones)}
    tones.append((c.bilateral, 1.0))
    return {
        "calibration": _mean_squares(poses), "drift": _mean_squares(tones), "bilateral": variation(c.bilateral)
    }  # fmt: skip


def _mean_squares(
    parts: Sequence[tuple[Tensor, float]],  # of any shape, and the weight of its mean
) -> Tensor:  # []
    """Weighted sum of mean squares, by one product of vectors: a launch instead of a dozen. A part without numbers adds nothing."""
    numbers = torch.cat([part.flatten() for part, _ in parts])
    counts = tuple((part.numel(), weight) for part, weight in parts)
    return torch.dot(numbers * numbers, _shares(counts, numbers.dtype, numbers.device))


@lru_cache(maxsize=16)
def _shares(counts: tuple[tuple[int, float], ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """The weight of each number of the parts in the sum. Nothing may be written into it."""
    return upload(torch.cat([torch.full((n,), weight / max(n, 1), dtype=dtype) for n, weight in counts]), device)


def exposure_regulariser(
    exposure: Tensor,  # [cameras, 2, 3] log gain and offset
) -> Tensor:  # scalar
    """Mean square, which pulls gains to 1 and offsets to 0."""
    return exposure.square().mean()


def _masked_mean(
    values: Tensor,  # [..., R]
    mask: Tensor,  # [R] bool
) -> Tensor:  # [...], 0 where the mask is empty
    return torch.where(mask, values, 0.0).sum(-1) / mask.sum().clamp(min=1)
