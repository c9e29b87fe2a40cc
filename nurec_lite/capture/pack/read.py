# SPDX-License-Identifier: Apache-2.0
"""Reads a pack. Opening it reads the zip's directory and `capture.json`; frames are read when they are loaded.

Every byte that counts is checked: members by the CRC-32 of the directory and by their own name, the directory against the
file, `capture.json` by its table, the capture by check.py.
"""

import os
import struct
import zipfile
import zlib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nurec_lite.base.archives import opened_archive
from nurec_lite.base.names import of_older_file
from nurec_lite.base.texts import open_file, parse_json, printable
from nurec_lite.capture.check import check_capture
from nurec_lite.capture.downscale import downscaled
from nurec_lite.capture.files import short
from nurec_lite.capture.images import FIRST, LAST, decode_image
from nurec_lite.capture.masks.pictures import decode_mask
from nurec_lite.capture.pack.check import FORMAT, INDEX, REMEDY, VERSION, FormatError, check_index, shown
from nurec_lite.capture.pack.sweep import decode_sweep
from nurec_lite.capture.types import (
    GIVEN,
    Capture,
    CaptureError,
    Doubt,
    Encoded,
    Frame,
    Glance,
    ImageFrame,
    SweepFrame,
    UnusedFrame,
)
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar, RayTable, Sweep
from nurec_lite.geometry.tracks import Tracks

# errors that zipfile raises for a damaged directory, in addition to its own
_DAMAGE = (zipfile.BadZipFile, OSError, NotImplementedError, ValueError, OverflowError, EOFError, struct.error)
_ENCRYPTED = 1  # flag bit


# ---- members


@dataclass(frozen=True)
class Member:
    """Place of a stored member, so that loading one does not read the directory of the whole pack."""

    path: Path
    name: str
    offset: int  # of its local header
    size: int  # bytes
    crc: int
    end: int  # where the next member begins

    def __str__(self) -> str:
        return f"{self.path}: {self.name}"

    def read(self) -> bytes:
        try:
            with open_file(self.path) as file:
                file.seek(self.offset)
                span = file.read(self.end - self.offset)
        except OSError as error:
            raise CaptureError(f"{self} cannot be read ({error.strerror}); restore the file") from error
        lengths = struct.unpack("<HH", span[26:30]) if len(span) >= 30 else (0, 0)  # of the name, and of extra fields
        begin = 30 + sum(lengths)
        name, data = span[30 : 30 + lengths[0]], span[begin : begin + self.size]
        # the CRC alone would not notice that two entries of the directory have exchanged their names
        if name != self.name.encode() or len(data) != self.size or zlib.crc32(data) != self.crc:
            raise CaptureError(f"{self} is damaged; {REMEDY}")
        return data

    def ends(self, first: int, last: int) -> tuple[bytes, bytes]:
        """Bytes at its start and at its end; `read` finds out whether they are damaged."""
        try:
            with open_file(self.path) as file:
                file.seek(self.offset)
                header = file.read(30)
                begin = self.offset + 30 + sum(struct.unpack("<HH", header[26:30].ljust(4, b"\0")))
                file.seek(begin)
                start = file.read(min(first, self.size))
                file.seek(begin + max(0, self.size - last))
                return start, file.read(min(last, self.size))
        except OSError as error:
            raise CaptureError(f"{self} cannot be read ({error.strerror}); restore the file") from error


def _read_directory(path: Path) -> dict[str, Member]:
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe would wait forever, and a device never end
        raise CaptureError(f"{path} is no file; name an existing pack")
    try:
        with opened_archive(path) as archive:
            entries, end = archive.infolist(), archive.start_dir
    except FileNotFoundError as error:
        raise CaptureError(f"{path} does not exist; name an existing pack") from error
    except PermissionError as error:
        raise CaptureError(
            f"{path} cannot be read ({error.strerror}); change its rights, or name another pack"
        ) from error
    except _DAMAGE as error:
        reason = str(error) if str(error).isprintable() else type(error).__name__
        raise CaptureError(f"{path} is no pack, or damaged ({reason[:100]}); {REMEDY}") from error
    members: dict[str, Member] = {}
    for entry in sorted(entries, key=lambda e: e.header_offset, reverse=True):
        flaw = _flaw(entry, end, members)
        if flaw:
            raise CaptureError(f"{path}: {repr(entry.filename)[:100]} {flaw}; {REMEDY}")
        members[entry.filename] = Member(path, entry.filename, entry.header_offset, entry.file_size, entry.CRC, end)
        end = entry.header_offset
    return members


def _flaw(entry: zipfile.ZipInfo, end: int, members: dict[str, Member]) -> str | None:
    """Returns the flaw of a member, or None; `end`: the begin of the next member, or of the directory."""
    if entry.flag_bits & _ENCRYPTED:
        return "is encrypted"
    if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
        return "is compressed, but members of a pack are stored"
    if entry.filename in members:
        return "is there twice"
    if entry.header_offset < 0 or entry.header_offset + 30 + entry.file_size > end:
        return "runs into the next member"
    return None


# ---- frames


@dataclass(frozen=True)
class PackImage:
    """Loads one image. Plain data, so that it pickles."""

    member: Member
    size: tuple[int, int]  # width, height as stored
    downscale: int
    encoding: str  # for people: JPEG, quality 95

    def __call__(self) -> Tensor:  # [H, W, 3] uint8
        return decode_image(self.encoded())

    def encoded(self) -> Encoded:
        return Encoded(self.member.read(), str(self.member), self.size, self.downscale)

    def glance(self) -> Glance:
        first, last = self.member.ends(FIRST, LAST)
        return Glance(Encoded(first, str(self.member), self.size, self.downscale), last, self.member.size)

    def mark(self, thorough: bool) -> tuple[int, int]:
        return self.member.size, self.member.crc


@dataclass(frozen=True)
class PackSweep:
    """Loads one sweep; it can be pickled for a loader process."""

    member: Member
    beams: int

    def __call__(self) -> Sweep:
        return decode_sweep(self.member.read(), str(self.member), self.beams)

    def returns(self, every: int = 1) -> tuple[Tensor, Tensor]:
        sweep = self()
        seen = sweep.returned.nonzero()[::every, 0]
        return sweep.directions[seen].double() * sweep.ranges[seen, None].double(), sweep.times[seen]

    def mark(self, thorough: bool) -> tuple[int, int]:
        return self.member.size, self.member.crc


# ---- capture.json


def read_pack(path: Path, *, downscale: int = 1) -> Capture:
    path = Path(path)
    members = _read_directory(path)
    index = _read_index(path, members)
    capture = _capture(path, members, index, downscale)
    _check_needed(path, members, index)
    check_capture(capture, f"{path}: {INDEX}")
    capture = replace(capture, cameras=tuple(downscaled(camera, downscale) for camera in capture.cameras))
    try:
        return capture.with_split(index["split"]) if index["split"] else capture
    except CaptureError as error:
        raise CaptureError(f"{path}: {error}") from error


def _read_index(path: Path, members: dict[str, Member]) -> dict[str, Any]:
    data = _member(path, members, INDEX).read()
    try:
        index = parse_json(data)
    except ValueError as error:
        raise CaptureError(f"{path}: {INDEX} is not JSON ({printable(str(error))}); {REMEDY}") from error
    if not isinstance(index, dict) or (index.get("format"), index.get("version")) != (FORMAT, VERSION):
        found = [shown(index.get(key)) for key in ("format", "version")] if isinstance(index, dict) else ["none"] * 2
        raise CaptureError(
            f"{path}: {INDEX} has the format {found[0]}, version {found[1]}, but this program reads "
            f"{shown(FORMAT)}, version {VERSION}; {REMEDY}"
        )
    try:
        check_index(index)
    except FormatError as error:
        raise CaptureError(f"{path}: {INDEX}: {error}; {REMEDY}") from error
    return index


def _capture(path: Path, members: dict[str, Member], index: dict[str, Any], downscale: int) -> Capture:
    cameras = {c["name"]: Camera(**_camera(path, members, c)) for c in index["cameras"]}
    lidars = {s["name"]: _lidar(path, members, s) for s in index["lidars"]}
    encoding = _encoding(index)
    images = []
    for row in index["images"]:
        member, camera = _member(path, members, row["member"]), cameras[row["sensor"]]
        load = PackImage(member, (camera.width, camera.height), downscale, encoding)
        images.append(ImageFrame(**_frame(row), load=load))
    sweeps = []
    for row in index["sweeps"]:
        member, lidar = _member(path, members, row["member"]), lidars[row["sensor"]]
        sweeps.append(SweepFrame(**_frame(row), load=PackSweep(member, len(lidar.elevations))))
    return Capture(
        name=index["name"],
        cameras=tuple(cameras.values()),
        lidars=tuple(lidars.values()),
        images=tuple(images),
        sweeps=tuple(sweeps),
        tracks=_tracks(index["tracks"]),
        doubts=tuple(Doubt(**row) for row in index.get("doubts", ())),
        poses_from=index.get("poses", GIVEN),
        searched=index.get("searched", False),
        left_out=tuple(UnusedFrame(**row) for row in index.get("left_out", ())),
    )


def _lidar(path: Path, members: dict[str, Member], row: dict[str, Any]) -> Lidar:
    found = _tensors(row, "T_rig_lidar", "elevations")
    if "table" in row:
        member = _member(path, members, row["table"])
        rays = decode_sweep(member.read(), str(member))
        found["table"] = RayTable(rays.directions, rays.times)
    return Lidar(**found)


def _member(path: Path, members: dict[str, Member], name: str) -> Member:
    if name not in members:
        raise CaptureError(f"{path} lacks its member {name}; {REMEDY}")
    return members[name]


def _check_needed(path: Path, members: dict[str, Member], index: dict[str, Any]) -> None:
    parts = {row[key] for row in (*index["cameras"], *index["lidars"]) for key in ("mask", "table") if key in row}
    unknown = members.keys() - {INDEX} - parts - {row["member"] for kind in ("images", "sweeps") for row in index[kind]}
    if unknown:
        raise CaptureError(f"{path} holds '{short(min(unknown))}', which no frame needs; {REMEDY}")


def _encoding(index: dict[str, Any]) -> str:
    stated = index.get("image_encoding")
    if stated is None:
        return "format not stated"
    return stated["format"].upper() + (f", quality {stated['quality']}" if stated["quality"] else "")


def _tensors(row: dict[str, Any], *keys: str) -> dict[str, Any]:
    return row | {
        key: torch.from_numpy(np.array(row[key], np.float64)) for key in keys
    }  # torch.tensor takes three times as long


def _camera(path: Path, members: dict[str, Member], row: dict[str, Any]) -> dict[str, Any]:
    camera = _tensors(row, "T_rig_cam") | {"distortion": tuple(row["distortion"])}
    if "mask" not in row:
        return camera
    member = _member(path, members, row["mask"])
    size = row["width"], row["height"]
    return camera | {"mask": decode_mask(member.read(), str(member), size, f"camera {row['name']}")}


def _frame(row: dict[str, Any]) -> dict[str, Any]:
    names = {f.name for f in fields(Frame)}
    return _tensors({k: v for k, v in row.items() if k in names}, "T_world_rig_start", "T_world_rig_end")


def _tracks(row: dict[str, Any]) -> Tracks:
    row = {k: tuple(v) if k in ("ids", "classes", "offsets") else v for k, v in row.items()}
    shapes = {"sizes": (3,), "times": (), "translations": (3,), "quaternions": (4,)}
    row["ids"] = of_older_file(row["ids"])
    return Tracks(
        **row | {k: torch.tensor(row[k], dtype=torch.float64).view(len(row[k]), *s) for k, s in shapes.items()}
    )
