# SPDX-License-Identifier: Apache-2.0
"""Reads a recording as a capture.

Stamps of headers are the clock; the capture's seconds count from the first frame. The mapping comes from data.mapping, or is the only
one that the recording allows.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nurec_lite.base.names import name_flaw
from nurec_lite.capture.downscale import downscaled
from nurec_lite.capture.rosbag.bag import open_bag
from nurec_lite.capture.rosbag.cameras import camera_of, intrinsics_of, lens_of
from nurec_lite.capture.rosbag.clouds import read_cloud
from nurec_lite.capture.rosbag.images import CompressedLoad, RawLoad, flaw_of
from nurec_lite.capture.rosbag.index import Frames, Index, read_index, seconds
from nurec_lite.capture.rosbag.library import COMPRESSED
from nurec_lite.capture.rosbag.mapping import CameraEntry, Intrinsics, LidarEntry, Sensor, read_mapping
from nurec_lite.capture.rosbag.pattern import Pattern, find_clock, find_pattern, period_of, sensor_of
from nurec_lite.capture.rosbag.poses import Path as RigPath
from nurec_lite.capture.rosbag.poses import read_measured, read_path, rig_frame
from nurec_lite.capture.rosbag.propose import proposed
from nurec_lite.capture.rosbag.sweeps import Motion, SweepLoad
from nurec_lite.capture.types import GIVEN, POSITIONED, UNKNOWN, Capture, CaptureError, Doubt, ImageFrame, SweepFrame
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.tracks import Tracks

_SURVEYED = 8  # sweeps, spread over the recording
_LATE = {"start": 0.0, "middle": 0.5, "end": 1.0}  # shares of a sweep before its stamp
_LEAST_RANGE = 80.0  # metres


def read_rosbag(
    root: Path,
    *,
    mapping: Path | None = None,  # YAML; None: the only mapping that the recording allows
    downscale: int = 1,
) -> Capture:
    bag = open_bag(root)
    index = read_index(bag, proposed(bag).only() if mapping is None else read_mapping(mapping))
    start = min(stamp for frames in index.frames.values() for stamp in frames.stamps)
    rig = rig_frame(index)
    known = read_path(index, rig, start)
    lidars, sweeps = _lidars(index, rig, known or _still(index), start, known is not None)
    cameras, images = _cameras(index, rig, known or (_beside(sweeps) if sweeps else _still(index)), start, downscale)
    return Capture(
        name=_name(root), cameras=cameras, lidars=lidars, images=images, sweeps=sweeps, tracks=Tracks.empty(),
        poses_from=UNKNOWN if known is None else POSITIONED if index.mapping.poses.fix else GIVEN,
        measured=read_measured(index, rig, start),
        doubts=tuple(Doubt(root.name or str(root), False, note) for note in dict.fromkeys(index.notes)),
    )  # fmt: skip


def _still(index: Index) -> RigPath:
    """Poses that say nothing, for a recording that has none."""
    stamps = [stamp for frames in index.frames.values() for stamp in frames.stamps]
    ends = seconds([min(stamps) - 10**12, max(stamps) + 10**12], min(stamps))
    return RigPath(ends, torch.eye(4, dtype=torch.float64).repeat(2, 1, 1))


def _beside(sweeps: tuple[SweepFrame, ...]) -> RigPath:
    """Poses that say nothing, at the times of sweeps: images of other times have none."""
    times = torch.tensor([t for f in sweeps for t in (f.time_start, f.time_end)], dtype=torch.float64).unique()
    times = times if len(times) > 1 else torch.cat([times, times + 1e-3])
    return RigPath(times, torch.eye(4, dtype=torch.float64).repeat(len(times), 1, 1), of="sweeps")


def _name(root: Path) -> str:
    name = root.absolute().stem
    return name if name_flaw(name) is None else "recording"


def _mounting(index: Index, rig: str, entry: Sensor) -> Tensor:  # [4, 4] T_rig_frame
    if entry.T_rig_sensor is not None:
        return entry.T_rig_sensor
    frame = entry.frame or index.frames_of(entry).frame
    kind = "cameras" if isinstance(entry, CameraEntry) else "lidars"
    return index.transforms.fixed(rig, frame, f"{index.bag.path}: {kind}.{entry.name}")


def _covered(index: Index, path: RigPath, topic: str, times: Tensor) -> list[int]:
    """Places of the frames that poses exist for."""
    covered = path.covers(times)
    lost = len(times) - int(covered.sum())
    if lost == len(times):
        ends = [float(t) for t in (times[0], times[-1], path.times[0], path.times[-1])]
        raise CaptureError(
            f"{index.bag.path}: {topic} lasts from {ends[0]:z.1f} s to {ends[1]:z.1f} s, but {path.of} from {ends[2]:z.1f} s to "
            f"{ends[3]:z.1f} s; correct the clocks by delay in data.mapping"
        )
    if lost:
        index.notes.append(f"{lost} of {len(times)} messages of {topic} have no pose at their time and are left out.")
    return covered.nonzero()[:, 0].tolist()


# ---- cameras


def _cameras(
    index: Index, rig: str, path: RigPath, start: int, downscale: int
) -> tuple[tuple[Camera, ...], tuple[ImageFrame, ...]]:
    cameras, images = [], []
    for entry in index.mapping.cameras:
        lens = _lens(index, entry)
        camera = camera_of(entry, lens, _mounting(index, rig, entry))
        cameras.append(downscaled(camera, downscale))
        images += _images(index, entry, lens, path, start, downscale)
    return tuple(cameras), tuple(images)


def _lens(index: Index, entry: CameraEntry) -> Intrinsics:
    where = f"{index.bag.path}: {entry.info or entry.images}"
    if entry.intrinsics is not None:
        return lens_of(entry.intrinsics, f"{index.mapping.source}: cameras.{entry.name}.intrinsics")
    info = index.infos.get(entry.info or "")
    if info is None:
        raise CaptureError(
            f"{where} has no CameraInfo; name its topic by cameras.{entry.name}.info in data.mapping, or give intrinsics there"
        )
    return lens_of(intrinsics_of(info, entry, where), where)


def _images(
    index: Index, entry: CameraEntry, lens: Intrinsics, path: RigPath, start: int, downscale: int
) -> list[ImageFrame]:
    frames = index.frames_of(entry)
    flaw = flaw_of(frames.first, frames.kind)
    if flaw:
        raise CaptureError(f"{index.bag.path}: {entry.images} {flaw}")
    order = frames.order()
    times = seconds([frames.stamps[k] for k in order], start) - entry.delay
    loads = [_load(frames, k, entry, lens, downscale) for k in order]
    loads[0].check()
    first, last = (path.at(times + d) for d in (-0.5 * entry.readout, 0.5 * entry.readout))
    return [
        ImageFrame(
            entry.name, k, float(times[k]) - 0.5 * entry.readout, float(times[k]) + 0.5 * entry.readout, first[k], last[k], loads[k]
        )
        for k in _covered(index, path, entry.images, times)
    ]  # fmt: skip


def _load(frames: Frames, k: int, entry: CameraEntry, lens: Intrinsics, downscale: int) -> CompressedLoad | RawLoad:
    kind, calibration = (CompressedLoad if frames.kind == COMPRESSED else RawLoad), entry.info or "the mapping"
    return kind(frames.stored[k], (lens.width, lens.height), downscale, calibration)


# ---- lidars


def _lidars(
    index: Index, rig: str, path: RigPath, start: int, posed: bool
) -> tuple[tuple[Lidar, ...], tuple[SweepFrame, ...]]:
    lidars, sweeps = [], []
    for entry in index.mapping.lidars:
        frames, T_rig_lidar = index.frames_of(entry), _mounting(index, rig, entry)
        order = frames.order()
        pattern = _pattern(index, entry, frames, order)
        if entry.compensated and not posed:  # nothing says when a point was where it is said to be
            pattern = replace(pattern, clock=None)
        index.notes.extend(pattern.scan.notes)
        lidars.append(sensor_of(pattern, entry.name, T_rig_lidar, _LEAST_RANGE))
        sweeps += _sweeps(index, entry, order, pattern, T_rig_lidar, path, start)
    return tuple(lidars), tuple(sweeps)


def _pattern(index: Index, entry: LidarEntry, frames: Frames, order: list[int]) -> Pattern:
    where = f"{index.bag.path}: {entry.points}"
    stamps = torch.tensor([frames.stamps[k] for k in order], dtype=torch.int64).double() * 1e-9
    clock = None
    if frames.first.time is not None:
        spans = torch.tensor([frames.spans[k] for k in order], dtype=torch.float64)
        clock, notes = find_clock(spans, stamps, entry, where)
        index.notes.extend(notes)
    places = np.unique(np.linspace(0, len(order) - 1, _SURVEYED).astype(int))
    messages = [frames.stored[order[k]].message() for k in places]
    clouds = [read_cloud(message, frames.kind, frames.first, where) for message in messages]
    return find_pattern(clouds, entry, clock, period_of(stamps), where)


def _sweeps(
    index: Index, entry: LidarEntry, order: list[int], pattern: Pattern, T_rig_lidar: Tensor, path: RigPath, start: int
) -> list[SweepFrame]:
    frames = index.frames_of(entry)
    stamps = seconds([frames.stamps[k] for k in order], start) - entry.delay
    firsts, lasts, bases = _spans(entry, frames, order, pattern, stamps, start)
    T_first, T_last, T_stamp = (path.at(times) for times in (firsts, lasts, stamps))
    found = []
    for k in _covered(index, path, entry.points, 0.5 * (firsts + lasts)):
        motion = Motion(T_first[k], T_last[k], T_stamp[k], T_rig_lidar) if entry.compensated else None
        first, last = float(firsts[k]), float(lasts[k])
        load = SweepLoad(
            frames.stored[order[k]], frames.first, pattern, first, last, float(bases[k]), entry.vehicle, motion
        )
        found.append(SweepFrame(entry.name, k, first, last, T_first[k], T_last[k], load))
    return found


def _spans(
    entry: LidarEntry, frames: Frames, order: list[int], pattern: Pattern, stamps: Tensor, start: int
) -> tuple[
    Tensor, Tensor, Tensor
]:  # [n] seconds: of the first and the last point, and the offset added to points' own times
    if pattern.clock is None:
        length = 0.0 if entry.compensated or pattern.free is not None else pattern.period
        first = stamps - _LATE[entry.stamp] * length
        return first, first + length, first
    own = torch.tensor([frames.spans[k] for k in order], dtype=torch.float64) * pattern.clock.unit
    if pattern.clock.origin == "capture":
        base = torch.full_like(stamps, -start * 1e-9 - entry.delay)
    elif pattern.clock.origin == "stamp":
        base = stamps
    else:
        base = stamps - own[:, 0] - _LATE[entry.stamp] * (own[:, 1] - own[:, 0])
    return base + own[:, 0], base + own[:, 1], base
