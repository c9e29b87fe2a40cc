# SPDX-License-Identifier: Apache-2.0
"""Rows and stamps of a KITTI raw drive that do not fit its frames."""

from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

from nurec_lite.capture.files import read_text
from nurec_lite.capture.kitti.poses import SECOND, Clock, read_times
from nurec_lite.capture.types import Doubt


def row_doubts(
    path: Path,  # of poses
    clock: Clock,
    sweeps: Collection[int],  # numbers of all sweeps of the drive
) -> Iterator[Doubt]:
    """Doubts about rows that do not fit the frames of the drive, also those that are not read."""
    rows, frames = (
        len(read_text(path, "name an existing poses_file (data.poses.file)").rstrip().splitlines()),
        len(clock.forward),
    )
    if rows > frames:
        sentence = f"{path.name} has {rows} rows, but the drive has {frames} frames."
        yield Doubt(path.name, False, sentence, "give the file of this drive, with a row for each frame")
    elif rows == len(sweeps) < frames and sorted(sweeps) != list(range(len(sweeps))):
        missing = next(n for n in range(frames) if n not in sweeps)
        sentence = (
            f"{path.name} has {rows} rows, as many as the drive has sweeps, but row i belongs to frame i and the frames are numbered to "
            f"{frames - 1}: from frame {missing} on, where a sweep is missing, rows belong to later frames."
        )
        yield Doubt(path.name, True, sentence, "write a row for each frame, also for those without a sweep")


def stamp_doubts(
    path: Path,  # timestamps.txt of a camera
    clock: Clock,
) -> Iterator[Doubt]:
    """Stamps that are off by half a frame or more throughout: lines at the start are missing or too many."""
    times = (read_times(path) - clock.origin) / SECOND
    n = min(len(times), len(clock.forward))
    late, period = np.nanmedian(times[:n] - clock.forward[:n]), np.nanmedian(np.diff(clock.forward))
    if n > 1 and abs(late) > 0.5 * period:
        name, frames = f"{path.parent.name}/{path.name}", round(abs(late) / period)
        way = f"{abs(late):.2f} s {'after' if late > 0 else 'before'} {clock.source}"
        if frames >= n:  # no lines are missing
            remedy = f"{'subtract' if late > 0 else 'add'} {abs(late):.0f} s, so that both have times of one clock"
            yield Doubt(name, True, f"{name} stamps frames {way}, by more than the drive lasts.", remedy)
            return
        sentence = f"{name} stamps frames {way}, {frames} frames {'late' if late > 0 else 'early'}."
        yield Doubt(
            name, True, sentence, f"restore its {'first lines' if late > 0 else 'lines'}: line i belongs to frame i"
        )
