# SPDX-License-Identifier: Apache-2.0
"""The poses that a capture is used with: its own, or those that its sweeps and velocities show, whichever make the map sharper."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.base.errors import UserError
from nurec_lite.capture.odometry.clouds import Cloud, clouds_of
from nurec_lite.capture.odometry.estimate import Estimate, estimated
from nurec_lite.capture.odometry.glance import seem_sharp
from nurec_lite.capture.odometry.reckoning import log as log_of
from nurec_lite.capture.odometry.replace import with_poses
from nurec_lite.capture.odometry.sharpness import GAP, Sharpness, pairs_of, sharpness
from nurec_lite.capture.trajectory import Trajectory, trajectory_of
from nurec_lite.capture.types import GIVEN, UNKNOWN, Capture, CaptureError, SweepFrame
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import interpolate_trajectory, invert

log = logging.getLogger("nurec_lite")
FEWEST = 3  # sweeps
PAIRS = 12  # of sweeps that are compared
BLURRED = 0.15  # metres from points to surfaces, the median, under an estimate that failed
SHARPER, ALIKE, CALMER = 0.97, 1.03, 0.7  # times the capture's figures: sharper; as sharp, and calmer
JITTER = 0.002  # metres: less is no reason for other poses
METRES, RADIANS, PART = 0.1, 0.006, 0.08  # by which right poses may differ over GAP sweeps, and part of the way
OTHERS = "give other poses by data.poses.file"


@dataclass(frozen=True)
class Drive:
    """What poses are estimated from."""

    capture: Capture
    lidar: Lidar
    frames: Sequence[SweepFrame]  # K of the lidar

    @property
    def middles(self) -> Tensor:  # [K] seconds
        return torch.tensor([frame.time_mid for frame in self.frames], dtype=torch.float64)

    @property
    def said(self) -> Trajectory:
        """The capture's own poses."""
        return trajectory_of(self.capture)


def posed(
    capture: Capture,
    source: str,  # data.poses.source
) -> Capture:
    """The capture with the poses that it is used with. A sentence in the log says which, and why."""
    drive = _drive_of(capture)
    if drive is None:
        if source == "lidar" or capture.poses_from == UNKNOWN:
            raise CaptureError(
                f"{capture.name} has fewer than {FEWEST} sweeps of a lidar, which are too few to estimate poses from; {OTHERS}"
            )
        return capture
    if source == "capture" or (
        source == "auto" and capture.poses_from == GIVEN and seem_sharp(drive.frames, drive.lidar)
    ):
        return capture
    return _chosen(drive, source)


def _drive_of(capture: Capture) -> Drive | None:
    """With the lidar that has most beams; None: no lidar has enough sweeps."""
    found = [Drive(capture, lidar, [f for f in capture.sweeps if f.sensor == lidar.name]) for lidar in capture.lidars]
    enough = [drive for drive in found if len(drive.frames) >= FEWEST]
    return max(enough, key=lambda drive: len(drive.lidar.elevations), default=None)


def _chosen(drive: Drive, source: str) -> Capture:
    capture = drive.capture
    try:
        clouds = clouds_of(drive.frames, drive.lidar)
        estimate = estimated(clouds, _span(capture), capture.measured, _known(drive))
        pairs = pairs_of(len(clouds), PAIRS)
        mine = sharpness(clouds, pairs, estimate.path.at, drive.middles)
        problem = None if mine.median < BLURRED else f"sweeps would lie {mine.median:.2f} m apart"
    except UserError:
        raise
    except (ArithmeticError, RuntimeError, ValueError, IndexError) as error:  # points that show nothing
        log.debug("poses could not be estimated", exc_info=True)
        problem = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    if problem is not None:
        return _kept(capture, source, problem)
    if capture.poses_from == UNKNOWN:
        log.info("poses: %s; sweeps %d apart lie within %s", estimate.sources, GAP, mine)
        return with_poses(capture, estimate.path.at)
    return _compared(drive, source, clouds, pairs, estimate, mine)


def _compared(
    drive: Drive, source: str, clouds: list[Cloud], pairs: list[tuple[int, int]], estimate: Estimate, mine: Sharpness
) -> Capture:
    capture, said = drive.capture, drive.said
    theirs = sharpness(
        clouds, pairs, lambda times: interpolate_trajectory(said.times, said.poses, times), drive.middles
    )
    if source == "auto" and capture.poses_from == GIVEN and _contradict(drive, estimate):
        log.debug("poses: the capture's, which the sweeps contradict: the checks say so")
        return capture
    taken = source == "lidar" or _sharper(mine, theirs)
    log.info(
        "poses: %s; sweeps %d apart lie within %s; by the capture's own poses %s",
        estimate.sources if taken else "the capture's own, which are as sharp as those estimated", GAP, mine, theirs,
    )  # fmt: skip
    return with_poses(capture, _in_world(drive, estimate)) if taken else capture


def _kept(capture: Capture, source: str, problem: str) -> Capture:
    if source == "lidar" or capture.poses_from == UNKNOWN:
        raise CaptureError(f"{capture.name}: no poses can be estimated from the sweeps ({problem}); {OTHERS}")
    log.warning("poses: the capture's own, since none can be estimated from the sweeps (%s)", problem)
    return capture


def _sharper(mine: Sharpness, theirs: Sharpness) -> bool:
    calmer = theirs.jitter > JITTER and mine.jitter < CALMER * theirs.jitter
    return mine.median < SHARPER * theirs.median or (mine.median < ALIKE * theirs.median and calmer)


def _contradict(drive: Drive, estimate: Estimate) -> bool:
    """Whether poses are wrong rather than blurred: motions over GAP sweeps differ by more than drift explains."""
    said, times = drive.said, drive.middles
    pairs = torch.tensor(pairs_of(len(times), PAIRS))
    own, other = (
        invert(T[pairs[:, 0]]) @ T[pairs[:, 1]]
        for T in (estimate.path.at(times), interpolate_trajectory(said.times, said.poses, times))
    )
    apart, way = (log_of(T).view(-1, 2, 3).norm(dim=2) for T in (invert(own) @ other, own))
    return float((apart > torch.tensor([RADIANS, METRES]) + PART * way).any(1).double().mean()) > 0.5


def _known(drive: Drive) -> Trajectory | None:
    return None if drive.capture.poses_from == UNKNOWN else drive.said


def _in_world(drive: Drive, estimate: Estimate):  # type: ignore[no-untyped-def]
    """In the world of the capture, where both begin with one pose."""
    first, said = drive.middles[:1], drive.said
    T = interpolate_trajectory(said.times, said.poses, first) @ invert(estimate.path.at(first))
    return lambda times: T[0] @ estimate.path.at(times)


def _span(capture: Capture) -> tuple[float, float]:  # seconds
    frames = (*capture.images, *capture.sweeps)
    return min(f.time_start for f in frames), max(f.time_end for f in frames)
