# SPDX-License-Identifier: Apache-2.0
"""Sweeps that hold far fewer returns than those around them, none, or those of the sweep before. Sizes of files say where to look."""

import zlib
from collections.abc import Iterator, Sequence
from statistics import median

from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.files import PIECE, PIECES
from nurec_lite.capture.types import Marked, SweepFrame
from nurec_lite.capture.without import leave_out
from nurec_lite.geometry.lidar import Lidar

NEIGHBOURS = 3  # sweeps before and after
SMALL, FEW = 0.7, 0.65  # of the median size and of the median returns of neighbours, that a whole sweep has at least
MOST = 3  # sweeps that are decoded to be sure
MOVED = 0.2  # metres from a sweep to the next that change returns
FILES = 5  # that tell anything
Marks = list[tuple[int, int]]  # bytes and checksum of each sweep


def emptied(sample: Sample, lidar: Lidar, check: str) -> Iterator[Verdict]:
    frames = sample.of_lidar(lidar.name)
    marks = [frame.load.mark(thorough=True) if isinstance(frame.load, Marked) else (-1, -1) for frame in frames]
    few = [k for k in _suspects(sample, frames, marks)[:MOST] if _few(sample, frames, k)]
    if few:
        counts = [returns_of(sample, frames[k]) for k in few]
        usual = median(returns_of(sample, frame) for frame in sample.decoded(lidar.name))
        listed = ", ".join(f"{frames[k].index} ({count})" for k, count in zip(few, counts, strict=True))
        more = f" of {sum(_small(marks, k) for k in range(len(frames)))} small files" if len(few) == MOST else ""
        sentence = f"Sweeps of {lidar.name} hold few returns, where others hold {usual:.0f}: sweep {listed}{more}."
        remedy = f"copy them again from their source, or {leave_out(lidar.name, [frames[k].index for k in few])}"
        yield Verdict(check, lidar.name, Level.LIKELY, sentence, remedy, {"few": float(len(few))})
    again = [k for k in range(1, len(frames)) if _repeats(frames, marks, k)]
    if again:
        sentence = (
            f"{len(again)} of {len(frames)} sweeps of {lidar.name} repeat the sweep before (the first is sweep "
            f"{frames[again[0]].index}), although the vehicle moves."
        )
        remedy = f"restore them, or {leave_out(lidar.name, [frames[k].index for k in again])}"
        yield Verdict(check, lidar.name, Level.LIKELY, sentence, remedy)


def _suspects(sample: Sample, frames: Sequence[SweepFrame], marks: Marks) -> list[int]:
    """Places of sweeps with small or empty files, and of those that are decoded in any case and hold few returns."""
    decoded = {frame.index for frame in sample.decoded(frames[0].sensor)} if frames else set()
    counts = {k: returns_of(sample, frame) for k, frame in enumerate(frames) if frame.index in decoded}
    usual = median(counts.values()) if counts else 0
    found = {k for k, count in counts.items() if count < SMALL * usual}
    return sorted(found | {k for k in range(len(frames)) if _small(marks, k)}, key=lambda k: (marks[k][0], k))


def _small(marks: Marks, k: int) -> bool:
    size, checksum = marks[k]
    near = [marks[i][0] for i in _near(len(marks), k)]
    zeros = zlib.crc32(bytes(PIECES * min(PIECE, max(0, size))))
    return size >= 0 and len(marks) >= FILES and (size < SMALL * median(near) or checksum == zeros)


def _near(count: int, k: int) -> list[int]:
    return [i for i in range(max(0, k - NEIGHBOURS), min(count, k + NEIGHBOURS + 1)) if i != k]


def _few(sample: Sample, frames: Sequence[SweepFrame], k: int) -> bool:
    """Whether a sweep holds far fewer returns than the median of its neighbours."""
    beside = [returns_of(sample, frames[i]) for i in (k - 1, k + 1, k - 2, k + 2) if 0 <= i < len(frames)]
    return bool(beside) and returns_of(sample, frames[k]) < FEW * sorted(beside)[len(beside) // 2]


def returns_of(sample: Sample, frame: SweepFrame) -> int:
    return sample.kept(("returns", frame.sensor, frame.index), lambda: int(sample.sweep(frame).returned.sum()))


def _repeats(frames: Sequence[SweepFrame], marks: Marks, k: int) -> bool:
    """Whether a file has the content of the one before. Where one file holds all sweeps, all marks are the same."""
    moved = float((frames[k].T_world_rig_start[:3, 3] - frames[k - 1].T_world_rig_start[:3, 3]).norm()) > MOVED
    return -1 not in marks[k] and marks[k] == marks[k - 1] and len(set(marks)) > 1 and moved
