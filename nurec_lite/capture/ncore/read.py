# SPDX-License-Identifier: Apache-2.0
"""Reads a sequence of NCore v4 as a capture: cameras, lidars that turn, moving objects, and the path of the rig.

Seconds count from the start of the sequence.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from nurec_lite.base.names import name_flaw
from nurec_lite.base.texts import printable
from nurec_lite.capture.choice import chosen_sensors
from nurec_lite.capture.downscale import downscaled
from nurec_lite.capture.files import short
from nurec_lite.capture.ncore.boxes import read_tracks
from nurec_lite.capture.ncore.cameras import masks_of, read_camera, read_mask, stored_image
from nurec_lite.capture.ncore.fields import LATEST_US
from nurec_lite.capture.ncore.poses import Poses, read_poses
from nurec_lite.capture.ncore.rays import Model, read_lidar, stored_rays, stored_sweep
from nurec_lite.capture.ncore.sequence import Part, Sequence, open_sequence, own_frame
from nurec_lite.capture.ncore.store import REMEDY
from nurec_lite.capture.ncore.unstructured import FoundSweep, found_pattern, lidar_of
from nurec_lite.capture.packages import check_package
from nurec_lite.capture.types import GIVEN, Capture, CaptureError, Doubt, Frame, ImageFrame, SweepFrame, UnusedFrame
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar

BEYOND = 0.1  # seconds that a frame may lie beyond the poses


def read_ncore(
    root: Path,  # a store, a JSON that lists the stores of a sequence, or a folder of stores
    *,
    drive: str | None = None,  # name of a sequence in the folder, or its place among them
    cameras: tuple[str, ...] | None = None,  # None: all
    lidars: tuple[str, ...] | None = None,  # None: all that show their beams
    downscale: int = 1,
) -> Capture:
    check_package("numcodecs", "nvidia-ncore", root)
    sequence = open_sequence(Path(root), drive)
    poses, parts = read_poses(sequence), sequence.parts("cameras")
    names = chosen_sensors("data.cameras", cameras, parts, sequence.where)
    read = {name: _masked(sequence, read_camera(sequence, poses, name)) for name in names}
    lenses, unused = (
        {name: camera for name, (camera, _) in read.items()},
        [d for _, found in read.values() for d in found],
    )
    sensors, sweeps, doubts = _lidars(sequence, poses, lidars)
    images = tuple(
        f for name, camera in lenses.items() for f in _images(sequence, poses, parts[name], camera, downscale)
    )
    tracks, ignored = read_tracks(sequence, poses)
    own = sequence.own
    return Capture(
        name=own["name"] if own else f"ncore_{_named(sequence)}",
        cameras=tuple(downscaled(camera, downscale) for camera in lenses.values()),
        lidars=tuple(sensors),
        images=images,
        sweeps=tuple(sweeps),
        tracks=tracks,
        doubts=(
            *(Doubt(**row) for row in (own or {}).get("doubts", ())),
            *doubts,
            *unused,
            *ignored,
            *_absent(sequence),
            *_beyond(parts, images, names),
        ),
        poses_from=(own and own["poses"]) or GIVEN,
        searched=(own or {}).get("searched", False),
        left_out=tuple(UnusedFrame(**row) for row in (own or {}).get("left_out", ())),
    )


def _absent(sequence: Sequence) -> Iterator[Doubt]:
    if sequence.absent:
        names = ", ".join(map(short, sequence.absent))
        yield Doubt(
            sequence.where.name,
            False,
            f"Stores of its list are not there: {names}.",
            "download them, if their sensors count",
        )


def _named(sequence: Sequence) -> str:
    plain = "".join(c if c.isalnum() or c in "-_." else "_" for c in sequence.name)[:50].strip(".")
    return plain if name_flaw(plain) is None else "sequence"


def _stamps(part: Part) -> list[tuple[int, int]]:
    rows = part.attributes("frames").get("frames_timestamps_us")
    if not isinstance(rows, list) or not all(
        isinstance(row, list) and len(row) == 2 and all(type(t) is int and 0 <= t < LATEST_US for t in row)
        for row in rows
    ):
        raise CaptureError(f"{part}/frames: 'frames_timestamps_us' must be pairs of microseconds; {REMEDY}")
    return [(first, last) for first, last in rows]


def _frames(sequence: Sequence, poses: Poses, part: Part, still: bool) -> Iterator[tuple[int, Frame]]:
    """Yields each frame and the microsecond that names it. Frames beyond the poses are left out.

    A frame of a global shutter is seen at its start, as NCore has it.
    """
    for k, (first, last) in enumerate(_stamps(part)):
        own = own_frame(part, last) or {"index": k, "start_us": first, "end_us": first if still else last}
        times = sequence.seconds(own["start_us"]), sequence.seconds(own["end_us"])
        low, high = poses.path.span
        if low - BEYOND <= times[0] <= times[1] <= high + BEYOND:
            T = poses.path.at(torch.tensor(times, dtype=torch.float64))
            yield last, Frame(part.group.partition("/")[2], own["index"], *times, T[0], T[1])


def _images(sequence: Sequence, poses: Poses, part: Part, camera: Camera, downscale: int) -> list[ImageFrame]:
    found = [
        ImageFrame(**vars(frame), load=stored_image(part, camera, end, downscale))
        for end, frame in _frames(sequence, poses, part, camera.shutter == "global")
    ]
    if found:
        stored_image(part, camera, _stamps(part)[0][1], downscale).check()
    return found


def _beyond(parts: Mapping[str, Part], frames: Iterable[Frame], names: Iterable[str]) -> Iterator[Doubt]:
    """Findings about the frames of sensors that lie beyond the poses."""
    there = Counter(frame.sensor for frame in frames)
    for name in names:
        lost = len(_stamps(parts[name])) - there[name]
        if lost:
            sentence = f"{lost} of the frames of {name} lie beyond the poses, and are left out."
            yield Doubt(name, False, sentence, "store poses of their times")


def _lidars(
    sequence: Sequence, poses: Poses, asked: tuple[str, ...] | None
) -> tuple[list[Lidar], list[SweepFrame], list[Doubt]]:
    """Returns the lidars; one that does not show its beams is left out, or refused if it is asked for."""
    lidars, sweeps, doubts = list[Lidar](), list[SweepFrame](), list[Doubt]()
    parts = sequence.parts("lidars")
    for name in chosen_sensors("data.lidars", asked, parts, sequence.where):
        model = read_lidar(sequence, poses, name)
        own = None if model is None else _sweeps(sequence, poses, parts[name], model)
        try:
            lidar, frames, notes = (
                (model.lidar, own, ()) if model and own is not None else _found(sequence, poses, parts[name])
            )
        except CaptureError as error:
            if asked:
                raise
            doubts.append(Doubt(name, False, f"The lidar {name} is left out: {printable(str(error))[:500]}."))
            continue
        lidars.append(lidar)
        sweeps += frames
        doubts += [Doubt(name, False, note) for note in notes]
    return lidars, sweeps, [*doubts, *_beyond(parts, sweeps, [lidar.name for lidar in lidars])]


def _found(sequence: Sequence, poses: Poses, part: Part) -> tuple[Lidar, list[SweepFrame], tuple[str, ...]]:
    """A lidar without rows and columns."""
    name = part.group.partition("/")[2]
    frames = [(f, stored_rays(part, end, sequence.zero)) for end, f in _frames(sequence, poses, part, False)]
    if not frames:
        raise CaptureError(f"{part} has no frames with a pose; {REMEDY}")
    spans = [(f.time_start, f.time_end) for f, _ in frames]
    pattern = found_pattern([rays for _, rays in frames], spans, f"{sequence.where}: lidar {name}")
    sweeps = [SweepFrame(**vars(f), load=FoundSweep(rays, pattern, f.time_start, f.time_end)) for f, rays in frames]
    return lidar_of(pattern, poses.mounting(name), name), sweeps, pattern.scan.notes


def _sweeps(sequence: Sequence, poses: Poses, part: Part, model: Model) -> list[SweepFrame] | None:
    """Returns None where rays have no rows and columns."""
    found = []
    for end, frame in _frames(sequence, poses, part, False):
        load = stored_sweep(part, end, model, sequence.zero)
        if load is None:
            return None
        found.append(SweepFrame(**vars(frame), load=load))
    return found


def _masked(sequence: Sequence, camera: Camera) -> tuple[Camera, list[Doubt]]:
    """The camera with all of its masks together. Masks that cannot be used are findings."""
    found, doubts = list[Tensor](), list[Doubt]()
    for name in masks_of(sequence, camera.name):
        try:
            mask = read_mask(sequence, camera, name)
            found += [] if mask is None else [mask]
        except CaptureError as error:
            sentence = f"The mask {short(name)} of camera {camera.name} is not used: {printable(str(error))[:500]}."
            doubts.append(Doubt(camera.name, False, sentence))
    return (replace(camera, mask=torch.stack(found).any(0)) if found else camera), doubts
