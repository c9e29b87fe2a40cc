# SPDX-License-Identifier: Apache-2.0
"""Opens the capture that a configuration names."""

import logging
import math
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import filterfalse
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from nurec_lite.base.aside import Aside
from nurec_lite.base.key_values import assigned
from nurec_lite.base.paths import resource
from nurec_lite.base.ranges import span
from nurec_lite.bounds import KINDS
from nurec_lite.capture.check import check_capture, without_unseen_tracks
from nurec_lite.capture.choice import chosen_sensors
from nurec_lite.capture.digest import KnownPath
from nurec_lite.capture.masks.choice import AUTO, masked
from nurec_lite.capture.masks.found import without_own_vehicle
from nurec_lite.capture.origin import in_users_world, recentred
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.plausible import in_time, plausible
from nurec_lite.capture.tracking.source import with_tracks
from nurec_lite.capture.types import CHOSEN, ESTIMATED, Capture, CaptureError, Frame, Origin, UnusedFrame, make_split
from nurec_lite.capture.user_loaders import with_checked_loads
from nurec_lite.capture.without import left_out
from nurec_lite.config import DataConfig
from nurec_lite.geometry.tracks import Tracks

if TYPE_CHECKING:
    from nurec_lite.capture.rosbag.propose import Proposal

log = logging.getLogger(__name__)
BUNDLED = "data/street.pack"
ALL = range(sys.maxsize)  # moments
_BY_DRIVE = {  # kinds with named drives: the meaning of data.root; capture/KIND/read.py holds read_KIND, imported when it is needed
    "argoverse2": "the folder of a log",
    "kitti360": "the folder that holds data_2d_raw and data_poses",
    "ncore": "the store of NCore v4, or the folder of several",
    "nuscenes": "the folder that holds samples and the tables",
    "pandaset": "the folder of a sequence",
    "waymo": "the folder that holds camera_image, lidar and so on",
}
_READ_BY: dict[str, tuple[str, ...]] = {  # keys of `data`, and the kinds that read them
    **dict.fromkeys(
        ("poses.file", "poses.convention", "tracks.file", "tracks.sizes", "tracks.first_frame"), ("kitti_raw",)
    ),
    **dict.fromkeys(("date", "image_delay"), ("kitti_raw",)),
    **dict.fromkeys(("rate", "unit_metres"), ("colmap",)),
    "mapping": ("rosbag",),
    "drive": ("kitti_raw", *_BY_DRIVE),
}


@dataclass(frozen=True)
class Known:
    """Tracks and poses that a scene keeps of its capture, so that nothing is estimated or searched again."""

    tracks: Tracks | None = None
    path: KnownPath | None = None


NOTHING_KNOWN = Known()


def nothing(*_: object) -> None:
    pass


def open_capture(
    config: DataConfig,
    origin: Origin | None = None,  # of the scene that it is opened for; None: its own, near its first pose
    known: Known = NOTHING_KNOWN,
    meanwhile: Callable[[], None] = nothing,
    source: Capture | None = None,
    check: Callable[[Capture], None] = nothing,
) -> Capture:
    """The capture with its split; CaptureError with the remedy if it cannot be read."""
    return read_capture(config, origin, known, meanwhile, source, config.split, check).with_split(config.split)


def read_capture(
    config: DataConfig,
    origin: Origin | None = None,
    known: Known = NOTHING_KNOWN,
    meanwhile: Callable[[], None] = nothing,  # work to do while poses are estimated and tracks are searched
    source: Capture | None = None,  # made in Python; None: the capture that the configuration names
    split: str | None = None,  # which its frames must allow
    check: Callable[[Capture], None] = nothing,  # is given the capture before its tracks are searched
) -> Capture:
    """The capture without a split."""
    _check_lists(config)
    with span("read"):
        capture = _within(_read(config) if source is None else _chosen(source, config), config)
        name = str(config.root or BUNDLED) if source is None else source.name
        capture = in_time(_without(capture, config.without or []), name)
        capture = masked(capture, config.masks, bool(config.cameras), config.downscale)
        check_capture(capture, name)
        if split is not None:
            make_split(capture, split)
    with Aside(lambda: _completed(capture, config, name, origin, known, check)) as completed:
        meanwhile()
        return completed.result()


def _completed(
    capture: Capture,
    config: DataConfig,
    source: str,
    origin: Origin | None,
    known: Known,
    check: Callable[[Capture], None],
) -> Capture:
    """The capture with the poses and the tracks of its use."""
    if config.kind != "bundled":  # its poses are exact
        with span("poses"):
            capture = posed(capture, config.poses.source, known.path)
    if config.masks == AUTO:
        with span("masks"):
            capture = without_own_vehicle(capture)
    capture = recentred(plausible(capture, source), origin)
    check(capture)
    with span("tracks"):
        return with_tracks(capture, config.tracks.source, known.tracks)


def posed(capture: Capture, source: str, known: KnownPath | None) -> Capture:
    """The capture with the poses of its use. Poses that were chosen before, such as those of a pack, stay."""
    if known is None and source == "auto" and capture.poses_from in (CHOSEN, ESTIMATED):
        return capture
    from nurec_lite.capture.odometry import choose

    return choose.posed(capture, source, known)


def _chosen(capture: Capture, config: DataConfig) -> Capture:
    """The part of a capture in memory that the configuration asks for."""
    if config.downscale != 1:
        raise CaptureError(
            f"data.downscale is {config.downscale}, but {capture.name} is in memory and keeps the size of its images; leave it out, or "
            "write a pack and train on that"
        )
    check_capture(capture, capture.name)
    return with_checked_loads(_limited(in_users_world(capture), config))


def _read(config: DataConfig) -> Capture:
    _warn_of_unread(config)
    if config.kind == "bundled":
        if config.root is not None:
            raise CaptureError(
                f"{assigned('data.root', config.root)} is for captures of your own; name its kind, too: data={_listed(KINDS[1:])}"
            )
        return _limited(read_pack(resource(BUNDLED), downscale=config.downscale), config)
    if config.kind == "pack":
        if config.root is None:
            raise CaptureError("data.root is missing: name the pack, as in data.root=FILE")
        return _limited(read_pack(Path(config.root), downscale=config.downscale), config)
    if config.kind == "kitti_raw":
        return _open_kitti(config)
    if config.kind == "colmap":
        return _limited(_open_colmap(config), config)
    if config.kind in _BY_DRIVE:
        return _limited(_open_by_drive(config), config)
    if config.kind == "rosbag":
        return _limited(_open_rosbag(config), config)
    raise CaptureError(f"data.kind is '{config.kind}', but must be {_listed(KINDS)}")


def _warn_of_unread(config: DataConfig) -> None:
    """The keys of a run may be those of another kind of capture: a pack of its drive is evaluated, for example."""
    for key, kinds in _READ_BY.items():
        value = attrgetter(key)(config)
        if config.kind not in kinds and value != attrgetter(key)(DataConfig()):
            log.warning(
                "%s is not read: it is for data=%s, and this is data=%s",
                assigned(f"data.{key}", value),
                kinds[0] if len(kinds) == 1 else _listed(kinds),
                config.kind,
            )


def _listed(kinds: tuple[str, ...]) -> str:
    return f"{', '.join(kinds[:-1])} or {kinds[-1]}"


def proposal_of(config: DataConfig) -> "Proposal | None":
    """The mapping that a ROS recording suggests; None for other captures, and where a mapping is given."""
    if config.kind != "rosbag" or config.root is None or config.mapping:
        return None
    from nurec_lite.capture.rosbag.bag import open_bag
    from nurec_lite.capture.rosbag.propose import proposed

    return proposed(open_bag(Path(config.root)))


def _limited(capture: Capture, config: DataConfig) -> Capture:
    """The capture with the moments and cameras of the configuration, cameras in its order."""
    _check_asked(capture, config.frames)
    asked, moments = frame_range(config.frames), capture.moments
    names = list(dict.fromkeys(config.cameras or [camera.name for camera in capture.cameras]))
    unknown = [name for name in names if name not in {camera.name for camera in capture.cameras}]
    if unknown:
        known = ", ".join(camera.name for camera in capture.cameras)
        raise CaptureError(f"data.cameras names '{unknown[0]}', but the cameras of {capture.name} are {known}")
    chosen = replace(
        capture,
        split=None,  # its indices are those of all frames
        cameras=tuple(capture.camera(name) for name in names),
        images=tuple(
            f for f, n in zip(capture.images, moments.images, strict=True) if n in asked and f.sensor in names
        ),
        sweeps=tuple(f for f, n in zip(capture.sweeps, moments.sweeps, strict=True) if n in asked),
    )
    return without_unseen_tracks(chosen)


def _check_lists(config: DataConfig) -> None:
    """Refuses a list without a name: readers take all sensors then, and its user wanted none."""
    for key, sensor in (("cameras", "camera"), ("lidars", "lidar")):
        if getattr(config, key) == []:
            raise CaptureError(f"data.{key} is an empty list; name a {sensor}, or leave the key out for all of them")


def _check_asked(capture: Capture, frames: list[int] | None) -> None:
    """Refuses frames that lie beyond the drive."""
    numbers = {*capture.moments.images, *capture.moments.sweeps}
    if numbers and not any(n in frame_range(frames) for n in numbers):
        raise CaptureError(
            f"{assigned('data.frames', frames)} holds no frame of {capture.name}: its frames are {min(numbers)} to {max(numbers)}; "
            "choose some of these"
        )


def _within(capture: Capture, config: DataConfig) -> Capture:
    """The capture with the lidars and the seconds of the configuration."""
    names = chosen_sensors("data.lidars", config.lidars, [lidar.name for lidar in capture.lidars], capture.name)
    first, last = config.seconds or (-math.inf, math.inf)
    chosen = replace(
        capture,
        lidars=tuple(capture.lidar(name) for name in names),
        images=tuple(f for f in capture.images if first <= f.time_mid < last),
        sweeps=tuple(f for f in capture.sweeps if first <= f.time_mid < last and f.sensor in names),
    )
    frames = (*capture.images, *capture.sweeps)
    if frames and not chosen.images and not chosen.sweeps:
        spans = min(f.time_start for f in frames), max(f.time_end for f in frames)
        raise CaptureError(
            f"data.seconds is [{first:g},{last:g}], but the frames of {capture.name} last from {spans[0]:z.1f} s to {spans[1]:z.1f} s; "
            "choose seconds among these"
        )
    if (chosen.lidars, len(chosen.images), len(chosen.sweeps)) == (
        capture.lidars,
        len(capture.images),
        len(capture.sweeps),
    ):
        return capture
    return without_unseen_tracks(replace(chosen, split=None))


def _without(
    capture: Capture,
    asked: list[str],  # data.without
) -> Capture:
    """The capture without single frames. A pack may have been made without them."""
    if not asked:
        return capture
    numbers = defaultdict[str, list[int]](list)
    every: tuple[Frame | UnusedFrame, ...] = (*capture.sweeps, *capture.images, *capture.left_out)
    for frame in every:
        numbers[frame.sensor].append(frame.index)
    out = left_out(asked, numbers, capture.name)

    def kept(frame: Frame) -> bool:
        return frame.index not in out.get(frame.sensor, ())

    images, sweeps = tuple(filter(kept, capture.images)), tuple(filter(kept, capture.sweeps))
    lost = filterfalse(kept, (*capture.images, *capture.sweeps))
    unused = (*capture.left_out, *(UnusedFrame(f.sensor, f.index, f.time_mid) for f in lost))
    return without_unseen_tracks(replace(capture, split=None, images=images, sweeps=sweeps, left_out=unused))


def frame_range(frames: list[int] | None) -> range:
    """Numbers of the moments that `data.frames` asks for."""
    return ALL if frames is None else range(*frames)


def _open_rosbag(config: DataConfig) -> Capture:
    if config.root is None:
        raise CaptureError(
            "data.root is missing: name the bag, a file or the folder of a ROS 2 bag, as in data.root=PATH"
        )
    from nurec_lite.capture.rosbag.read import read_rosbag

    mapping = Path(config.mapping) if config.mapping else None
    return read_rosbag(Path(config.root), mapping=mapping, downscale=config.downscale)


def _open_colmap(config: DataConfig) -> Capture:
    if config.root is None:
        raise CaptureError("data.root is missing: name the folder that holds images and sparse, as in data.root=PATH")
    from nurec_lite.capture.colmap.read import read_colmap

    return read_colmap(
        Path(config.root), drive=config.drive, cameras=config.cameras or None, lidars=config.lidars or None, downscale=config.downscale,
        rate=config.rate, unit=config.unit_metres,
    )  # fmt: skip


def _open_by_drive(config: DataConfig) -> Capture:
    """A data set with named drives."""
    if config.root is None:
        raise CaptureError(f"data.root is missing: name {_BY_DRIVE[config.kind]}, as in data.root=PATH")
    module = import_module(f"nurec_lite.capture.{config.kind}.read")
    read: Callable[..., Capture] = getattr(module, f"read_{config.kind}")
    return read(
        Path(config.root),
        drive=config.drive,
        cameras=config.cameras or None,
        lidars=config.lidars or None,
        downscale=config.downscale,
    )


def _open_kitti(config: DataConfig) -> Capture:
    if config.root is None:
        raise CaptureError("data.root is missing: name the folder that holds the drive's date, as in data.root=PATH")
    from nurec_lite.capture.kitti.raw import read_kitti_raw

    return read_kitti_raw(
        Path(config.root),
        date=config.date,
        drive=config.drive,
        cameras=tuple(config.cameras) if config.cameras else None,
        downscale=config.downscale,
        frames=frame_range(config.frames),
        poses_file=Path(config.poses.file) if config.poses.file else None,
        poses_convention=config.poses.convention,
        tracks_file=Path(config.tracks.file) if config.tracks.file else None,
        tracks_sizes=config.tracks.sizes,
        tracks_first_frame=config.tracks.first_frame,
        image_delay=config.image_delay,
        poses_needed=config.poses.source == "capture",
    )
