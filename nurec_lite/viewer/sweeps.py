# SPDX-License-Identifier: Apache-2.0
"""Points of a lidar: measured ones, and rendered ones along the same rays."""

from dataclasses import dataclass

import numpy as np
import torch

from nurec_lite.capture.deskew import world_points
from nurec_lite.capture.trajectory import nearest
from nurec_lite.capture.types import Capture, SweepFrame
from nurec_lite.cli.reconstruction import Reconstruction
from nurec_lite.evaluation.pictures import ERROR_MAP, MEASURED, RANGE_ERROR_M, RENDERED, Bar
from nurec_lite.output.sweeps import rendered_sweeps
from nurec_lite.scene.scene import Scene

POINTS = ("none", "measured", "rendered", "rendered over measured", "error of the range")
MOST_POINTS = 60_000  # of a cloud that goes to a browser
ERRORS = Bar(ERROR_MAP, 0, RANGE_ERROR_M, "m")
Cloud = tuple[np.ndarray, np.ndarray]  # [n, 3] float32 metres about the origin, [n, 3] uint8 colours


@dataclass(frozen=True)
class Clouds:
    """Points of a sweep to draw."""

    measured: Cloud | None = None
    rendered: Cloud | None = None


def sweep_at(capture: Capture, lidar: str, time: float) -> SweepFrame:
    """The captured sweep that is nearest in time."""
    return nearest([frame for frame in capture.sweeps if frame.sensor == lidar], time)


@torch.no_grad()
def clouds_of(
    run: Reconstruction,
    scene: Scene,  # as it is edited
    frame: SweepFrame,
    shown: str,  # of POINTS
    measured: bool,  # whether the drive's files are there
) -> Clouds:
    """The clouds that are asked for. The error is that of rays that returned in both, drawn where they were measured."""
    capture, lidar = run.capture, run.capture.lidar(frame.sensor)
    if shown == POINTS[1] or not run.stages.renders_lidar:
        return Clouds(_measured(frame, capture) if measured and shown != POINTS[0] else None)
    if shown == POINTS[0]:
        return Clouds()
    (answer,) = rendered_sweeps(run.stages, scene, capture, [frame])
    rendered = answer.sweep
    if shown == POINTS[4] and measured:
        both = answer.rays.returned & rendered.returned
        wrong = (answer.rays.ranges - rendered.ranges).abs()[both].numpy()
        points = world_points(frame, answer.rays, lidar)[both].numpy()
        return Clouds(measured=_thinned(points, ERRORS.paint(wrong)))
    points = world_points(frame, rendered, lidar)[rendered.returned].numpy()
    own = _measured(frame, capture) if measured and shown == POINTS[3] else None
    return Clouds(own, _thinned(points, _plain(RENDERED, points)))


def _measured(frame: SweepFrame, capture: Capture) -> Cloud:
    sweep = frame.load()
    points = world_points(frame, sweep, capture.lidar(frame.sensor))[sweep.returned].numpy()
    return _thinned(points, _plain(MEASURED, points))


def _plain(colour: tuple[int, int, int], points: np.ndarray) -> np.ndarray:  # [n, 3] uint8
    return np.broadcast_to(np.array(colour, np.uint8), points.shape)


def _thinned(points: np.ndarray, colours: np.ndarray) -> Cloud:
    """Every n-th point, so that few enough are left."""
    step = max(1, -(-len(points) // MOST_POINTS))
    return points[::step].astype(np.float32), np.ascontiguousarray(colours[::step])
