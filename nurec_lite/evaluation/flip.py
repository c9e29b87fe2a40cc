# SPDX-License-Identifier: Apache-2.0
"""FLIP: the difference that a person sees between two images shown in turns (Andersson et al. 2020, "FLIP: A Difference Evaluator for
Alternating Images"). 0 is equal, 1 the largest difference.

NVIDIA's package flip-evaluator gives the same values and is light (0.4 MB, BSD-3-Clause), but takes 1.0 s of a core for an image of
1242 x 375 pixels and runs on the CPU alone; this takes a fraction of that, and runs where the image was rendered. The numbers below are
the paper's, or of its published code where the paper has none. Tests hold the result to that of the package.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.base.transfer import upload
from nurec_lite.geometry.masks import seen_mean

PIXELS_A_DEGREE = 0.7 * 3840 / 0.7 * math.pi / 180  # a screen of 0.7 m and 3840 pixels from 0.7 m: the paper's default
_CONTRAST = (  # a1, b1, a2, b2 of the sensitivity to contrast: achromatic, red-green, blue-yellow
    (1.0, 0.0047, 0.0, 1e-5), (1.0, 0.0053, 0.0, 1e-5), (34.1, 0.04, 13.5, 0.025),
)  # fmt: skip
_FEATURE_DEGREES = 0.082  # width of a feature
_QC, _QF, _PC, _PT = 0.7, 0.5, 0.4, 0.95
_XYZ = (
    (10135552 / 24577794, 8788810 / 24577794, 4435075 / 24577794),
    (2613072 / 12288897, 8788810 / 12288897, 887015 / 12288897),
    (1425312 / 73733382, 8788810 / 73733382, 70074185 / 73733382),
)  # of linear sRGB
_WHITE = (0.950428545, 1.0, 1.088900371)
_LEAST = 1e-15  # least difference of features under the root


def flip(
    rendered: Tensor,  # [H, W, 3] sRGB, 0 to 1
    target: Tensor,  # [H, W, 3] 0 to 1, on the same device
    pixels_a_degree: float = PIXELS_A_DEGREE,
) -> Tensor:  # [H, W] 0 to 1
    both = torch.stack([target, rendered]).float().movedim(-1, 1)  # [2, 3, H, W]
    opponent = _opponent(_linear(both))
    colour = _colour_difference(_filtered(opponent, pixels_a_degree))
    feature = _feature_difference((opponent[:, :1] + 16) / 116, pixels_a_degree)
    return colour ** (1 - feature)


def mean_flip(
    rendered: Tensor,  # [H, W, 3] 0 to 1
    target: Tensor,  # [H, W, 3] 0 to 1
    mask: Tensor | None = None,  # [H, W] bool, pixels that do not count
) -> Tensor:  # []
    return seen_mean(flip(rendered, target), mask)


def _colour_difference(
    linear: Tensor,  # [2, 3, H, W] linear RGB
) -> Tensor:  # [H, W] 0 to 1
    reference, test = _adapted(_lab(linear))
    largest = _largest(linear.device)
    found, knee = _distance(reference, test) ** _QC, _PC * largest
    return torch.where(found < knee, _PT / knee * found, _PT + (found - knee) / (largest - knee) * (1 - _PT))


@lru_cache(maxsize=16)
def _largest(device: torch.device) -> Tensor:  # [1, 1] between green and blue
    green, blue = torch.eye(3, device=device)[1:, :, None, None]
    return _distance(*_adapted(_lab(torch.stack([green, blue])))) ** _QC


def _feature_difference(
    luminance: Tensor,  # [2, 1, H, W]
    pixels_a_degree: float,
) -> Tensor:  # [H, W] 0 to 1
    edges, points = (_strength(luminance, kind, pixels_a_degree) for kind in (1, 2))
    difference = torch.maximum((edges[0] - edges[1]).abs(), (points[0] - points[1]).abs())
    return (difference.clamp(min=_LEAST) / math.sqrt(2)) ** _QF


def _strength(
    luminance: Tensor,  # [2, 1, H, W]
    kind: int,  # derivative of the Gaussian: 1 for edges, 2 for points
    pixels_a_degree: float,
) -> Tensor:  # [2, H, W]
    smooth, derivative = _feature_filters(kind, pixels_a_degree)
    across = _separable(luminance, derivative, smooth)
    down = _separable(luminance, smooth, derivative)
    return torch.hypot(across, down)[:, 0]


@lru_cache(maxsize=8)
def _feature_filters(kind: int, pixels_a_degree: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """A Gaussian, and its derivative; the positive weights of that sum to 1, the negative ones to -1."""
    sigma = 0.5 * _FEATURE_DEGREES * pixels_a_degree
    radius = math.ceil(3 * sigma)
    at = torch.arange(-radius, radius + 1, dtype=torch.float64)
    smooth = torch.exp(-at.square() / (2 * sigma**2))
    derivative = smooth * (-at if kind == 1 else at.square() / sigma**2 - 1)
    positive, negative = derivative.clamp(min=0), derivative.clamp(max=0)
    derivative = positive / positive.sum() - negative / negative.sum()
    return tuple((smooth / smooth.sum()).tolist()), tuple(derivative.tolist())


def _filtered(
    opponent: Tensor,  # [2, 3, H, W]
    pixels_a_degree: float,
) -> Tensor:  # [2, 3, H, W] linear RGB, 0 to 1: the detail that the eye resolves
    """Filters each channel by its own sensitivity to contrast."""
    channels = []
    for channel in range(3):
        parts = _contrast_filters(channel, pixels_a_degree)
        seen = [weight * _separable(opponent[:, channel : channel + 1], line, line) for weight, line in parts]
        channels.append(torch.stack(seen).sum(0))
    return _linear_from_opponent(torch.cat(channels, dim=1)).clamp(0, 1)


@lru_cache(maxsize=24)
def _contrast_filters(channel: int, pixels_a_degree: float) -> list[tuple[float, tuple[float, ...]]]:
    """One or two Gaussians, each as a weight and the weights along a line, which sum to 1."""
    largest = max(max(b1, b2) for _, b1, _, b2 in _CONTRAST)
    radius = math.ceil(3 * math.sqrt(largest / (2 * math.pi**2)) * pixels_a_degree)
    at = torch.arange(-radius, radius + 1, dtype=torch.float64) / pixels_a_degree
    a1, b1, a2, b2 = _CONTRAST[channel]
    lines = [
        (a * math.sqrt(math.pi / b), torch.exp(-(math.pi**2) * at.square() / b)) for a, b in ((a1, b1), (a2, b2)) if a
    ]
    volumes = [height * float(line.sum()) ** 2 for height, line in lines]
    return [
        (volume / sum(volumes), tuple((line / line.sum()).tolist()))
        for volume, (_, line) in zip(volumes, lines, strict=True)
    ]


def _separable(
    images: Tensor,  # [n, 1, H, W]
    across: tuple[float, ...],
    down: tuple[float, ...],  # as many weights
) -> Tensor:  # [n, 1, H, W]; the border is repeated beyond the images
    half, channels = len(across) // 2, images.transpose(0, 1)  # images as channels: a GPU does not round these to TF32
    line, column = _line(across, images.device)[None, None, None], _line(down, images.device)[None, None, :, None]
    rows = _each(F.pad(channels, (half, half, 0, 0), mode="replicate"), line)
    return _each(F.pad(rows, (0, 0, half, half), mode="replicate"), column).transpose(0, 1)


@lru_cache(maxsize=64)
def _line(weights: tuple[float, ...], device: torch.device) -> Tensor:
    """Weights on the device, copied once; nothing may be written into them."""
    return upload(torch.tensor(weights), device)


def _each(channels: Tensor, filter: Tensor) -> Tensor:  # [1, n, H, W], [1, 1, h, w]
    n = channels.shape[1]
    return F.conv2d(channels, filter.expand(n, 1, -1, -1), groups=n)


# ---- colours: [n, 3, H, W] each


def _linear(srgb: Tensor) -> Tensor:
    return torch.where(srgb > 0.04045, ((srgb + 0.055) / 1.055) ** 2.4, srgb / 12.92)


def _times(matrix: Tensor, colours: Tensor) -> Tensor:
    return torch.einsum("ij,njhw->nihw", matrix, colours)


@lru_cache(maxsize=16)
def _xyz(device: torch.device) -> Tensor:
    """XYZ relative to white from linear RGB. Nothing may be written into it."""
    return upload(_relative_xyz().float(), device)


@lru_cache(maxsize=16)
def _rgb(device: torch.device) -> Tensor:
    """Linear RGB from XYZ relative to white. Nothing may be written into it."""
    return upload(torch.linalg.inv(_relative_xyz()).float(), device)


def _relative_xyz() -> Tensor:
    return torch.tensor(_XYZ, dtype=torch.float64) / torch.tensor(_WHITE, dtype=torch.float64)[:, None]


def _opponent(linear: Tensor) -> Tensor:
    """YCxCz: luminance, red-green, blue-yellow."""
    x, y, z = _times(_xyz(linear.device), linear).unbind(1)
    return torch.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], dim=1)


def _linear_from_opponent(opponent: Tensor) -> Tensor:
    luminance, red, blue = opponent.unbind(1)
    y = (luminance + 16) / 116
    return _times(_rgb(opponent.device), torch.stack([y + red / 500, y, y - blue / 200], dim=1))


def _lab(linear: Tensor) -> Tensor:
    """CIELAB from linear RGB."""
    relative, delta = _times(_xyz(linear.device), linear), 6 / 29
    root = relative.clamp(min=1e-12) ** (1 / 3)
    x, y, z = torch.where(relative > delta**3, root, relative / (3 * delta**2) + 4 / 29).unbind(1)
    return torch.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], dim=1)


def _adapted(lab: Tensor) -> Tensor:
    """Adapts colours, which look stronger where it is bright (Hunt)."""
    return torch.cat([lab[:, :1], 0.01 * lab[:, :1] * lab[:, 1:]], dim=1)


def _distance(a: Tensor, b: Tensor) -> Tensor:  # [3, H, W] each -> [H, W]
    """HyAB (Abasi et al. 2019)."""
    return (a[0] - b[0]).abs() + torch.hypot(a[1] - b[1], a[2] - b[2])
