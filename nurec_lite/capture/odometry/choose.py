# SPDX-License-Identifier: Apache-2.0
"""The poses that a capture is used with: its own, or those that its sweeps and velocities show, whichever make the map sharper."""

import logging
from dataclasses import replace
from functools import partial

import torch

from nurec_lite.base.errors import UserError
from nurec_lite.base.waiting import done_apart
from nurec_lite.capture.digest import KnownPath
from nurec_lite.capture.odometry.apart import POSER
from nurec_lite.capture.odometry.clouds import Poses
from nurec_lite.capture.odometry.drive import PAIRS, Drive, Found, looked
from nurec_lite.capture.odometry.estimate import Estimate
from nurec_lite.capture.odometry.known import about, as_known, completed, covers, replaces
from nurec_lite.capture.odometry.reckoning import log as twist_of
from nurec_lite.capture.odometry.replace import with_poses
from nurec_lite.capture.odometry.sharpness import Sharpness, gap_of, pairs_of
from nurec_lite.capture.types import CHOSEN, ESTIMATED, GIVEN, UNKNOWN, Capture, CaptureError
from nurec_lite.geometry.se3 import invert

log = logging.getLogger("nurec_lite")
FEWEST = 3  # sweeps
BLURRED = 0.15  # metres from points to surfaces, the median, under an estimate that failed
OPEN = 0.5  # of the motions: more that surfaces leave open make an estimate fail
ALIKE = 1.1  # times the blur of other poses: the points near surfaces decide
SHARPER, CALMER = 0.97, 0.7  # times the figures of the capture's own poses
JITTER = 0.002  # metres: less is no reason for other poses
METRES, RADIANS, PART = 0.1, 0.006, 0.08  # largest difference of right poses over ten sweeps, and part of the way
OTHERS = "give other poses by data.poses.file (KITTI) or data.mapping (ROS)"


def posed(
    capture: Capture,
    source: str,  # data.poses.source
    known: KnownPath | None = None,  # of the scene that it is opened for
) -> Capture:
    """The capture with the poses that it is used with. A sentence in the log says which, and why."""
    if known is not None and source != "capture" and (source == "auto" or known.poses_from == ESTIMATED):
        return _posed_as(capture, source, known)
    drive = _drive_of(capture)
    if drive is None:
        if source == "lidar" or capture.poses_from == UNKNOWN:
            raise CaptureError(
                f"{capture.name} has fewer than {FEWEST} sweeps of a lidar, which are too few to estimate poses from; {_remedy(capture)}"
            )
        return capture
    if source == "capture" or (source == "auto" and capture.poses_from in (CHOSEN, ESTIMATED)):
        return capture
    return _chosen(drive, source)


def _remedy(capture: Capture) -> str:
    return OTHERS if capture.poses_from == UNKNOWN else f"give data.poses=capture to keep its own, or {OTHERS}"


def _posed_as(capture: Capture, source: str, known: KnownPath) -> Capture:
    """The capture with the poses of the scene. Frames that training did not have get estimated poses, moved onto
    those."""
    if not replaces(known, capture):
        return replace(capture, poses_from=known.poses_from)
    path = about(known, capture)
    found = as_known(capture, path) if covers(path, capture) else completed(posed(capture, source), path)
    return replace(found, poses_from=ESTIMATED)


def _drive_of(capture: Capture) -> Drive | None:
    """Drive of the lidar with most beams; None: no lidar has enough sweeps."""
    found = [Drive(capture, lidar, [f for f in capture.sweeps if f.sensor == lidar.name]) for lidar in capture.lidars]
    enough = [drive for drive in found if len(drive.frames) >= FEWEST]
    return max(enough, key=lambda drive: len(drive.lidar.elevations), default=None)


def _chosen(drive: Drive, source: str) -> Capture:
    capture = drive.capture
    try:
        found = done_apart(POSER, partial(looked, drive, source))
    except UserError:
        raise
    except (ArithmeticError, RuntimeError, ValueError, IndexError) as error:  # points that show nothing
        log.debug("poses could not be estimated", exc_info=True)
        return _kept(
            capture, source, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason'}"
        )
    if found is None:
        return replace(capture, poses_from=CHOSEN)
    if (problem := _problem(found)) is not None:
        return _kept(capture, source, problem)
    if found.own is None:
        log.info(
            "poses: %s; sweeps %d apart lie within %s", found.estimate.sources, gap_of(len(drive.frames)), found.sharp
        )
        return replace(with_poses(capture, found.estimate.path.at), poses_from=ESTIMATED)
    return _better(drive, source, found.estimate, found.sharp, found.own)


def _problem(found: Found) -> str | None:
    if found.estimate.open > OPEN:
        return f"{found.estimate.open:.0%} of them show too few surfaces across a direction to tell how far the vehicle moved"
    return f"sweeps would lie {found.sharp.median:.2f} m apart" if found.sharp.median > BLURRED else None


def _better(drive: Drive, source: str, estimate: Estimate, sharp: Sharpness, own: Sharpness) -> Capture:
    """Returns the sharper poses; a line of the log names them and the sharpness of both."""
    capture = drive.capture
    if source == "auto" and capture.poses_from == GIVEN and _contradict(drive, estimate):
        log.debug("poses: the capture's own, which the sweeps contradict; the checks of the capture name that")
        return capture
    if source == "lidar" or _sharper(sharp, own):
        line, figures = (
            f"{estimate.sources}; sweeps %d apart lie within %s, by the capture's own poses %s",
            (sharp, own),
        )
        capture, poses_from = with_poses(capture, _in_world(drive, estimate)), ESTIMATED
    else:
        line, figures = "the capture's own; sweeps %d apart lie within %s, by estimated ones %s", (own, sharp)
        poses_from = CHOSEN
    log.info(f"poses: {line}", gap_of(len(drive.frames)), *figures)
    return replace(capture, poses_from=poses_from)


def _kept(capture: Capture, source: str, problem: str) -> Capture:
    if source == "lidar" or capture.poses_from == UNKNOWN:
        raise CaptureError(f"{capture.name}: no poses can be estimated from the sweeps ({problem}); {_remedy(capture)}")
    log.warning("poses: the capture's own, since none can be estimated from the sweeps (%s)", problem)
    return capture


def _sharper(mine: Sharpness, own: Sharpness) -> bool:
    if not ALIKE * mine.blur > own.blur > mine.blur / ALIKE:
        return mine.blur < own.blur
    calmer = own.jitter > JITTER and mine.jitter < CALMER * own.jitter
    return mine.median < SHARPER * own.median or (mine.median < own.median / SHARPER and calmer)


def _contradict(drive: Drive, estimate: Estimate) -> bool:
    """Whether poses are wrong rather than blurred: motions over ten sweeps differ by more than drift explains."""
    times = drive.middles
    pairs = torch.tensor(pairs_of(len(times), PAIRS))
    own, other = (invert(T[pairs[:, 0]]) @ T[pairs[:, 1]] for T in (estimate.path.at(times), drive.said(times)))
    apart, way = (twist_of(T).view(-1, 2, 3).norm(dim=2) for T in (invert(own) @ other, own))
    return float((apart > torch.tensor([RADIANS, METRES]) + PART * way).any(1).double().mean()) > 0.5


def _in_world(drive: Drive, estimate: Estimate) -> Poses:
    """Poses in the world of the capture; both begin with one pose."""
    first = drive.middles[:1]
    T = drive.said(first) @ invert(estimate.path.at(first))
    return lambda times: T[0] @ estimate.path.at(times)
