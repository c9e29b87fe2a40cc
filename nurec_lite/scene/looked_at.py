# SPDX-License-Identifier: Apache-2.0
"""The moments that a first scene looks at: so many that every track shows itself, and no more for a longer drive."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch

from nurec_lite.capture.evenly import spread
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.geometry.tracks import Tracks

LEAST, MOST = 12, 30  # moments that spread over the drive
APART_M = 4.0  # metres of way for each of them: 12, 20 and 30 moments give KITTI 0009 the same PSNR (benchmarks/LOG.md)
APART_S = 2.0  # seconds for each of them where the rig is slow
MORE = 30  # moments at most for tracks that none of these shows: without a point an actor stays empty
Frames = tuple[list[ImageFrame], list[SweepFrame]]  # of one moment


def moments_looked_at(capture: Capture) -> list[Frames]:
    """Training frames of these moments: of those that spread over the drive, then of those for single tracks; each in the order of time."""
    split, numbers = capture.split, capture.moments
    assert split is not None
    frames: dict[int, Frames] = {}
    for i in split.train_images:
        frames.setdefault(numbers.images[i], ([], []))[0].append(capture.images[i])
    for i in split.train_sweeps:
        frames.setdefault(numbers.sweeps[i], ([], []))[1].append(capture.sweeps[i])
    times = {number: (*sweeps, *images)[0].time_mid for number, (images, sweeps) in frames.items()}
    some = spread(sorted(frames), count(capture))
    return [frames[number] for number in (*some, *_for_tracks(capture.tracks, times, some))]


def count(capture: Capture) -> int:
    """Moments that spread over the drive, at most: the longer its way or its time, the more."""
    frames = sorted((*capture.sweeps, *capture.images), key=lambda frame: frame.time_start)
    places = torch.stack([frame.T_world_rig_start[:3, 3] for frame in frames])
    way = float((places[1:] - places[:-1]).norm(dim=1).sum())
    seconds = frames[-1].time_end - frames[0].time_start
    return min(max(LEAST, round(way / APART_M), round(seconds / APART_S)), MOST)


def _for_tracks(
    tracks: Tracks,
    times: Mapping[int, float],  # seconds, of all moments
    some: Sequence[int],  # that are looked at
) -> list[int]:
    """Moments near the middle of tracks that no moment shows, one for several tracks where it can be."""
    spans = [(float(tracks.times[a]), float(tracks.times[b - 1])) for a, b in pairwise(tracks.offsets)]
    more: list[int] = []
    for begin, end in sorted(spans, key=sum) if times else ():
        if any(begin <= times[number] <= end for number in (*some, *more)):
            continue
        nearest = min(times, key=lambda number: abs(2 * times[number] - begin - end))
        more += [nearest] if begin <= times[nearest] <= end else []
    return spread(sorted(more), MORE)
