# SPDX-License-Identifier: Apache-2.0
"""Cameras with exchanged channels: points of the sweeps that two cameras see at one moment have the same colour in both."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

import torch
from torch import Tensor

from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.thumbnails import thumbnail
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.deskew import project_world_points, world_points
from nurec_lite.capture.types import ImageFrame
from nurec_lite.geometry.camera import Camera

POINTS = 3000  # of a sweep, about
APART = 0.06  # seconds between an image and the sweep
FEWEST, COLOURED = 300, 0.03  # points in both images of a pair of cameras, and scatter of their colours, at least
OPPOSITE, ALIKE = -0.4, 0.2  # correlation of the colours of two cameras that contradict, and of others
REMEDY = "give images with the channels red, green, blue"
Blues = dict[str, Tensor]  # [P] by cameras: blue above red, relative to the mean; NaN outside of the image


def opposite_channels(sample: Sample, check: str) -> Iterator[Verdict]:
    """A verdict about cameras that contradict those that agree with one another."""
    found = _correlations(sample)
    against = {pair for pair, value in found.items() if value < OPPOSITE}
    names = [camera.name for camera in sample.capture.cameras]
    odd = [name for name in names if any(name in pair for pair in against)]
    if not odd:
        return
    alike = {pair for pair, value in found.items() if value > ALIKE}
    sure = [name for name in odd if not any(name in pair for pair in alike)]
    least = min(found[pair] for pair in against)
    if sure and len(sure) < len(odd):
        sentence = f"Red and blue of {' and '.join(sure)} seem to be exchanged: points have other colours than in the other cameras"
    else:
        sentence = (
            f"Red and blue are exchanged in one of {' and '.join(odd)}: points that both see have opposite colours"
        )
    subject = (sure if sure and len(sure) < len(odd) else odd)[0]
    yield Verdict(
        check, subject, Level.LIKELY, f"{sentence} (correlation {least:.2f}).", REMEDY, {"correlation": least}
    )


def _correlations(sample: Sample) -> dict[tuple[str, str], float]:
    """Correlation of the colours of each pair of cameras with enough points in both images."""
    seen = [blues_of(sample, frames) for frames in moments_of_cameras(sample)]
    found = dict[tuple[str, str], float]()
    for a, b in combinations([camera.name for camera in sample.capture.cameras], 2):
        pairs = [torch.stack([blues[a], blues[b]]) for blues in seen if a in blues and b in blues]
        both = torch.cat(pairs, dim=1) if pairs else torch.zeros(2, 0)
        both = both[:, ~both.isnan().any(0)]
        if both.shape[1] >= FEWEST and float(both.std(dim=1).min()) > COLOURED:
            found[a, b] = float(torch.corrcoef(both)[0, 1])
    return found


def moments_of_cameras(sample: Sample) -> Iterator[list[ImageFrame]]:
    """Images of several cameras that are looked at in any case, of one number."""
    by_number = defaultdict[int, list[ImageFrame]](list)
    for camera in sample.capture.cameras:
        for frame in sample.images_of(camera.name):
            by_number[frame.index].append(frame)
    yield from (frames for frames in by_number.values() if len(frames) > 1)


def blues_of(sample: Sample, frames: Sequence[ImageFrame]) -> Blues:
    """Colours of a sweep's points in the images of a moment."""
    return sample.kept(("blues", frames[0].index), lambda: _blues(sample, frames))


def _blues(sample: Sample, frames: Sequence[ImageFrame]) -> Blues:
    sweeps = [sweep for lidar in sample.capture.lidars for sweep in sample.decoded(lidar.name)]
    sweep = min(sweeps, key=lambda sweep: abs(sweep.time_mid - frames[0].time_mid), default=None)
    if sweep is None:
        return {}
    lidar, rays = sample.capture.lidar(sweep.sensor), sample.sweep(sweep)
    some = rays.select(rays.returned.nonzero()[:, 0])
    some = some.select(torch.arange(0, len(some), max(1, len(some) // POINTS)))
    points = world_points(sweep, some, lidar)
    near = [frame for frame in frames if abs(frame.time_mid - sweep.time_mid) <= APART]
    return {f.sensor: _blue(sample.capture.camera(f.sensor), f, thumbnail(sample, f), points) for f in near}


def _blue(camera: Camera, frame: ImageFrame, image: Tensor, points: Tensor) -> Tensor:  # [P]
    pixels, depth = project_world_points(camera, frame, points)
    size = torch.tensor([camera.width, camera.height])
    inside = ((pixels >= 0) & (pixels < size)).all(1) & (depth > 0)
    shape = torch.tensor([image.shape[1], image.shape[0]])
    places = torch.where(inside[:, None], pixels, 0) / size * shape
    column, row = places.long().minimum(shape - 1).unbind(1)
    red, green, blue = image.float()[row, column].unbind(1)
    mean = (red + green + blue) / 3
    return torch.where(inside, (blue - red) / (mean + 4), torch.nan)
