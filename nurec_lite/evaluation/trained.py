# SPDX-License-Identifier: Apache-2.0
"""Which frames a run was trained on, where another split than its own is measured: none of these is held out."""

import math
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from nurec_lite.capture.types import Capture, Frame, part_of
from nurec_lite.evaluation.measure import Frames


def trained_on(
    capture: Capture,
    frames: Frames,  # that are measured
    data: Mapping[str, Any],  # `data` of the run's configuration
) -> dict[str, str] | None:  # for metrics.json; None: the capture's split is the run's own, and says it
    """The run's split, how many of the frames it was trained on, and which."""
    assert capture.split is not None
    if data["split"] == capture.split.name:
        return None
    images: list[Frame] = [capture.images[i] for i in frames.images]
    sweeps: list[Frame] = [capture.sweeps[i] for i in frames.sweeps]
    kinds = [
        (name, kind, _seen(capture, data, kind)) for name, kind in (("images", images), ("sweeps", sweeps)) if kind
    ]
    return {
        "trained_split": data["split"],
        "trained_on": " and ".join(f"{len(seen)} of {len(kind)} {name}" for name, kind, seen in kinds),
        "trained_frames": _told([frame for _, _, seen in kinds for frame in seen]),
    }


def _seen(capture: Capture, data: Mapping[str, Any], frames: list[Frame]) -> list[Frame]:
    first, last = data.get("frames") or (0, math.inf)
    return [f for f in frames if first <= f.index < last and part_of(capture, data["split"], f) == "train"]


def _told(frames: Iterable[Frame]) -> str:
    """As in: image_02 0-3, 5-8; velodyne 0-3."""
    by_sensor = groupby(sorted(frames, key=lambda f: (f.sensor, f.index)), lambda f: f.sensor)
    return "; ".join(f"{sensor} {_runs([f.index for f in group])}" for sensor, group in by_sensor) or "none"


def _runs(indices: list[int]) -> str:
    """Numbers that follow one another as their first and last; each is at the same distance from its place."""
    runs = [[n for _, n in run] for _, run in groupby(enumerate(indices), lambda pair: pair[1] - pair[0])]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
