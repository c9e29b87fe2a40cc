# SPDX-License-Identifier: Apache-2.0
"""Writes the file that torch.save writes, several times faster: threads copy pieces of tensors to the host, take their checksums and
write them, each at the place that it will have. torch.save does one after another."""

import io
import os
import pickle
import sys
import zlib
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import Any, BinaryIO

import torch
from torch import Tensor

from nurec_lite.base.checksums import combined
from nurec_lite.base.memory import is_out_of_memory
from nurec_lite.base.threads import cores
from nurec_lite.base.transfer import SideStream, locked
from nurec_lite.training.torch_file import DTYPES, dense
from nurec_lite.training.torch_file_layout import ALIGNMENT, arranged, frame

PIECE = 1 << 22  # bytes that a thread takes at a time: page-locked memory of 16 MB takes four times as long to get
MOST_THREADS = 8  # each with as much page-locked memory
_KINDS = {dtype: getattr(torch, name.removeprefix("torch ")) for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class _Storage:
    """Stands for the elements of a tensor."""

    kind: type
    key: int  # name of its record
    elements: int


class _Pickler(pickle.Pickler):
    """Pickles values as torch.save does, and tensors without their elements: these are in `elements` then."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file, protocol=2)
        self.elements: list[Tensor] = []  # [n] each, in the order of memory
        self._met: set[int] = set()

    def persistent_id(self, value: Any) -> Any:
        """Called for every value, again for one that was pickled before."""
        if isinstance(value, _Storage):
            return "storage", value.kind, str(value.key), "cpu", value.elements
        if isinstance(value, Tensor):
            if id(value) in self._met:
                raise ValueError("a tensor is there twice; the reader of checkpoints would refuse the file")
            self._met.add(id(value))
        return None

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return NotImplemented
        if value.dtype not in _KINDS:
            raise ValueError(f"a tensor has the type {value.dtype}; the reader of checkpoints knows no such type")
        whole = value.detach() if dense(value.shape, value.stride()) else value.detach().contiguous()
        self.elements.append(whole.as_strided((whole.numel(),), (1,)))
        storage = _Storage(_KINDS[value.dtype], len(self.elements) - 1, whole.numel())
        hooks: OrderedDict[int, Any] = OrderedDict()
        return torch._utils._rebuild_tensor_v2, (storage, 0, tuple(whole.shape), whole.stride(), False, hooks)


def _records(content: Any) -> dict[str, Tensor]:
    """Returns the bytes of each record, uint8 [n], by its name, in the order of torch.save."""
    pickled = io.BytesIO()
    pickler = _Pickler(pickled)
    pickler.dump(content)
    before = {
        "data.pkl": pickled.getvalue(), ".format_version": b"1", ".storage_alignment": str(ALIGNMENT).encode(),
        "byteorder": sys.byteorder.encode(),
    }  # fmt: skip
    data = {f"data/{key}": elements.view(torch.uint8) for key, elements in enumerate(pickler.elements)}
    return _tensors(before) | data | _tensors({"version": b"3\n"})


def _tensors(records: dict[str, bytes]) -> dict[str, Tensor]:
    return {name: torch.frombuffer(bytearray(data), dtype=torch.uint8) for name, data in records.items()}


# ---- pieces, by threads


@dataclass(frozen=True)
class _Piece:
    values: Tensor  # [n] uint8
    place: int  # in the file


def _pieces(record: Tensor, place: int) -> list[_Piece]:
    return [_Piece(values, place + n * PIECE) for n, values in enumerate(record.split(PIECE))]


def _is_elsewhere(values: Tensor) -> bool:
    """Whether the system cannot write them from the memory that they are in."""
    return values.is_cuda


class _Writer:
    """Writes one piece at a time. It copies pieces from a GPU on a stream of its own, after the work that the present stream has now."""

    def __init__(
        self,
        file: int,
        elsewhere: Sequence[Tensor],  # all values that it may have to copy
    ) -> None:
        self._file, self._elsewhere = file, elsewhere
        self._memory: Tensor | None = None
        self._sides = {device: SideStream(device) for device in {values.device for values in elsewhere}}
        for side in self._sides.values():
            side.take(())

    def write(self, piece: _Piece) -> int:
        """Returns the CRC-32. OSError: the system does not take all bytes."""
        data = self._on_host(piece.values).numpy().data
        _write_at(self._file, data, piece.place)
        return zlib.crc32(data)

    def _on_host(self, values: Tensor) -> Tensor:
        if not _is_elsewhere(values):
            return values
        if self._memory is None:
            self._memory = _page_locked(max(self._elsewhere, key=Tensor.numel))
        side, found = self._sides[values.device], self._memory[: values.numel()]
        with side.inside():
            found.copy_(values, non_blocking=True)
        side.finish()
        return found


def _page_locked(like: Tensor) -> Tensor:
    """Memory that a GPU copies to at full speed; plain memory if the system does not lock as much."""
    try:
        return locked(like)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return torch.empty_like(like, device="cpu")


def _write_at(
    file: int,
    data: memoryview,
    place: int,  # in the file
) -> None:
    while data:
        written = os.pwrite(file, data, place)
        data, place = data[written:], place + written


def _taken(waiting: deque[_Piece]) -> Iterator[_Piece]:
    """Takes pieces until none is left; several threads may do so."""
    while True:
        try:
            piece = waiting.popleft()
        except IndexError:
            return
        yield piece


def _write_pieces(
    writer: _Writer,
    waiting: deque[_Piece],  # for any thread
    begin: Event,
    checksums: dict[int, int],  # CRC-32 of the pieces written so far, by their places
) -> None:
    """Writes pieces until none is left, after the event; with an error none is left."""
    begin.wait()
    try:
        for piece in _taken(waiting):
            checksums[piece.place] = writer.write(piece)
    finally:
        waiting.clear()


def _in_threads(pieces: Sequence[_Piece], file: int) -> dict[int, int]:
    """Returns the CRC-32 of each piece by its place. After an error no thread writes any more, not even one that Ctrl-C keeps from being
    known: none begins before all are known."""
    elsewhere = [piece.values for piece in pieces if _is_elsewhere(piece.values)]
    writers = [_Writer(file, elsewhere) for _ in range(min(MOST_THREADS, cores(), len(pieces)))]
    waiting, begin, checksums = deque(pieces), Event(), dict[int, int]()
    with ThreadPoolExecutor(len(writers), "checkpoint") as pool:
        try:
            futures = [pool.submit(_write_pieces, writer, waiting, begin, checksums) for writer in writers]
            begin.set()
            for future in futures:
                future.result()
        finally:
            waiting.clear()
            begin.set()
    return checksums


def _joined(
    pieces: Sequence[_Piece],  # of a record, in order
    checksums: Mapping[int, int],  # by the places of pieces
) -> int:
    """Returns the CRC-32 of the record."""
    found = 0
    for piece in pieces:
        found = combined(found, checksums[piece.place], piece.values.numel())
    return found


def write_torch_file(
    content: Any,  # plain values and tensors, each of them once, of types in torch_file.DTYPES
    file: BinaryIO,  # a regular file that is empty; its position is at the end afterwards
) -> None:
    """Writes a file that torch.load, zipfile and read_torch_file read. Each tensor is written with its own elements only: a part of a
    larger one without the rest, a parameter as a plain tensor. OSError as the system raises it; ValueError for another tensor."""
    values = _records(content)
    records = arranged({name: data.numel() for name, data in values.items()})
    pieces = [_pieces(data, record.data) for data, record in zip(values.values(), records, strict=True)]
    checksums = _in_threads([piece for several in pieces for piece in several], file.fileno())
    joined = [_joined(several, checksums) for several in pieces]
    for place, data in frame(records, joined):
        _write_at(file.fileno(), memoryview(data), place)
    file.seek(0, os.SEEK_END)
