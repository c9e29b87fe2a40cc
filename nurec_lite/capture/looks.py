# SPDX-License-Identifier: Apache-2.0
"""The look of sampled frames, in numbers that stay the same when a frame is encoded anew: a small copy of an image, means of a sweep.

Frames are decoded once for the initial scene. The looks of the sampled ones are taken there, so that nothing is decoded for them.
"""

from collections.abc import Iterable, Sequence
from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from nurec_lite.capture.images import as_image
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.geometry.lidar import Sweep

IMAGES, SWEEPS = 4, 2  # training frames of all sensors together, but one of each at least
ROWS, COLUMNS = 16, 48  # of the small copy at most,
BLOCK = 8  # and the least pixels along a side of its blocks: JPEG's changes of single pixels are no difference
MEANS = 7  # numbers of a sweep
Key = tuple[str, int]  # sensor and index of a frame

_lock = Lock()
_noted: "WeakKeyDictionary[Capture, dict[Key, Tensor | None]]" = WeakKeyDictionary()


def image_look(
    image: Tensor,  # [H, W, 3] uint8
) -> Tensor:  # [rows, columns, 3] uint8, means of blocks
    rows, columns = (max(1, pixels // BLOCK) for pixels in image.shape[:2])
    size = (min(COLUMNS, columns), min(ROWS, rows))  # as Pillow has it, which takes a third of torch's time
    small = Image.fromarray(image.cpu().numpy()).resize(size, Image.Resampling.BOX)
    return torch.from_numpy(np.array(small))


def sweep_look(sweep: Sweep) -> Tensor:  # [7] float64: returns, rays, mean range (m), mean point (m), mean intensity
    n = int(sweep.returned.sum())
    ranges, intensities = (torch.where(sweep.returned, values, 0) for values in (sweep.ranges, sweep.intensities))
    sums = [float(ranges.sum()), *(ranges @ sweep.directions.to(ranges)).tolist(), float(intensities.sum())]
    return torch.tensor([n, len(sweep), *(total / max(1, n) for total in sums)], dtype=torch.float64)


def look_of(frame: ImageFrame | SweepFrame, value: Tensor | Sweep) -> Tensor:
    """The look of a decoded frame, as `image_look` or `sweep_look` makes it."""
    if isinstance(frame, SweepFrame):
        assert isinstance(value, Sweep)
        return sweep_look(value)
    return image_look(as_image(value))


def note(capture: Capture, decoded: Iterable[tuple[ImageFrame | SweepFrame, Tensor | Sweep]]) -> None:
    """Keeps the looks of the sampled frames among those that were decoded. Several threads may call it."""
    known = _known(capture)
    for frame, value in decoded:
        key = (frame.sensor, frame.index)
        if key in known and known[key] is None:
            known[key] = look_of(frame, value)


def looks_of(capture: Capture) -> dict[Key, Tensor]:
    """The looks of the sampled frames; frames that are not decoded yet are decoded now."""
    known = _known(capture)
    frames: list[ImageFrame | SweepFrame] = [*capture.images, *capture.sweeps]
    note(capture, ((f, f.load()) for f in frames if known.get((f.sensor, f.index), 0) is None))
    return {key: look for key, look in known.items() if look is not None}


def _known(capture: Capture) -> dict[Key, Tensor | None]:
    with _lock:
        if capture not in _noted:
            _noted[capture] = dict.fromkeys(_sampled(capture))
        return _noted[capture]


def _sampled(capture: Capture) -> list[Key]:
    """Training frames of each sensor, evenly spaced: they are decoded in any case."""
    split = capture.split
    assert split is not None
    frames: list[ImageFrame | SweepFrame] = [capture.images[i] for i in split.train_images]
    frames += [capture.sweeps[i] for i in split.train_sweeps]
    most = {c.name: max(1, IMAGES // len(capture.cameras)) for c in capture.cameras}
    most |= {s.name: max(1, SWEEPS // len(capture.lidars)) for s in capture.lidars}
    groups = ([f for f in frames if f.sensor == name] for name in most)
    return [(f.sensor, f.index) for group in groups if group for f in _spread(group, most[group[0].sensor])]


def _spread(frames: Sequence[ImageFrame | SweepFrame], most: int) -> Sequence[ImageFrame | SweepFrame]:
    """The first one, and the others evenly after it."""
    if len(frames) <= most:
        return frames
    return [frames[i * (len(frames) - 1) // max(1, most - 1)] for i in range(most)]
