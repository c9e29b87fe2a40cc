# SPDX-License-Identifier: Apache-2.0
"""A capture in one file, for carrying it to another machine.

A pack is a zip whose members are stored, each compressed in its own way, so that a loader reads one with a seek:
`capture.json` (sensors, frames, poses, tracks), `images/CAMERA/NNNNNN.jpg` or `.png`, `sweeps/LIDAR/NNNNNN.sweep`.
"""

import io
import json
import os
import struct
import tempfile
import zipfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from nurec_lite.capture.images import decode_image
from nurec_lite.capture.pack_sweep import decode_sweep, encode_sweep
from nurec_lite.capture.types import Capture, CaptureError, Frame, ImageFrame, SweepFrame
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar, Sweep
from nurec_lite.geometry.tracks import Tracks

FORMAT = "nurec_lite capture"
VERSION = 1
INDEX = "capture.json"
IMAGE_FORMATS = {"png": "png", "jpeg": "jpg"}


def write_pack(
    capture: Capture,
    path: Path,
    *,
    image_format: str = "jpeg",  # or png, which loses nothing
    quality: int = 95,  # of JPEG, without chroma subsampling
) -> None:
    """Appears at `path` only when complete."""
    if image_format not in IMAGE_FORMATS:
        raise CaptureError(f"image_format is '{image_format}', but must be one of {', '.join(IMAGE_FORMATS)}")
    path = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            _write_members(archive, capture, image_format, quality)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _write_members(archive: zipfile.ZipFile, capture: Capture, image_format: str, quality: int) -> None:
    index = {
        "format": FORMAT,
        "version": VERSION,
        "name": capture.name,
        "split": capture.split.name if capture.split else None,
        "cameras": [_plain(camera) for camera in capture.cameras],
        "lidars": [_plain(lidar) for lidar in capture.lidars],
        "images": [_plain(f, "load") | {"member": _image_member(f, image_format)} for f in capture.images],
        "sweeps": [_plain(f, "load") | {"member": _sweep_member(f)} for f in capture.sweeps],
        "tracks": _plain(capture.tracks),
    }
    _write(archive, INDEX, json.dumps(index).encode())
    for image in capture.images:
        _write(archive, _image_member(image, image_format), _encode_image(image.load(), image_format, quality))
    for sweep in capture.sweeps:
        _write(archive, _sweep_member(sweep), encode_sweep(sweep.load()))


def _write(archive: zipfile.ZipFile, member: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(member), data)  # ZipInfo's date is constant: equal captures give equal files


def _image_member(frame: ImageFrame, image_format: str) -> str:
    return f"images/{frame.sensor}/{frame.index:06d}.{IMAGE_FORMATS[image_format]}"


def _sweep_member(frame: SweepFrame) -> str:
    return f"sweeps/{frame.sensor}/{frame.index:06d}.sweep"


def _encode_image(image: Tensor, image_format: str, quality: int) -> bytes:
    buffer = io.BytesIO()
    options: dict[str, Any] = {"quality": quality, "subsampling": 0} if image_format == "jpeg" else {"optimize": True}
    Image.fromarray(image.numpy()).save(buffer, format=image_format, **options)
    return buffer.getvalue()


def _plain(thing: Any, *leave_out: str) -> dict[str, Any]:
    """Fields of a dataclass as JSON has them; tensors as nested lists with full precision."""
    values = {f.name: getattr(thing, f.name) for f in fields(thing) if f.name not in leave_out}
    return {k: v.tolist() if isinstance(v, Tensor) else v for k, v in values.items()}


def read_pack(path: Path, *, downscale: int = 1) -> Capture:
    path = Path(path)
    members, index = _open(path)
    try:
        return _capture(path, members, index, downscale)
    except (KeyError, TypeError, IndexError) as error:
        raise CaptureError(f"{path}: {INDEX} is incomplete ({error!r}); write the pack again") from error


def _open(path: Path) -> tuple[dict[str, "Member"], dict[str, Any]]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = {i.filename: Member(path, i.filename, i.header_offset, i.file_size) for i in archive.infolist()}
    except FileNotFoundError as error:
        raise CaptureError(f"{path} does not exist; name an existing pack") from error
    except (OSError, zipfile.BadZipFile) as error:
        raise CaptureError(f"{path} is no pack ({error}); copy it again, or write it with write_pack") from error
    try:
        index = json.loads(_member(path, members, INDEX).read())
    except ValueError as error:
        if isinstance(error, CaptureError):
            raise
        raise CaptureError(f"{path}: {INDEX} is not JSON ({error}); write the pack again") from error
    if not isinstance(index, dict) or index.get("format") != FORMAT or index.get("version") != VERSION:
        found = f"{index.get('format')!r} version {index.get('version')!r}" if isinstance(index, dict) else "other JSON"
        raise CaptureError(
            f"{path} is {found}, but this program reads {FORMAT!r} version {VERSION}; write the pack again"
        )
    return members, index


def _capture(path: Path, members: dict[str, "Member"], index: dict[str, Any], downscale: int) -> Capture:
    cameras = {
        c["name"]: Camera(**_tensors(c, "T_rig_cam") | {"distortion": tuple(c["distortion"])}) for c in index["cameras"]
    }
    images = [
        ImageFrame(
            **_frame(row),
            load=PackImage(_member(path, members, row["member"]), _size(cameras[row["sensor"]]), downscale),
        )
        for row in index["images"]
    ]
    sweeps = [
        SweepFrame(**_frame(row), load=PackSweep(_member(path, members, row["member"]))) for row in index["sweeps"]
    ]
    capture = Capture(
        name=index["name"],
        cameras=tuple(camera.downscaled(downscale) for camera in cameras.values()),
        lidars=tuple(Lidar(**_tensors(row, "T_rig_lidar", "elevations")) for row in index["lidars"]),
        images=tuple(images),
        sweeps=tuple(sweeps),
        tracks=_tracks(index["tracks"]),
    )
    return capture.with_split(index["split"]) if index["split"] else capture


def _member(path: Path, members: dict[str, "Member"], name: str) -> "Member":
    if name not in members:
        raise CaptureError(f"{path} lacks its member {name}; copy it again, or write it with write_pack")
    return members[name]


def _tensors(row: dict[str, Any], *keys: str) -> dict[str, Any]:
    return row | {key: torch.tensor(row[key], dtype=torch.float64) for key in keys}


def _frame(row: dict[str, Any]) -> dict[str, Any]:
    names = {f.name for f in fields(Frame)}
    return _tensors({k: v for k, v in row.items() if k in names}, "T_world_rig_start", "T_world_rig_end")


def _size(camera: Camera) -> tuple[int, int]:
    return camera.width, camera.height


def _tracks(row: dict[str, Any]) -> Tracks:
    row = {k: tuple(v) if k in ("ids", "classes", "offsets") else v for k, v in row.items()}
    shapes = {"sizes": (3,), "times": (), "translations": (3,), "quaternions": (4,)}
    return Tracks(
        **row | {k: torch.tensor(row[k], dtype=torch.float64).view(len(row[k]), *s) for k, s in shapes.items()}
    )


@dataclass(frozen=True)
class Member:
    """Where a stored member lies, so that loading one does not read the directory of the whole pack."""

    path: Path
    name: str
    offset: int  # of its local header
    size: int  # bytes

    def read(self) -> bytes:
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                header = file.read(30)
                file.seek(sum(struct.unpack("<HH", header[26:30])), os.SEEK_CUR)  # the name and extra fields
                data = file.read(self.size)
        except (OSError, struct.error) as error:
            raise CaptureError(f"{self.path} cannot be read ({error}); restore the pack") from error
        if len(data) != self.size:
            raise CaptureError(f"{self.path} ends within {self.name}; copy the pack again")
        return data


@dataclass(frozen=True)
class PackImage:
    member: Member
    size: tuple[int, int]  # width, height as stored
    downscale: int = 1

    def __call__(self) -> Tensor:  # [H, W, 3] uint8
        return decode_image(self.member.read(), f"{self.member.path}: {self.member.name}", self.size, self.downscale)


@dataclass(frozen=True)
class PackSweep:
    member: Member

    def __call__(self) -> Sweep:
        return decode_sweep(self.member.read(), f"{self.member.path}: {self.member.name}")
