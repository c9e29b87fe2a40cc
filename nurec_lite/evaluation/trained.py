# SPDX-License-Identifier: Apache-2.0
"""The frames that a run was trained on, for measuring another split than its own: none of these is held out."""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from nurec_lite.base.consecutive import consecutive
from nurec_lite.capture.types import Capture, Frame, parts_of
from nurec_lite.evaluation.measure import Frames


def trained_on(
    capture: Capture,
    frames: Frames,  # that are measured
    data: Mapping[str, Any],  # `data` of the run's configuration
    of_run: Capture,  # the frames that the run had
) -> dict[str, str] | None:  # for metrics.json; None: the capture's split is the run's own, and says it
    """The run's split, how many of the frames it was trained on, and which."""
    assert capture.split is not None
    seen = {kind: _trained(of_run, data["split"], kind) for kind in ("images", "sweeps")}
    if data["split"] == capture.split.name and all(
        _trained(capture, data["split"], kind) == seen[kind] & _keys(getattr(capture, kind)) for kind in seen
    ):
        return None
    measured = {"images": frames.images, "sweeps": frames.sweeps}
    kinds = [(kind, [getattr(capture, kind)[i] for i in chosen]) for kind, chosen in measured.items() if chosen]
    found = [(kind, of_kind, [f for f in of_kind if (f.sensor, f.index) in seen[kind]]) for kind, of_kind in kinds]
    return {
        "trained_split": data["split"],
        "trained_on": " and ".join(f"{len(some)} of {len(of_kind)} {kind}" for kind, of_kind, some in found),
        "trained_frames": _frame_list([frame for _, _, some in found for frame in some]),
    }


def _trained(capture: Capture, split: str, kind: str) -> set[tuple[str, int]]:
    parts = parts_of(capture, split)[kind == "sweeps"]
    return _keys(f for f, part in zip(getattr(capture, kind), parts, strict=True) if part == "train")


def _keys(frames: Iterable[Frame]) -> set[tuple[str, int]]:
    return {(f.sensor, f.index) for f in frames}


def _frame_list(frames: Iterable[Frame]) -> str:
    """Text such as: image_02 0-3, 5-8; velodyne 0-3."""
    by_sensor = groupby(sorted(frames, key=lambda f: (f.sensor, f.index)), lambda f: f.sensor)
    return "; ".join(f"{sensor} {_runs([f.index for f in group])}" for sensor, group in by_sensor) or "none"


def _runs(indices: list[int]) -> str:
    """Numbers that follow one another as their first and last."""
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in consecutive(indices))
