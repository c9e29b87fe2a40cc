# SPDX-License-Identifier: Apache-2.0
"""Stores of NCore: a tar file with an index at its end (.zarr.itar), or a folder of files (.zarr), with arrays in Zarr's second format.

Arrays are read here, and not by Zarr, since Zarr unpickles on a file's request. Only plain numbers are read, as they are or packed by
Blosc; every size is checked before memory is taken. Spans and arrays pickle, so that loader processes can read them.
"""

import math
import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nurec_lite.base.texts import open_file
from nurec_lite.capture.files import short
from nurec_lite.capture.ncore.cbor import unpacked
from nurec_lite.capture.types import CaptureError

REMEDY = "copy it again from its source"
METADATA = ".zmetadata.cbor.xz"  # all descriptions of a store in one
LARGEST = 1 << 28  # bytes of an array, and of an index
MOST_CHUNKS = 4096  # of an array
BLOCK = 512  # bytes, of tar
HEADER = struct.Struct("<4sIQI")  # magic, kind, offset and size of the index, in the last block
_TYPE = re.compile(r"[<>|](?:[fiu][1248]|b1|S[0-9]{1,9})")
_BLOSC = struct.Struct(
    "<4BIII"
)  # version of the format and of the codec, flags, size of a number, bytes, bytes of a block, packed bytes


@dataclass(frozen=True)
class Span:
    """A part of a file."""

    path: Path
    name: str  # for messages
    offset: int
    size: int

    def __str__(self) -> str:
        return f"{self.path}: {self.name}"

    def read(self) -> bytes:
        return self.part(0, self.size)

    def part(self, start: int, size: int) -> bytes:
        """Returns so many bytes from a place within."""
        try:
            with open_file(self.path) as file:
                file.seek(self.offset + start)
                data = file.read(size)
        except OSError as error:
            raise CaptureError(f"{self} cannot be read ({error.strerror}); restore the file") from error
        if len(data) != size:
            raise CaptureError(f"{self} is cut short; {REMEDY}")
        return data


@dataclass(frozen=True)
class Array:
    """An array with chunks in files."""

    name: str  # for messages
    dtype: str
    shape: tuple[int, ...]
    chunk: tuple[int, ...]  # its shape
    packed: bool  # by Blosc
    spans: tuple[Span, ...]  # of the chunks, the last axis fastest

    def load(self) -> NDArray[Any]:
        found = np.empty(self.shape, np.dtype(self.dtype))
        starts = product(*(range(0, n, c) for n, c in zip(self.shape, self.chunk, strict=True)))
        for start, span in zip(starts, self.spans, strict=True):
            place = tuple(slice(a, a + c) for a, c in zip(start, self.chunk, strict=True))
            part = found[place]
            part[...] = self._chunk(span)[tuple(slice(0, n) for n in part.shape)]
        return found

    def _chunk(self, span: Span) -> NDArray[Any]:
        kind, count = np.dtype(self.dtype), math.prod(self.chunk)
        data = span.read()
        if self.packed:
            data = _unpacked(data, span, count * kind.itemsize)
        if len(data) != count * kind.itemsize:
            raise CaptureError(f"{span} has {len(data)} bytes, not {count * kind.itemsize}; {REMEDY}")
        return np.frombuffer(data, kind).reshape(self.chunk)


def _unpacked(data: bytes, span: Span, size: int) -> bytes:
    from numcodecs import blosc

    stated = _BLOSC.unpack_from(data)[4:] if len(data) >= _BLOSC.size else (-1, 0, -1)
    try:
        if (stated[0], stated[2]) != (size, len(data)):
            raise ValueError("its sizes do not fit")
        return bytes(blosc.decompress(data))
    except (ValueError, RuntimeError) as error:
        raise CaptureError(f"{span} cannot be unpacked ({short(error)}); {REMEDY}") from error


@dataclass(frozen=True, eq=False)
class Store:
    """One file or folder: its contents by name, and the descriptions."""

    path: Path
    spans: Mapping[str, Span]
    described: Mapping[str, Any]

    def attributes(self, group: str) -> dict[str, Any]:
        """Returns the attributes of a group or array; empty where it has none."""
        found = self.described.get(f"{group}/.zattrs".lstrip("/"), {})
        if not isinstance(found, dict):
            raise CaptureError(f"{self.path}: {short(group)} has attributes that are no record; {REMEDY}")
        return found

    def members(self, group: str) -> list[str]:
        """Returns the names of the groups within a group."""
        start = f"{group}/"
        parts = (key[len(start) :].split("/") for key in self.described if key.startswith(start))
        return sorted({part[0] for part in parts if len(part) == 2 and part[1] == ".zgroup"})

    def has(self, array: str) -> bool:
        return f"{array}/.zarray" in self.described

    def array(self, name: str) -> Array:
        """Returns the array of that name; CaptureError where it is missing or of a kind that is not read."""
        known = self.described.get(f"{name}/.zarray")
        try:
            if known is None:
                raise ValueError("it is missing")
            dtype, shape, chunk, separator = _plain(known)
            keys = _chunk_keys(shape, chunk, separator)
            return Array(
                name, dtype, shape, chunk, known["compressor"] is not None, tuple(self._span(name, k) for k in keys)
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CaptureError(
                f"{self.path}: the array {short(name)} cannot be read ({short(error)}); {REMEDY}"
            ) from error

    def _span(self, name: str, chunk: str) -> Span:
        found = self.spans.get(f"{name}/{chunk}")
        if found is None:
            raise ValueError(f"its part {chunk} is missing")
        if found.size > LARGEST:
            raise ValueError(f"its part {chunk} has {found.size >> 20} MiB")
        return found


def _plain(known: Any) -> tuple[str, tuple[int, ...], tuple[int, ...], str]:
    """Returns type, shape, shape of a chunk and the separator of a chunk's name; ValueError for arrays that are not read."""
    dtype, packer = known["dtype"], known["compressor"]
    shape, chunk = ((*map(_whole, known[key]),) for key in ("shape", "chunks"))
    if known["zarr_format"] != 2 or known["order"] != "C" or known.get("filters"):
        raise ValueError("it has another order, or filters")
    if not isinstance(dtype, str) or not _TYPE.fullmatch(dtype):
        raise ValueError("it holds no plain numbers")
    if packer is not None and packer["id"] != "blosc":
        raise ValueError(f"it is packed by {packer['id']}, but blosc is read")
    if len(shape) != len(chunk) or not all(chunk):
        raise ValueError("its chunks do not fit its shape")
    size = np.dtype(dtype).itemsize
    if max(math.prod(shape), math.prod(chunk)) * size > LARGEST:
        raise ValueError(f"it claims more than {LARGEST >> 20} MiB")
    return dtype, shape, chunk, str(known.get("dimension_separator", "."))


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise ValueError("its shape is none")
    return value


def _chunk_keys(shape: tuple[int, ...], chunk: tuple[int, ...], separator: str) -> list[str]:
    if not shape:
        return ["0"]
    counts = [-(-n // c) for n, c in zip(shape, chunk, strict=True)]
    if math.prod(counts) > MOST_CHUNKS:
        raise ValueError(f"it has more than {MOST_CHUNKS} chunks")
    return [separator.join(map(str, place)) for place in product(*map(range, counts))]


# ---- opening


def open_store(path: Path) -> Store:
    """Opens a store; CaptureError where it is none or damaged."""
    try:
        spans = _folder_spans(path) if path.is_dir() else _indexed(path)
        if METADATA not in spans:
            raise ValueError(f"it has no {METADATA}")
        known = unpacked(_small(spans[METADATA]).read())
        if not isinstance(known, dict) or not isinstance(known.get("metadata"), dict):
            raise ValueError("its descriptions are no record")
    except OSError as error:
        raise CaptureError(
            f"{path} cannot be read ({error.strerror}); name a store of NCore v4 by data.root"
        ) from error
    except (ValueError, TypeError, KeyError) as error:
        raise CaptureError(f"{path} is no store of NCore v4, or damaged ({short(error)}); {REMEDY}") from error
    return Store(path, spans, known["metadata"])


def _small(span: Span) -> Span:
    if span.size > LARGEST:
        raise ValueError(f"its index has {span.size >> 20} MiB")
    return span


def _indexed(path: Path) -> dict[str, Span]:
    """Returns the parts of a tar file by the index that its last block points to."""
    size = os.stat(path).st_size
    if not path.is_file() or size < BLOCK:
        raise ValueError("it is no file, or too short")
    magic, kind, offset, length = HEADER.unpack(Span(path, "header", size - BLOCK, HEADER.size).read())
    if magic != b"itar" or kind != 1 or offset + length > size:
        raise ValueError("it does not end in an index")
    known = unpacked(_small(Span(path, "index", offset, length)).read())
    names, offsets, sizes = (known[key] for key in ("items", "offset_datas", "sizes"))
    spans = [Span(path, *row) for row in zip(names, offsets, sizes, strict=True)]
    for span in spans:
        whole = type(span.name) is str and type(span.offset) is int and type(span.size) is int
        if not whole or not 0 <= span.offset <= span.offset + span.size <= size:
            raise ValueError("its index names missing members")
    return {span.name: span for span in spans}


def _folder_spans(folder: Path) -> dict[str, Span]:
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if path.is_file() and not name.endswith((".zarray", ".zgroup", ".zattrs")):
                key = path.relative_to(folder).as_posix()
                found[key] = Span(path, key, 0, path.stat().st_size)
    return found
