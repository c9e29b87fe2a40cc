# SPDX-License-Identifier: Apache-2.0
"""Feather files, which hold Arrow's stream of record batches between two marks.

A compressed buffer says how long it is once it is decompressed, and the library allocates that. So sizes are checked before it reads
(https://arrow.apache.org/docs/format/Columnar.html, sections on messages and compression; flatbuffers as Message.fbs lays them out).
"""

import struct
from pathlib import Path
from typing import Any

from nurec_lite.capture.arrow.library import REMEDY, Kinds, Table, check_columns, check_installed, column, damaged
from nurec_lite.capture.files import read_bytes
from nurec_lite.capture.types import CaptureError

LARGEST = 1 << 25  # bytes of a file; a sweep of 100 000 points has 1 MB
MOST_ROWS = 2_000_000
MOST_BYTES = 1 << 28  # of all buffers, decompressed
MARK, PADDED = b"ARROW1", 8  # begin and end of a file; bytes of the first mark with padding
HEADER, ROWS, BUFFERS = 2, 0, 2  # places of fields in the tables Message and RecordBatch
PLAIN = -1  # length of a buffer that is not compressed


def read_feather(
    path: Path,
    columns: Kinds,  # those that it must have, and that are read
    empty: bool = False,  # whether it may have no row
) -> Table:
    """Reads columns of a file; CaptureError where it is damaged, too large, or lacks a column."""
    check_installed(path)
    import pyarrow as pa

    data = read_bytes(path, REMEDY, LARGEST)
    with damaged(path):
        if not (data.startswith(MARK) and data.endswith(MARK)):
            raise CaptureError(f"{path} is no whole feather file; {REMEDY}")
        stream = memoryview(data)[PADDED:]
        names = pa.ipc.open_stream(pa.BufferReader(stream)).schema.names
        check_columns(path, names, columns)
        _check_sizes(path, stream)
        options = pa.ipc.IpcReadOptions(included_fields=[names.index(name) for name in columns], use_threads=False)
        table = pa.ipc.open_stream(pa.BufferReader(stream), options=options).read_all()
        table.validate(full=True)
        if not table.num_rows and not empty:
            raise CaptureError(f"{path} has no row; {REMEDY}")
        return {name: column(table.column(name), path, name, kind) for name, kind in columns.items()}


def _check_sizes(path: Path, stream: memoryview) -> None:
    import pyarrow as pa

    rows, size, messages = 0, 0, iter(pa.ipc.MessageReader.open_stream(pa.BufferReader(stream)))
    next(messages)  # the schema
    for message in messages:
        if message.type != "record batch":
            raise CaptureError(f"{path} holds a {message.type}; {REMEDY}")
        more_rows, more = _batch_sizes(message)
        rows, size = rows + more_rows, size + more
        if rows > MOST_ROWS or size > MOST_BYTES:
            raise CaptureError(f"{path} has more than {MOST_ROWS} rows or {MOST_BYTES >> 20} MiB; {REMEDY}")


def _batch_sizes(message: Any) -> tuple[int, int]:  # rows, bytes of all buffers, decompressed
    """Returns the stated sizes of a batch; ValueError or struct.error where its description makes no sense."""
    described, body = memoryview(message.metadata), memoryview(message.body or b"")
    batch = _target(described, _field(described, _target(described, 0), HEADER))
    (rows,) = struct.unpack_from("<q", described, _field(described, batch, ROWS))
    start = _target(described, _field(described, batch, BUFFERS))
    (count,) = struct.unpack_from("<I", described, start)
    compressed = _has(described, batch, BUFFERS + 1)
    sizes = [0]
    for k in range(count):
        at, length = struct.unpack_from("<qq", described, start + 4 + 16 * k)
        if length >= PADDED and compressed:
            (claimed,) = struct.unpack_from("<q", body, at)
            length = length if claimed == PLAIN else claimed
        sizes.append(length)
    if min(rows, *sizes) < 0:
        raise ValueError("a size below 0")
    return rows, sum(sizes)


def _target(data: memoryview, at: int) -> int:
    """The place that an offset points to."""
    return int(at + struct.unpack_from("<I", data, at)[0])


def _slot(data: memoryview, table: int, place: int) -> int:
    """Bytes from a table to a field; 0: it has none."""
    layout = table - struct.unpack_from("<i", data, table)[0]
    (length,) = struct.unpack_from("<H", data, layout)
    return int(struct.unpack_from("<H", data, layout + 4 + 2 * place)[0]) if 4 + 2 * place < length else 0


def _has(data: memoryview, table: int, place: int) -> bool:
    return _slot(data, table, place) > 0


def _field(data: memoryview, table: int, place: int) -> int:
    slot = _slot(data, table, place)
    if not slot:
        raise ValueError("a part of a batch's description is missing")
    return table + slot
