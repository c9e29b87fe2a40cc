# SPDX-License-Identifier: Apache-2.0
"""Differences of two captures: the one that a scene was made from, as its digest says, and the one that is opened for it now.

A difference is certain if the scene cannot belong to the opened capture. The others leave something that can be measured.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from nurec_lite.base.key_values import assigned
from nurec_lite.capture.digest import UNKNOWN, Digest, SensorFrames
from nurec_lite.capture.sensor_difference import Difference, apart, sensor_differences
from nurec_lite.capture.without import frame_names, without

SAME_TIME = 1e-5  # seconds
SAME_POSE, SAME_TURN = 1e-3, 1e-3  # metres and radians
ELSEWHERE, AWRY = 5.0, math.radians(10)  # metres and radians; beyond, the scene is not where the sensors are
ENCODED_ANEW = 0.9  # of the frames that were compared: where fewer have other files, these were edited
GREY, MOST_GREY = 2.5, 16.0  # levels of 255 between small copies of an image: root of the mean square, and the largest
# between sweeps: of mean ranges and points, of the number of rays, of intensities
METRES, SHARE, BRIGHT = 0.005, 0.002, 0.01

Look = Callable[[str, int], Tensor]  # sensor and index of a frame of the opened capture -> its look


@dataclass(frozen=True)
class Asked:
    """Choices of the user that differ from those of training."""

    downscale: tuple[int, int] = (1, 1)  # when trained, and now
    frames: bool = False
    image_delay: bool = False
    exact: bool = False  # no key can be changed: a run goes on with its own values


def differences(known: Digest, found: Digest, look: Look, asked: Asked) -> Iterator[Difference]:
    """Differences of two captures, the most telling ones first."""
    yield from sensor_differences(known, found, asked.downscale)
    cameras, both = {c.name for c in known.cameras}, [name for name in known.frames if name in found.frames]
    yield from _number_differences(known, found, both, asked)
    for name in both:
        delayed = asked.image_delay and name in cameras
        yield from _time_differences(name, known.frames[name], found.frames[name], delayed)
    for name in both:
        yield from _content_differences(name, known.frames[name], found.frames[name], look, name in cameras)
    yield from pose_differences(known, found)


# ---- frames


def _pairs(was: SensorFrames, now: SensorFrames) -> tuple[Tensor, Tensor]:  # [b] rows of frames with one number
    row = {index: i for i, index in enumerate(was.indices.tolist())}
    both = [(row[index], i) for i, index in enumerate(now.indices.tolist()) if index in row]
    rows = torch.tensor(both, dtype=torch.int64).reshape(-1, 2)
    return rows[:, 0], rows[:, 1]


def _number_differences(known: Digest, found: Digest, both: Sequence[str], asked: Asked) -> Iterator[Difference]:
    """Differences of frame numbers, one for all sensors that have lost or won the same frames."""
    names: dict[str, list[str]] = {}
    remedies: dict[str, str | None] = {}
    more: dict[str, list[str]] = {}  # frames that the first capture lacks
    for name in both:
        was, now = known.frames[name], found.frames[name]
        shared = len(_pairs(was, now)[0])
        if shared < max(len(was.indices), len(now.indices)):
            said = f"{_counted(now)}, but had {_counted(was)}, {shared or 'none'} of them the same"
            names.setdefault(said, []).append(name)
            remedies[said] = None if asked.exact else _part_of(was, now, shared)
            if shared == len(was.indices):
                more.setdefault(said, []).extend(frame_names(name, {*now.indices.tolist()} - {*was.indices.tolist()}))
    for said, of in names.items():
        verb = "have" if len(of) > 1 else "has"
        remedy = remedies[said] or (f"give {without(more[said])}" if said in more and not asked.exact else None)
        yield Difference(f"{', '.join(of)} {verb} {said}", certain=not asked.frames, remedy=remedy)


def _time_differences(name: str, was: SensorFrames, now: SensorFrames, delayed: bool) -> Iterator[Difference]:
    rows, own = _pairs(was, now)
    late = (now.times[own] - was.times[rows]).abs().amax(dim=1)
    wrong = (late > SAME_TIME).nonzero()[:, 0].tolist()
    if wrong:
        first = wrong[0]
        before, after = (float(t[k].mean()) for t, k in ((was.times, rows[first]), (now.times, own[first])))
        called = f"frame {int(now.indices[own[first]])} of {name}" + (
            f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        )
        yield Difference(f"{called} is of {after:.6g} s, but was of {before:.6g} s", certain=not delayed)


def _counted(frames: SensorFrames) -> str:
    n = len(frames.indices)
    if n == 0:
        return "no frame"
    low, high = int(frames.indices.min()), int(frames.indices.max())
    return f"{n} frames, {low} to {high}" if n > 1 else f"one frame, {low}"


def _part_of(was: SensorFrames, now: SensorFrames, both: int) -> str | None:
    """Remedy if one capture holds all frames of the other, and the part is one that data.frames gives."""
    if both and both == len(was.indices) and (part := _frames(was)):
        return f"give {part}"
    if both and both == len(now.indices) and (part := _frames(now)):
        return f"give {part} to take this part alone"
    return None


def _frames(part: SensorFrames) -> str | None:
    numbers = sorted(part.indices.tolist())
    steps = {b - a for a, b in pairwise(numbers)} or {1}
    if len(steps) > 1:
        return None
    return assigned("data.frames", [numbers[0], numbers[-1] + 1, *(steps - {1})])


# ---- content


def _content_differences(
    name: str, was: SensorFrames, now: SensorFrames, look: Look, camera: bool
) -> Iterator[Difference]:
    rows, own = _pairs(was, now)
    if not len(rows):
        return
    before, after = was.marks[rows], now.marks[own]
    sure = (before[:, 0] != UNKNOWN) & (after[:, 0] != UNKNOWN)
    summed = sure & (before[:, 1] != UNKNOWN) & (after[:, 1] != UNKNOWN)
    other = sure & (before[:, 0] != after[:, 0]) | summed & (before[:, 1] != after[:, 1])
    numbers = now.indices[own]
    if bool(sure.any()) and not bool(other.any()):
        return
    if int(other.sum()) < ENCODED_ANEW * int(sure.sum()):
        yield Difference(_edited(name, numbers[other].tolist(), camera))
    else:
        yield from _look_differences(name, was, set(numbers.tolist()), look, camera)


def _edited(name: str, numbers: list[int], camera: bool) -> str:
    what, more = "image" if camera else "sweep", f" (and {len(numbers) - 1} more)" if len(numbers) > 1 else ""
    return f"{what} {numbers[0]} of {name}{more} is another file than before"


def _look_differences(name: str, was: SensorFrames, there: set[int], look: Look, camera: bool) -> Iterator[Difference]:
    chosen = [i for i, index in enumerate(was.looked.tolist()) if index in there]
    if not chosen:
        what = "images" if camera else "sweeps"
        yield Difference(f"the {what} of {name} are other files, and none of those can be compared", certain=False)
    for i in chosen:
        index = int(was.looked[i])
        flaw = (_image_flaw if camera else _sweep_flaw)(was.looks[i], look(name, index))
        if flaw:
            yield Difference(f"{'image' if camera else 'sweep'} {index} of {name} {flaw}")
            return


def _image_flaw(was: Tensor, now: Tensor) -> str | None:
    if was.shape != now.shape:
        return None
    levels = was.double() - now.double()
    grey, most = float(levels.square().mean().sqrt()), float(levels.abs().max())
    if grey <= GREY and most <= MOST_GREY:
        return None
    return f"shows something else than it did (by {grey:.3g} of 255 in the mean, {most:.3g} at most)"


def _sweep_flaw(was: Tensor, now: Tensor) -> str | None:
    returns, rays = ((was[i], now[i]) for i in (0, 1))
    if any(abs(float(a - b)) > max(1.0, SHARE * float(a)) for a, b in (returns, rays)):
        return f"has {now[0]:.0f} returns of {now[1]:.0f} rays, but had {was[0]:.0f} of {was[1]:.0f}"
    if float((was[2:6] - now[2:6]).abs().max()) > METRES:
        return f"has a mean range of {now[2]:.4g} m about {_point(now)}, but had {was[2]:.4g} m about {_point(was)}"
    if abs(float(was[6] - now[6])) > BRIGHT:
        return f"has a mean intensity of {now[6]:.3f}, but had {was[6]:.3f}"
    return None


def _point(look: Tensor) -> str:
    return ", ".join(f"{metres:.3g}" for metres in look[3:6].tolist()) + " m"


# ---- poses


def pose_differences(known: Digest, found: Digest) -> Iterator[Difference]:
    """The largest of all sensors, in one sentence."""
    worst = (0.0, 0.0, 0, "")
    for name in known.frames.keys() & found.frames.keys():
        was, now = known.frames[name], found.frames[name]
        rows, own = _pairs(was, now)
        if not len(rows):
            continue
        moves, turns = apart(was.poses[rows], now.poses[own])
        k = int((moves / ELSEWHERE + turns / AWRY).argmax())
        worst = max(worst, (float(moves[k]), float(turns[k]), int(now.indices[own[k]]), name))
    moved, turned, index, name = worst
    if moved > SAME_POSE or turned > SAME_TURN:
        sentence = f"poses are up to {moved:.3g} m and {math.degrees(turned):.3g} degrees off their old values (frame {index} of {name})"
        yield Difference(sentence, certain=moved > ELSEWHERE or turned > AWRY)
