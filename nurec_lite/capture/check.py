# SPDX-License-Identifier: Apache-2.0
"""Whether a capture from any source makes sense: sensors, poses, times and tracks. Frames are not loaded.

Each check yields a sentence for every flaw that it finds; the first one ends in CaptureError.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor

from nurec_lite.base.names import NODES, clashes, folded, label_flaw, name_flaw
from nurec_lite.base.texts import excerpt
from nurec_lite.capture.types import POSES_FROM, Capture, CaptureError, Frame
from nurec_lite.capture.units import divided, seconds_in
from nurec_lite.geometry.camera import Camera, lens_flaw
from nurec_lite.geometry.lidar import Lidar, RayTable
from nurec_lite.geometry.tracks import Tracks

MAX_SIDE = 65_500  # pixels: JPEG ends there, and kernels a little later
MAX_PIXELS = 1 << 26  # of an image; a file that claims more is no camera's, and decoding it would take gigabytes
MAX_BEAMS = 1024
MAX_TABLE = 1 << 21  # rays of a sweep
UNIT = 1e-2  # largest difference of a direction's length from 1
MAX_AZIMUTH_STEPS = 1 << 16
FARTHEST = 1e8  # metres from the origin of the world: UTM coordinates fit
LARGEST = 1e3  # metres, of a moving object
LATEST = 1e10  # seconds: Unix time fits
LONGEST = 86_400.0  # seconds between the first and the last frame of all sensors
UNIX_2000 = 9.4e8  # seconds: 2000 in Unix time
RIGID = 1e-3  # how far R R^T may lie from the identity; KITTI's calibration has seven digits

Item = TypeVar("Item", bound=Hashable)


def check_capture(
    capture: Capture,
    source: str,  # file or folder, for the message
) -> None:
    """Raises CaptureError with the first flaw."""
    for flaw in _flaws(capture):
        raise CaptureError(f"{source}: {flaw}; correct it where the capture was made, and read it again")


def _flaws(capture: Capture) -> Iterator[str]:
    yield from _name_flaws(capture)
    for camera in capture.cameras:
        yield from (f"camera {camera.name} has {flaw}" for flaw in _camera_flaws(camera))
    for lidar in capture.lidars:
        yield from (f"lidar {lidar.name} has {flaw}" for flaw in _lidar_flaws(lidar))
    yield from _clock_flaws([*capture.images, *capture.sweeps])
    yield from _frame_flaws(capture.images, [camera.name for camera in capture.cameras], "image")
    yield from _frame_flaws(capture.sweeps, [lidar.name for lidar in capture.lidars], "sweep")
    yield from _world_flaws(capture)
    yield from _track_shape_flaws(capture.tracks)
    yield from _track_flaws(capture)
    yield from _split_flaws(capture)


# ---- sensors


def sensor_flaws(sensor: Camera | Lidar) -> Iterator[str]:
    """Flaws of a sensor that no capture holds, each to complete "it has"."""
    return _camera_flaws(sensor) if isinstance(sensor, Camera) else _lidar_flaws(sensor)


def _name_flaws(capture: Capture) -> Iterator[str]:
    cameras, lidars = ([sensor.name for sensor in group] for group in (capture.cameras, capture.lidars))
    tracks = list(capture.tracks.ids)
    for kind, names in {"capture": [capture.name], "camera": cameras, "lidar": lidars, "track": tracks}.items():
        yield from (f"the {kind} name {excerpt(n)} {flaw}" for n in names if (flaw := name_flaw(n)))
    yield from (f"the class name {excerpt(n)} {flaw}" for n in capture.tracks.classes if (flaw := label_flaw(n)))
    yield from (
        f"a track has the name '{name}', which export takes for another node, or edits for all actors"
        for name in tracks
        if folded(name) in NODES
    )
    for kind, names in {"camera": cameras, "lidar": lidars, "sensor": [*cameras, *lidars], "track": tracks}.items():
        yield from (_clash(kind, one, other) for one, other in clashes(names))


def _clash(kind: str, one: str, other: str) -> str:
    if one == other:
        return f"two {kind}s have the name '{one}'"
    return f"the {kind}s '{one}' and '{other}' would give files of one name"


def _repeated(values: Sequence[Item]) -> list[Item]:
    return [value for value, count in Counter(values).items() if count > 1]


def _camera_flaws(camera: Camera) -> Iterator[str]:
    if min(camera.width, camera.height) < 1 or camera.width * camera.height > MAX_PIXELS:
        yield f"images of {camera.width}x{camera.height} pixels, but must have 1 to {MAX_PIXELS} in all"
    elif max(camera.width, camera.height) > MAX_SIDE:
        yield f"images of {camera.width}x{camera.height} pixels, but may have sides of {MAX_SIDE} at most"
    if not all(0 < f <= FARTHEST for f in (camera.fx, camera.fy)):
        yield f"fx, fy = {camera.fx:g}, {camera.fy:g} pixels, but must have positive ones"
    if camera.mask is not None:  # before the lens, which is looked at where it is seen
        yield from _mask_flaws(camera.mask, [camera.height, camera.width])
    if not all(abs(c) <= FARTHEST for c in (camera.cx, camera.cy, *camera.distortion)):
        yield "a principal point or a distortion that is not finite or absurd"
    elif min(camera.width, camera.height, camera.fx, camera.fy) > 0 and (flaw := lens_flaw(camera)):
        yield flaw
    yield from _mounting_flaws("T_rig_cam", camera.T_rig_cam)


def _mask_flaws(mask: Tensor, size: list[int]) -> Iterator[str]:
    if mask.dtype != torch.bool or list(mask.shape) != size:
        found = f"{mask.dtype} {list(mask.shape)}".removeprefix("torch.")
        yield f"a mask of {found}, but must have one of bool {size}"
    elif bool(mask.all()):
        yield "a mask that leaves no pixel of its images"


def _lidar_flaws(lidar: Lidar) -> Iterator[str]:
    beams = lidar.elevations
    if beams.dim() != 1 or not 1 <= len(beams) <= MAX_BEAMS:
        yield f"elevations {list(beams.shape)}, but must have those of 1 to {MAX_BEAMS} beams"
    if not bool((beams.abs() <= math.pi / 2).all()):
        yield f"elevations that do not lie within +-pi/2{_degrees(beams)}"
    if not 0 < lidar.max_range <= FARTHEST:
        yield f"max_range {lidar.max_range:g} m, but must have a positive one"
    if not (1 <= lidar.azimuth_steps <= MAX_AZIMUTH_STEPS and abs(lidar.azimuth_start) <= 4 * math.pi):
        yield f"azimuth_steps {lidar.azimuth_steps} from {lidar.azimuth_start:g}, which no revolution has"
    if lidar.table is not None:
        yield from _table_flaws(lidar.table)
    yield from _mounting_flaws("T_rig_lidar", lidar.T_rig_lidar)


def _table_flaws(table: RayTable) -> Iterator[str]:
    if table.directions.shape != (len(table.fractions), 3) or not 1 <= len(table.fractions) <= MAX_TABLE:
        yield f"a table of {len(table.fractions)} rays, but must have 1 to {MAX_TABLE}"
    elif not bool(((table.directions.norm(dim=1) - 1).abs() < UNIT).all()):
        yield "a table with directions of another length than 1"
    elif not bool(((table.fractions >= 0) & (table.fractions <= 1)).all()):
        yield "a table with fractions that do not lie between 0 and 1"


def _degrees(angles: Tensor) -> str:
    """Note for angles that make sense in degrees; empty for others."""
    largest = float(angles.abs().max()) if len(angles) else math.nan
    return f" (up to {largest:.3g}: they are in degrees, give radians)" if largest <= 90 else ""


def _mounting_flaws(name: str, pose: Tensor) -> Iterator[str]:
    if pose.shape != (4, 4) or not bool(_rigid(pose[None])):
        yield f"a {name} that is no rigid pose"


def _rigid(
    poses: Tensor,  # [n, 4, 4]
) -> Tensor:  # [n] bool: a rotation, a finite translation, and the row 0 0 0 1
    R, t = poses[:, :3, :3], poses[:, :3, 3]
    identity, last = torch.eye(3).to(poses), torch.tensor([0, 0, 0, 1]).to(poses)
    orthonormal = ((R @ R.transpose(1, 2) - identity).abs() <= RIGID).flatten(1).all(dim=1)
    proper = (torch.linalg.cross(R[:, 0], R[:, 1]) * R[:, 2]).sum(dim=1) > 0
    return orthonormal & proper & (t.abs() <= FARTHEST).all(dim=1) & (poses[:, 3] == last).all(dim=1)


# ---- frames


def _frame_flaws(frames: Sequence[Frame], sensors: list[str], kind: str) -> Iterator[str]:
    for frame in frames:
        if frame.sensor not in sensors:
            yield f"{kind} {frame.index} is of the sensor {excerpt(frame.sensor)}, which the capture lacks"
        if frame.index < 0:
            yield f"{kind} {frame.index} of {frame.sensor} has a number below 0"
        if not (max(abs(frame.time_start), abs(frame.time_end)) <= LATEST and frame.time_start <= frame.time_end):
            yield f"{_called(kind, frame)} lasts from {frame.time_start:g} s to {frame.time_end:g} s{_why_odd(frame)}"
    for sensor, index in _repeated([(frame.sensor, frame.index) for frame in frames]):
        yield f"{kind} {index} of {sensor} is there twice"
    yield from _order_flaws(frames, kind)
    yield from _pose_flaws(frames, kind)


def _why_odd(frame: Frame) -> str:
    """Names a likely mistake in the times of the frame."""
    if frame.time_end < frame.time_start:
        return ", which ends before it starts: time_start and time_end are exchanged"
    unit = seconds_in(frame.time_start, UNIX_2000, LATEST)
    return f": {divided(unit, 'its times')}" if unit else ""


def _called(kind: str, frame: Frame) -> str:
    return f"{kind} {frame.index} of {frame.sensor}"


def _order_flaws(frames: Sequence[Frame], kind: str) -> Iterator[str]:
    last: dict[str, Frame] = {}
    for frame in frames:
        before = last.get(frame.sensor)
        if before and not before.time_start < frame.time_start:
            yield (
                f"{_called(kind, frame)} begins at {frame.time_start:g} s, but must begin after {kind} {before.index}, "
                f"which stands before it and begins at {before.time_start:g} s"
            )
        last[frame.sensor] = frame


def _clock_flaws(frames: Sequence[Frame]) -> Iterator[str]:
    ordered = sorted(frames, key=lambda frame: frame.time_start)
    first, last = (ordered[0], ordered[-1]) if ordered else (None, None)
    if first is None or last is None or max(-first.time_start, last.time_start) > LATEST:  # the frame itself is refused
        return
    if last.time_start - first.time_start > LONGEST:
        yield (
            f"a frame of {last.sensor} at {last.time_start:g} s is more than a day later than one of {first.sensor} at "
            f"{first.time_start:g} s, so that a time is wrong, or sensors have different clocks"
        )


def _pose_flaws(frames: Sequence[Frame], kind: str) -> Iterator[str]:
    for name in ("T_world_rig_start", "T_world_rig_end"):
        poses = [getattr(frame, name) for frame in frames]
        wrong = [i for i, pose in enumerate(poses) if pose.shape != (4, 4)]
        if not wrong and poses:
            wrong = (~_rigid(torch.stack(poses))).nonzero()[:, 0].tolist()
        yield from (f"{name} of {_called(kind, frames[i])} is no rigid pose" for i in wrong)


# ---- the world


def _world_flaws(capture: Capture) -> Iterator[str]:
    origin, points = capture.origin, capture.points
    numbers = isinstance(origin, tuple | list) and all(isinstance(x, int | float) for x in origin)
    if not numbers or len(origin) != 3 or not all(abs(x) <= FARTHEST for x in origin):
        yield f"origin is {excerpt(origin)}, but must be three numbers within +-{FARTHEST:g}"
    if capture.poses_from not in POSES_FROM:
        yield f"poses_from is {excerpt(capture.poses_from)}, but must be one of {', '.join(POSES_FROM)}"
    if points is None:
        return
    if points.dim() != 2 or points.shape[1] != 3:
        yield f"points have the shape {list(points.shape)}, but must have [n, 3]"
    elif not bool((points.abs() <= FARTHEST).all()):
        yield f"points hold a number that is not within +-{FARTHEST:g}"


# ---- tracks and split


def _track_shape_flaws(tracks: Tracks) -> Iterator[str]:
    k, m = len(tracks), len(tracks.times)
    fields: dict[str, tuple[tuple[int, ...], float]] = {  # shape, largest absolute value
        "sizes": ((k, 3), LARGEST),
        "times": ((m,), LATEST),
        "translations": ((m, 3), FARTHEST),
        "quaternions": ((m, 4), 1 + RIGID),
    }
    for name, (shape, largest) in fields.items():
        values = getattr(tracks, name)
        if not isinstance(values, Tensor) or not values.is_floating_point():
            yield f"tracks.{name} that are {excerpt(values)}, but must be a tensor of numbers"
        if values.shape != shape:
            yield f"tracks.{name} has the shape {list(values.shape)}, but must have {list(shape)}"
        if not bool((values.abs() <= largest).all()):
            yield f"tracks.{name} holds a number that is not within +-{largest:g}"
    if len(tracks.classes) != k:
        yield f"tracks.classes has {len(tracks.classes)} entries for {k} tracks"
    steps = all(a < b for a, b in pairwise(tracks.offsets))
    if len(tracks.offsets) != k + 1 or tracks.offsets[0] != 0 or tracks.offsets[-1] != m or not steps:
        yield f"tracks.offsets must rise from 0 to {m}, the number of keyframes, with {k + 1} entries for {k} tracks"
    if not isinstance(tracks.margin, int | float):
        yield f"tracks.margin is {excerpt(tracks.margin)}, but must be a number of seconds"
    elif not 0 <= tracks.margin <= LATEST:
        yield f"tracks.margin is {tracks.margin:g} s, but must not be negative"


def without_unseen_tracks(capture: Capture) -> Capture:
    """The capture without tracks outside of the time of its frames, for a capture that lost frames."""
    tracks, (first, last) = capture.tracks, _span(capture)
    times, ends = tracks.times.tolist(), list(pairwise(tracks.offsets))
    kept = [k for k, (i, j) in enumerate(ends) if times[j - 1] >= first and times[i] <= last]
    return replace(capture, tracks=tracks.select(kept))


def _span(capture: Capture) -> tuple[float, float]:  # seconds: a track has to reach into it
    frames, margin = (*capture.images, *capture.sweeps), capture.tracks.margin
    first = min((frame.time_start for frame in frames), default=math.inf)
    return first - margin, max((frame.time_end for frame in frames), default=-math.inf) + margin


def _track_flaws(capture: Capture) -> Iterator[str]:
    tracks, (first, last) = capture.tracks, _span(capture)
    turned = ((tracks.quaternions.norm(dim=-1) - 1).abs() <= RIGID).tolist()
    times, positive = tracks.times.tolist(), (tracks.sizes > 0).all(dim=-1).tolist()
    for k, rows in enumerate(slice(*ends) for ends in pairwise(tracks.offsets)):
        keys, called = times[rows], f"track {tracks.ids[k]} ({tracks.classes[k]})"
        if not positive[k]:
            yield f"{called} has a size that is not positive"
        if not all(turned[rows]):
            yield f"{called} has a quaternion of a length other than 1"
        if not all(a < b for a, b in pairwise(keys)):
            yield f"{called} has times that do not increase"
        if keys[-1] < first or keys[0] > last:
            yield f"{called} lasts from {keys[0]:g} s to {keys[-1]:g} s, where no frame of the capture is"


def _split_flaws(capture: Capture) -> Iterator[str]:
    if capture.split is None:
        return
    for kind, frames in (("images", capture.images), ("sweeps", capture.sweeps)):
        chosen = [i for part in ("train", "test") for i in getattr(capture.split, f"{part}_{kind}")]
        if len(set(chosen)) != len(chosen) or not set(chosen) <= set(range(len(frames))):
            yield f"split '{capture.split.name}' names {kind} twice, or such as do not exist"
