# SPDX-License-Identifier: Apache-2.0
"""Feather files, which are files of Arrow's stream of record batches."""

from pathlib import Path

from nurec_lite.capture.arrow.library import REMEDY, Kinds, Table, check_columns, check_installed, column, damaged
from nurec_lite.capture.files import read_bytes
from nurec_lite.capture.types import CaptureError

LARGEST = 1 << 25  # bytes of a file; a sweep of 100 000 points has 1 MB
MOST_ROWS = 2_000_000
MOST_BATCHES = 1000


def read_feather(
    path: Path,
    columns: Kinds,  # those that it must have, and that are read
    empty: bool = False,  # whether it may have no row
) -> Table:
    """CaptureError where the file is damaged, too large, or lacks a column."""
    check_installed(path)
    import pyarrow as pa

    data = read_bytes(path, REMEDY, LARGEST)
    with damaged(path):
        reader = pa.ipc.open_file(pa.BufferReader(data))
        check_columns(path, reader.schema.names, columns)
        if reader.num_record_batches > MOST_BATCHES or reader.count_rows() > MOST_ROWS:
            raise CaptureError(f"{path} has more than {MOST_ROWS} rows; {REMEDY}")
        places = [reader.schema.get_field_index(name) for name in columns]
        reader = pa.ipc.open_file(
            pa.BufferReader(data), options=pa.ipc.IpcReadOptions(included_fields=places, use_threads=False)
        )
        table = reader.read_all()
        table.validate(full=True)
        if not table.num_rows and not empty:
            raise CaptureError(f"{path} has no row; {REMEDY}")
        return {name: column(table.column(name), path, name, kind) for name, kind in columns.items()}
