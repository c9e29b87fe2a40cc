# SPDX-License-Identifier: Apache-2.0
"""Writes a pack. Frames are loaded one after another, and encoded by a few threads, because the codecs leave the lock free."""

import json
import zipfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from nurec_lite.base.files import written
from nurec_lite.base.folders import check_file
from nurec_lite.base.threads import cores
from nurec_lite.capture.check import check_capture
from nurec_lite.capture.masks.pictures import encode_mask
from nurec_lite.capture.pack.check import (
    FORMAT,
    IMAGE_FORMATS,
    INDEX,
    VERSION,
    FormatError,
    check_index,
    image_member,
    mask_member,
    sweep_member,
    table_member,
)
from nurec_lite.capture.pack.sweep import encode_sweep, table_sweep
from nurec_lite.capture.types import CHOSEN, ESTIMATED, Capture, CaptureError, ImageFrame
from nurec_lite.capture.user_loaders import UserSweepLoader, user_image_loader
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar

Progress = Callable[[int, int], None]  # members written, of how many
Job = tuple[str, Callable[[], bytes]]  # a member's name, and the function that encodes it

MAX_THREADS = 16
LARGE = 1 << 20  # pixels


def write_pack(
    capture: Capture,
    path: Path,
    *,
    image_format: str = "jpeg",  # or png, which loses nothing
    quality: int = 95,  # of JPEG, without chroma subsampling
    progress: Progress | None = None,
) -> None:
    """Writes a capture as a pack. It appears at `path` only when complete; equal captures give equal bytes."""
    if image_format not in IMAGE_FORMATS:
        raise CaptureError(f"image_format is '{image_format}', but must be one of {', '.join(IMAGE_FORMATS)}")
    if not 1 <= quality <= 100:
        raise CaptureError(f"quality is {quality}, but must lie between 1 and 100; 95 is the default")
    check_capture(capture, capture.name)
    if not Path(path).parent.is_dir():
        raise CaptureError(f"{path} cannot be written (no such folder); name a file in a folder that exists")
    check_file(Path(path), is_pack)
    with written(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        _write_members(archive, capture, image_format, quality, progress)


def is_pack(
    head: bytes,  # of a file
) -> bool:
    """Whether a file is a pack, by the local header of its first member (APPNOTE.TXT 4.3.7)."""
    return head.startswith(b"PK\3\4") and head[30:].startswith(INDEX.encode())


def _write_members(
    archive: zipfile.ZipFile, capture: Capture, image_format: str, quality: int, progress: Progress | None
) -> None:
    _write(archive, INDEX, _encode_index(capture, image_format, quality))
    for camera in capture.cameras:
        if camera.mask is not None:
            _write(archive, mask_member(camera.name), encode_mask(camera.mask))
    total = len(capture.images) + len(capture.sweeps) + sum(lidar.table is not None for lidar in capture.lidars)
    for done, (member, data) in enumerate(_encoded(_jobs(capture, image_format, quality)), start=1):
        _write(archive, member, data)
        if progress:
            progress(done, total)


def _write(archive: zipfile.ZipFile, member: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(member), data)  # ZipInfo's date is constant: equal captures give equal files


def _encode_index(capture: Capture, image_format: str, quality: int) -> bytes:
    images = [_plain(f, "load") | {"member": image_member(f.sensor, f.index, image_format)} for f in capture.images]
    index = {
        "format": FORMAT,
        "version": VERSION,
        "name": capture.name,
        "split": capture.split.name if capture.split else None,
        "image_encoding": {"format": image_format, "quality": quality if image_format == "jpeg" else None},
        "cameras": [_camera(camera) for camera in capture.cameras],
        "lidars": [
            plain_lidar(s) | ({} if s.table is None else {"table": table_member(s.name)}) for s in capture.lidars
        ],
        "images": images,
        "sweeps": [_plain(f, "load") | {"member": sweep_member(f.sensor, f.index)} for f in capture.sweeps],
        "tracks": _plain(capture.tracks),
        **({"doubts": [_plain(doubt) for doubt in capture.doubts]} if capture.doubts else {}),
        **({"poses": CHOSEN} if capture.poses_from in (CHOSEN, ESTIMATED) else {}),
        **({"searched": True} if capture.searched else {}),
        **plain_left_out(capture),
    }
    data = json.dumps(index).encode()
    try:
        check_index(json.loads(data))  # so that every written pack can be read
    except FormatError as error:
        raise CaptureError(f"{capture.name}: {error}; correct it where the capture was made") from error
    return data


def _camera(camera: Camera) -> dict[str, Any]:
    plain = _plain(camera, "mask", *(("lens",) if camera.lens == "pinhole" else ()))
    return plain if camera.mask is None else plain | {"mask": mask_member(camera.name)}


def _plain(thing: Any, *leave_out: str) -> dict[str, Any]:
    """Fields of a dataclass as JSON has them; tensors as nested lists with full precision."""
    values = {f.name: getattr(thing, f.name) for f in fields(thing) if f.name not in leave_out}
    return {k: v.tolist() if isinstance(v, Tensor) else v for k, v in values.items()}


def plain_lidar(lidar: Lidar) -> dict[str, Any]:
    """Fields of a lidar as JSON has them, without its table. A lidar that spins does not say so, as in older packs."""
    return _plain(lidar, "table", *(("spins",) if lidar.spins else ()))


def plain_left_out(capture: Capture) -> dict[str, list[dict[str, Any]]]:
    """Frames that data.without left out, by the key that a file has for them; empty without any. Readers do not miss them."""
    sensors = {*(camera.name for camera in capture.cameras), *(lidar.name for lidar in capture.lidars)}
    rows = [_plain(frame) for frame in capture.left_out if frame.sensor in sensors]
    return {"left_out": rows} if rows else {}


# ---- frames


def _jobs(capture: Capture, image_format: str, quality: int) -> Iterator[Job]:
    """Loads a frame whenever the next job is asked for."""
    for frame in capture.images:
        member, camera = image_member(frame.sensor, frame.index, image_format), capture.camera(frame.sensor)
        image = image_of(frame, camera, f"{capture.name}: {member}")
        yield member, partial(encoded_image, image, image_format, quality)
    for lidar in capture.lidars:
        if lidar.table is not None:
            yield table_member(lidar.name), partial(encode_sweep, table_sweep(lidar), f"{capture.name}: {lidar.name}")
    for sweep in capture.sweeps:
        member, beams = sweep_member(sweep.sensor, sweep.index), len(capture.lidar(sweep.sensor).elevations)
        where = f"{capture.name}: {member}"
        yield member, partial(encode_sweep, UserSweepLoader(sweep.load, where)(), where, beams)


def image_of(
    frame: ImageFrame,
    camera: Camera,
    where: str,  # for the message
) -> Tensor:  # [H, W, 3] uint8
    return user_image_loader(frame, camera, where)()


def _encoded(jobs: Iterator[Job]) -> Iterator[tuple[str, bytes]]:
    """Results in the order of the jobs; only a few are held at a time."""
    threads = min(cores(), MAX_THREADS)
    waiting: deque[tuple[str, Future[bytes]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for member, encode in jobs:
            waiting.append((member, pool.submit(encode)))
            if len(waiting) > 2 * threads:
                name, future = waiting.popleft()
                yield name, future.result()
        for name, future in waiting:
            yield name, future.result()


def encoded_image(image: Tensor, image_format: str, quality: int) -> bytes:  # [H, W, 3] uint8
    import imageio.v3 as imageio  # here, because a training run reads packs and writes none

    jpeg = {"quality": quality, "subsampling": 0}
    options: dict[str, Any] = jpeg if image_format == "jpeg" else _png_options(image)
    return imageio.imwrite("<bytes>", image.numpy(), plugin="pillow", extension=f".{image_format}", **options)


def _png_options(image: Tensor) -> dict[str, Any]:
    """Options for the smallest files of small images; files of large ones are an eighth larger, in an eighth of the time."""
    return {"optimize": True} if image.shape[0] * image.shape[1] < LARGE else {"compress_level": 3}
