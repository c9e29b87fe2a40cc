# SPDX-License-Identifier: Apache-2.0
"""Small copies of many frames of a sensor: images of a few hundred pixels, and distances around a lidar. They show whether neighbouring
frames are alike. A budget bounds the time that they take at the start of a run."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from nurec_lite.base.errors import UserError
from nurec_lite.capture.checks.sample import IMAGES, SWEEPS, Sample
from nurec_lite.capture.decoders import stated_rays
from nurec_lite.capture.evenly import spread
from nurec_lite.capture.images import SmallCopy, grey, small_copy
from nurec_lite.capture.types import ImageFrame, Returning, Stored, SweepFrame
from nurec_lite.geometry.lidar import Lidar

Shown = ImageFrame | SweepFrame
ROWS, COLUMNS = 24, 40  # of a small copy
PLAIN = 4.0  # grey levels that are added to the standard deviation of a copy, so that noise on one colour stays small
PIXELS, JPEG = 19e6, 0.1  # that are decoded at the start of a run, and the part of a JPEG's that count
SECTORS, POINTS = 90, 10_000  # around a lidar, and points of a sweep that are looked at, about
RAYS = 1.3e6  # of a lidar that are looked at, at the start of a run
READ = 0.1  # of a look: the cost of a ray that is only read
# points that show the turn with time, about, and length of the mean of their phases on a circle of one
PHASED, STEADY = 500, 0.7
RUN = 9  # neighbouring frames that are compared, where the budget is too small for all
FEW = 3  # frames that one work looks at


def glimpse_runs(sample: Sample, frames: Sequence[Shown]) -> list[list[Shown]]:
    """Runs of neighbouring frames of a sensor that have small copies, within the budget."""
    able = [frame for frame in frames if isinstance(frame.load, Stored | Returning)]
    most = _most(sample, able)
    if len(able) < len(frames) or most < RUN:
        return []
    if len(able) <= most:
        return [able]
    starts = spread(range(0, len(able) - RUN + 1), max(1, most // RUN))
    return [able[k : k + RUN] for k in sorted(set(starts))]


def _most(sample: Sample, frames: Sequence[Shown]) -> int:
    """Frames of a sensor that the budget allows."""
    if not frames:
        return 0
    first = frames[0]
    if not isinstance(first, ImageFrame):
        rays = stated_rays(sample.capture.lidar(first.sensor))
        cost = max(1.0, rays / _every(rays) + READ * rays)
        return len(frames) if sample.sweeps is None else int(RAYS * sample.sweeps / SWEEPS / cost)
    if sample.images is None:
        return len(frames)
    camera = sample.capture.camera(first.sensor)
    encoded = first.encoded()
    pixels = camera.width * camera.height if encoded is None else math.prod(encoded.size)
    part = JPEG if encoded is not None and encoded.data.startswith(b"\xff\xd8") else 1.0
    return int(PIXELS * sample.images / IMAGES / len(sample.capture.cameras) / (part * pixels))


def _every(rays: int) -> int:
    """One of so many points is looked at."""
    return max(1, rays // POINTS)


def glimpse_works(sample: Sample) -> Iterator[Callable[[], object]]:
    for frames in sample.capture.by_sensor().values():
        with suppress(UserError):
            for run in glimpse_runs(sample, frames):
                yield from (partial(_looked_at, sample, run[k : k + FEW]) for k in range(0, len(run), FEW))


def _looked_at(sample: Sample, frames: Sequence[Shown]) -> None:
    for frame in frames:
        glimpse(sample, frame)


def copy_of(sample: Sample, frame: ImageFrame) -> SmallCopy | None:  # of ROWS x COLUMNS pixels; None: not encoded
    def make() -> SmallCopy | None:
        encoded = frame.encoded()
        return None if encoded is None else small_copy(encoded, (COLUMNS, ROWS))

    return sample.kept(("copy", frame.sensor, frame.index), make)


@dataclass(frozen=True)
class Glimpse:
    """A small copy, and of a sweep the points that are looked at."""

    copy: Tensor | None  # [n] float32; None: the frame shows nothing, or cannot be read
    points: int = 0
    phase: float | None = (
        None  # turns that times of rays are ahead of the lidar's, 0 to 1; None: they do not turn with it
    )


def glimpse(
    sample: Sample, frame: Shown
) -> Tensor | None:  # [n] float32; None: the frame shows nothing, or cannot be read
    return glimpsed(sample, frame).copy


def glimpsed(sample: Sample, frame: Shown) -> Glimpse:
    return sample.kept(("glimpse", frame.sensor, frame.index), lambda: _glimpse(sample, frame))


def _glimpse(sample: Sample, frame: Shown) -> Glimpse:
    try:
        if isinstance(frame, ImageFrame):
            copy = copy_of(sample, frame)
            return Glimpse(None if copy is None else _of_image(copy.pixels))
        if not isinstance(frame.load, Returning):
            return Glimpse(None)
        lidar = sample.capture.lidar(frame.sensor)
        points, times = frame.load.returns(_every(stated_rays(lidar)))
        return Glimpse(_of_points(points), len(points), _phase(lidar, frame, points, times))
    except UserError:
        return Glimpse(None)  # another check reports it


def _phase(lidar: Lidar, frame: SweepFrame, points: Tensor, times: Tensor) -> float | None:
    seconds = frame.time_end - frame.time_start
    if not lidar.spins or seconds <= 0 or len(points) < PHASED:
        return None
    some = slice(None, None, max(1, len(points) // PHASED))
    azimuth = torch.atan2(points[some, 1], points[some, 0]).double()
    ahead = (times[some] - frame.time_start) / seconds - lidar.spin_fraction(azimuth)
    x, y = (float(f(2 * math.pi * ahead).mean()) for f in (torch.cos, torch.sin))
    return (math.atan2(y, x) / (2 * math.pi)) % 1 if math.hypot(x, y) > STEADY else None


def _of_image(copy: Tensor) -> Tensor | None:  # [ROWS, COLUMNS, 3] uint8 -> [n]
    """Brightness without the exposure, which may change from image to image."""
    image = grey(copy).flatten()
    scatter = float(image.std())
    return None if scatter < 1 else (image - image.mean()) / (scatter + PLAIN)


def _of_points(points: Tensor) -> Tensor | None:  # [n, 3] metres -> [SECTORS]
    """The mean logarithm of the distances in each sector around the lidar."""
    if not len(points):
        return None
    some = points[:: max(1, len(points) // POINTS)].float()
    sector = ((torch.atan2(some[:, 1], some[:, 0]) / (2 * math.pi) + 0.5) * SECTORS).long().clamp(0, SECTORS - 1)
    far = some[:, :2].norm(dim=1).clamp(min=1).log()
    count = torch.bincount(sector, minlength=SECTORS)
    return torch.bincount(sector, far, minlength=SECTORS).float() / count.clamp(min=1)
