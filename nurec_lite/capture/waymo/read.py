# SPDX-License-Identifier: Apache-2.0
"""Reads a segment of the Waymo Open Dataset, version 2 (https://waymo.com/open), as a capture.

Seconds count from the first frame. Of lidars the first return of each ray is read.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nurec_lite.capture.check import without_unseen_tracks
from nurec_lite.capture.choice import chosen_sensors
from nurec_lite.capture.downscale import downscaled
from nurec_lite.capture.types import Capture, Doubt, SweepFrame
from nurec_lite.capture.waymo.boxes import read_tracks
from nurec_lite.capture.waymo.images import image_frames, read_cameras
from nurec_lite.capture.waymo.rays import TOP, Beams, beams_of, frame_poses, late_by, rows_of, sweep_frames
from nurec_lite.capture.waymo.segment import CAMERAS, LASERS, Segment, open_segment

LIDAR_NAMES = {
    name: name if name == TOP else f"{name}_LIDAR" for name in LASERS.values()
}  # cameras, too, are called FRONT


def read_waymo(
    root: Path,
    *,
    drive: str | None = None,  # name of a segment, its first letters, or its place among the segments
    cameras: Sequence[str] | None = None,  # None: all
    lidars: Sequence[str] | None = None,  # None: the upper one, if it is there
    downscale: int = 1,
) -> Capture:
    segment = open_segment(root, drive)
    known = read_cameras(segment) if segment.has("camera_image") else {}
    there = [
        *(name for name in CAMERAS.values() if name in known),
        *(name for name in known if name not in CAMERAS.values()),
    ]
    names = chosen_sensors("data.cameras", cameras, there, segment.name)
    found, sweeps, late = _lidars(segment, lidars)
    capture = Capture(
        name=f"waymo_{segment.name}"[:60],
        cameras=tuple(downscaled(known[name], downscale) for name in names),
        lidars=tuple(beams.lidar for beams in found),
        images=tuple(frame for name in names for frame in image_frames(segment, known[name], downscale)),
        sweeps=tuple(sweeps),
        tracks=read_tracks(segment, late),
        doubts=() if segment.timed else (Doubt(segment.name, False, UNTIMED, "download camera_image, too"),),
    )
    return without_unseen_tracks(capture)


UNTIMED = "Poses are those of frames. The data set does not give their times; they are taken to be the frames' stamps."


def _lidars(segment: Segment, asked: Sequence[str] | None) -> tuple[list[Beams], list[SweepFrame], float]:
    """Lidars, their sweeps, and the seconds from stamps to turns of the upper one."""
    rows = rows_of(segment, "lidar") if segment.has("lidar") else {}
    there = {LIDAR_NAMES.get(name, name): name for name in (*LASERS.values(), *rows) if name in rows}
    chosen = chosen_sensors("data.lidars", asked, there, segment.name)
    if asked is None and TOP in there:
        chosen = tuple(name for name in chosen if name == TOP)
    late, found, sweeps = 0.0, [], list[SweepFrame]()
    if TOP in rows:
        upper = beams_of(segment, TOP, list(rows[TOP].values()))
        late = late_by(segment, upper)
    moment = frame_poses(segment)[1] if any(name != TOP for name in chosen) else 0.0
    for name in chosen:
        own = rows[there[name]]
        beams = upper if name == TOP else beams_of(segment, there[name], list(own.values()))
        beams = replace(beams, lidar=replace(beams.lidar, name=name))
        found.append(beams)
        sweeps += sweep_frames(segment, own, beams, late if name == TOP else moment)
    return found, sweeps, late
