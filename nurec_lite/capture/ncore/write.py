# SPDX-License-Identifier: Apache-2.0
"""Writes a capture as NCore v4, by the format's own library, into one file: NAME.ncore4.zarr.itar. NAME.ncore4.json lists it, for programs
that ask for the list of a sequence's stores.

JPEG and PNG files of the source go in as they are. Data without a place in NCore goes to a record of ours (own.py).
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from nurec_lite.base.files import written
from nurec_lite.base.folders import check_file
from nurec_lite.capture.check import check_capture
from nurec_lite.capture.checks.ray_values import value_flaws
from nurec_lite.capture.images import check_header
from nurec_lite.capture.masks.pictures import mask_picture
from nurec_lite.capture.ncore.clock import Clock, clock_of, ends_of, path_of
from nurec_lite.capture.ncore.lenses import camera_model
from nurec_lite.capture.ncore.listed import ENDING, is_list, list_path, write_list
from nurec_lite.capture.ncore.models import elements_of, lidar_model, observations
from nurec_lite.capture.ncore.offsets import no_offsets, row_offsets
from nurec_lite.capture.ncore.own import KEY, SEQUENCE, VERSION
from nurec_lite.capture.ncore.poses import GLOBAL, RIG, WORLD
from nurec_lite.capture.origin import recentred
from nurec_lite.capture.pack.check import FormatError
from nurec_lite.capture.pack.write import Progress, encoded_image, image_of, plain_left_out, plain_lidar
from nurec_lite.capture.trajectory import Trajectory
from nurec_lite.capture.types import CHOSEN, ESTIMATED, Capture, CaptureError, ImageFrame, SweepFrame
from nurec_lite.capture.user_loaders import UserSweepLoader
from nurec_lite.geometry.lidar import Lidar, Sweep, azimuth_elevation

if TYPE_CHECKING:
    from ncore.data.v4 import SequenceComponentGroupsWriter

EGO = "ego"  # name of the mask of a camera
_ANGLE = 1e-4  # largest difference of a direction's squared length from 1


def write_ncore(
    capture: Capture,
    path: Path,
    *,
    image_format: str = "jpeg",  # of images that are no file in the source: jpeg or png
    quality: int = 95,  # of JPEG
    progress: Progress | None = None,
) -> None:
    """Writes a capture as an NCore store. It appears at `path` only when complete; NCore's library asks for the ending .zarr.itar."""
    check_installed()
    check_capture(capture, capture.name)
    if not path.parent.is_dir():
        raise CaptureError(f"{path} cannot be written (no such folder); name a file in a folder that exists")
    check_file(path, is_ncore)
    check_file(list_path(path), is_list)
    capture = recentred(capture)
    clock = clock_of(capture)
    stamps, poses = path_of(capture, clock)
    order = _Order(capture.name)
    with written(path) as file:
        writer = _writer(capture, clock, Path(file.name))
        _write_world(writer, capture, clock, stamps, poses)
        offsets = {lidar.name: _offsets(capture, lidar, clock) for lidar in capture.lidars}
        _write_sensors(writer, capture, offsets)
        total = len(capture.images) + len(capture.sweeps)
        for done, _ in enumerate(_frames(writer, capture, clock, offsets, order, image_format, quality), start=1):
            if progress:
                progress(done, total)
        _write_boxes(writer, capture, clock, Trajectory(clock.all_seconds(stamps), poses), order)
        writer.finalize()
    write_list(path)


def check_installed() -> None:
    try:
        import ncore.data.v4  # noqa: F401
    except ImportError as error:
        raise CaptureError(
            "format=ncore needs the package nvidia-ncore, which is not installed; run pip install nvidia-ncore"
        ) from error


def ncore_path(out: str) -> Path:
    """Returns the file that `out` names, with the ending that NCore's library asks for: drive.pack becomes drive.ncore4.zarr.itar."""
    return Path(out if out.endswith(ENDING) else f"{out.removesuffix('.pack')}.ncore4{ENDING}")


def is_ncore(
    head: bytes,  # of a file
) -> bool:
    """Whether a file is a store that we wrote: its first entries are the metadata of the sequence."""
    return head[257:262] == b"ustar" and f'"{KEY}"'.encode() in head


class _Place:
    """Stands for the folder of the store: the library asks it for the store's file, which has a temporary name until it is complete."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def mkdir(self, **_: Any) -> None:
        pass

    def __truediv__(self, name: str) -> Any:
        from upath import UPath

        return UPath(self.file)


def _writer(capture: Capture, clock: Clock, file: Path) -> "SequenceComponentGroupsWriter":
    from ncore.data.v4 import SequenceComponentGroupsWriter
    from ncore.impl.common.transformations import HalfClosedInterval

    span = HalfClosedInterval(clock.first, clock.last + 1)
    place: Any = _Place(file)
    return SequenceComponentGroupsWriter(place, "", capture.name, span, {KEY: _own(capture, clock)}, "itar")


def _own(capture: Capture, clock: Clock) -> dict[str, Any]:
    own = {
        "version": VERSION, "name": capture.name, "zero_us": clock.zero, "origin": list(capture.origin),
        "margin": float(capture.tracks.margin),
        "cameras": [camera.name for camera in capture.cameras], "lidars": [plain_lidar(lidar) for lidar in capture.lidars],
        "doubts": [_plain(doubt) for doubt in capture.doubts],
        "poses": CHOSEN if capture.poses_from in (CHOSEN, ESTIMATED) else None,
        **({"searched": True} if capture.searched else {}),
        **plain_left_out(capture),
    }  # fmt: skip
    try:
        SEQUENCE(own, KEY)  # so that every written sequence can be read
    except FormatError as error:
        raise CaptureError(f"{capture.name}: {error}; correct it where the capture was made") from error
    return own


def _plain(thing: Any) -> dict[str, Any]:
    values = {f.name: getattr(thing, f.name) for f in fields(thing)}
    return {k: v.tolist() if isinstance(v, Tensor) else v for k, v in values.items()}


def _write_world(
    writer: "SequenceComponentGroupsWriter", capture: Capture, clock: Clock, stamps: Tensor, poses: Tensor
) -> None:
    from ncore.data.v4 import PosesComponent

    world = writer.register_component_writer(PosesComponent.Writer, "default")
    world.store_dynamic_pose(RIG, WORLD, poses.numpy(), stamps.numpy().astype(np.uint64))
    T_global_world = torch.eye(4, dtype=torch.float64)
    T_global_world[:3, 3] = torch.tensor(capture.origin, dtype=torch.float64)
    world.store_static_pose(WORLD, GLOBAL, T_global_world.numpy())
    mountings = {c.name: c.T_rig_cam for c in capture.cameras} | {s.name: s.T_rig_lidar for s in capture.lidars}
    for name, pose in mountings.items():
        if name in (RIG, WORLD, GLOBAL):
            raise CaptureError(
                f"{capture.name}: a sensor is called '{name}', as a frame of NCore is; give it another name"
            )
        world.store_static_pose(name, RIG, pose.double().numpy())


def _write_boxes(
    writer: "SequenceComponentGroupsWriter", capture: Capture, clock: Clock, path: Trajectory, order: "_Order"
) -> None:
    from ncore.data.v4 import CuboidsComponent

    sweeps = order.pairs[capture.lidars[0].name] if capture.lidars else []
    boxes = writer.register_component_writer(CuboidsComponent.Writer, "default")
    boxes.store_observations(observations(capture.tracks, clock, path, sweeps))


def _offsets(capture: Capture, lidar: Lidar, clock: Clock) -> Tensor:  # [B] radians
    """Returns the azimuth of each beam beside its column, by the sweep in the middle."""
    frames = [f for f in capture.sweeps if f.sensor == lidar.name]
    if not frames or not lidar.spins:
        return no_offsets(lidar)
    frame = frames[len(frames) // 2]
    return row_offsets(lidar, _loaded(capture, frame, clock), frame.time_start, frame.time_end)


def _loaded(capture: Capture, frame: SweepFrame, clock: Clock) -> Sweep:
    name = f"{capture.name}: sweep {frame.index} of {frame.sensor}"
    return _checked(UserSweepLoader(frame.load, name)(), len(capture.lidar(frame.sensor).elevations), clock, name)


def _write_sensors(
    writer: "SequenceComponentGroupsWriter",
    capture: Capture,
    offsets: dict[str, Tensor],  # of each lidar
) -> None:
    from ncore.data.v4 import IntrinsicsComponent, MasksComponent

    lenses = writer.register_component_writer(IntrinsicsComponent.Writer, "default")
    masks = writer.register_component_writer(MasksComponent.Writer, "default")
    for camera in capture.cameras:
        lenses.store_camera_intrinsics(camera.name, camera_model(camera))
        masks.store_camera_masks(camera.name, {} if camera.mask is None else {EGO: mask_picture(camera.mask)})
    for lidar in capture.lidars:
        lasting = [f.time_end - f.time_start for f in capture.sweeps if f.sensor == lidar.name]
        model = lidar_model(lidar, float(np.median(lasting)) if lasting else 0.0, offsets[lidar.name])
        if model is not None:
            lenses.store_lidar_intrinsics(lidar.name, model)


# ---- frames


def _frames(
    writer: "SequenceComponentGroupsWriter",
    capture: Capture,
    clock: Clock,
    offsets: dict[str, Tensor],  # of each lidar
    order: "_Order",
    image_format: str,
    quality: int,
) -> Iterator[None]:
    """Writes a frame whenever the next one is asked for."""
    from ncore.data.v4 import CameraSensorComponent, LidarSensorComponent

    cameras = {c.name: writer.register_component_writer(CameraSensorComponent.Writer, c.name) for c in capture.cameras}
    for frame in capture.images:
        data, form = _encoded(capture, frame, image_format, quality)
        first, last, own = _noted(capture, frame, clock)
        cameras[frame.sensor].store_frame(data, form, order.pair(frame.sensor, first, last), {}, {KEY: own})
        yield
    lidars = {s.name: writer.register_component_writer(LidarSensorComponent.Writer, s.name) for s in capture.lidars}
    for sweep in capture.sweeps:
        rays = _rays(capture.lidar(sweep.sensor), offsets[sweep.sensor], _loaded(capture, sweep, clock), clock)
        first, last, own = _noted(capture, sweep, clock)
        stamps = rays["timestamp_us"].tolist() or [first]
        pair = order.pair(sweep.sensor, min(first, *stamps), max(last, *stamps))
        lidars[sweep.sensor].store_frame(
            **rays, frame_timestamps_us=pair, generic_data={}, generic_meta_data={KEY: own}
        )
        yield


def _noted(capture: Capture, frame: ImageFrame | SweepFrame, clock: Clock) -> tuple[int, int, dict[str, Any]]:
    start, end, *_ = ends_of(capture, frame)
    first, last = clock.stamp(start), clock.stamp(end)
    return first, last, {"index": frame.index, "start_us": first, "end_us": last}


class _Order:
    """Checks that the frames of a sensor follow one another, by their starts and by their ends."""

    def __init__(self, name: str) -> None:
        self.name, self.pairs = name, defaultdict[str, list[tuple[int, int]]](list)  # microseconds, by sensor

    def pair(self, sensor: str, first: int, last: int) -> Any:  # uint64 [2]
        known = self.pairs[sensor]
        before = known[-1] if known else (-1, -1)
        if not (before[0] < first and before[1] < last):
            raise CaptureError(
                f"{self.name}: a frame of {sensor} begins or ends before the one that precedes it, which NCore does not hold; "
                "leave it out by data.without"
            )
        known.append((first, last))
        return np.array([first, last], np.uint64)


def _encoded(capture: Capture, frame: ImageFrame, image_format: str, quality: int) -> tuple[bytes, str]:
    """Returns the file of an image and its format: the file of the source where there is one at full size."""
    stored = frame.encoded()
    if stored is not None and stored.downscale == 1:
        check_header(stored)
        return stored.data, "png" if stored.data.startswith(b"\x89PNG") else "jpeg"
    image = image_of(frame, capture.camera(frame.sensor), f"{capture.name}: image {frame.index} of {frame.sensor}")
    return encoded_image(image, image_format, quality), image_format


def _checked(sweep: Sweep, beams: int, clock: Clock, name: str) -> Sweep:
    """The sweep after checks that NCore's library would only assert."""
    values = [getattr(sweep, f) for f in Sweep.__dataclass_fields__]
    if not all(len(v) == len(sweep) and bool(v.isfinite().all()) for v in values):
        raise CaptureError(
            f"{name} has a number that is not finite, or fields of different lengths; correct it where the capture was made"
        )
    for flaw, remedy in value_flaws(sweep, beams):
        raise CaptureError(f"{name}: {flaw}; {remedy} where the capture was made")
    lengths = sweep.directions.double().square().sum(dim=1)
    if not bool(((lengths - 1).abs() < 0.5 * _ANGLE).all()):
        raise CaptureError(
            f"{name} has directions of a length other than 1; divide each by its length where the capture was made"
        )
    stamps = clock.stamps(sweep.times)
    if not bool(((stamps >= clock.first) & (stamps <= clock.last)).all()):
        raise CaptureError(
            f"{name} has rays outside of the time of the capture; correct their times where the capture was made"
        )
    return sweep


def _rays(lidar: Lidar, offsets: Tensor, sweep: Sweep, clock: Clock) -> dict[str, Any]:
    stamps = clock.stamps(sweep.times)
    missing = ~sweep.returned
    azimuth = azimuth_elevation(sweep.directions.double())[:, 0]
    elements = elements_of(lidar, sweep.rings, azimuth, offsets).numpy().astype(np.uint16) if lidar.spins else None
    return {
        "direction": sweep.directions.float().contiguous().numpy(),
        "timestamp_us": stamps.numpy().astype(np.uint64),
        "model_element": elements,
        "distance_m": sweep.ranges.float().masked_fill(missing, torch.nan)[None].numpy(),
        "intensity": sweep.intensities.float().clamp(0, 1).masked_fill(missing, torch.nan)[None].numpy(),
    }
