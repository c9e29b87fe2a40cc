# SPDX-License-Identifier: Apache-2.0
"""Columns of the tables that PandaSet stores as pickled DataFrames, read without pandas.

A pickle may call anything. This one calls nothing but numpy's constructors of arrays; stand-ins keep the arguments of pandas' own
classes. Tables of pandas 1.0 to 2 are read.
"""

import gzip
import io
import pickle
import pickletools
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nurec_lite.capture.files import read_bytes, short
from nurec_lite.capture.types import CaptureError

Table = dict[str, NDArray[Any]]  # columns by name, all of one length
LARGEST = 1 << 27  # bytes of a table; 170 000 points have 9 MB
MOST_ROWS = 2_000_000
MOST_KEPT = 1_000_000  # objects that a pickle names again; the unpickler of Python allocates by the largest number
REMEDY = "copy the file again from its source"


class _Kept:
    """Replacement of an object of pandas: keeps its arguments."""

    given: tuple[Any, ...] = ()
    state: Any = None

    def __init__(self, *given: Any) -> None:
        self.given = given

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _ArrayType:
    """Replacement of numpy.ndarray, which a pickle names but does not call."""


def _empty_array(kind: Any, shape: Any, code: Any) -> NDArray[Any]:
    """The array that a pickle fills by its state."""
    if kind is not _ArrayType:
        raise pickle.UnpicklingError("an array of an unknown kind")
    return np.ndarray((0,), np.int8)


def _of_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> NDArray[Any]:
    return np.frombuffer(data, np.dtype(dtype)).reshape(shape, order=order)


def _block(values: Any, where: Any, dimensions: Any) -> dict[str, Any]:
    return {"values": values, "mgr_locs": where}


_CALLS = {  # all names in a table, and their stand-ins
    ("builtins", "slice"): slice,
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): _ArrayType,
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy.core.numeric", "_frombuffer"): _of_buffer,
    ("pandas", "_new_Index"): lambda kind, fields: fields,
    ("pandas", "_unpickle_block"): _block,
    **{("pandas", name): _Kept for name in ("BlockManager", "DataFrame", "Index", "Int64Index", "RangeIndex")},
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Finds a class by its name: modules of numpy 1 and 2, and of Python 2, have one; pandas moved its modules too often to
        distinguish."""
        place = "pandas" if module.startswith("pandas.") else module.replace("numpy._core.", "numpy.core.")
        found = _CALLS.get((place.replace("__builtin__", "builtins"), name))
        if found is None:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a table")
        return found


def read_table(
    path: Path,  # .pkl or .pkl.gz
    columns: tuple[str, ...],  # that it must have
) -> Table:
    """Returns all columns of a table; CaptureError where it is damaged, lacks one of those asked for, or is no table of pandas."""
    data = read_bytes(path, REMEDY)
    try:
        plain = _unpacked(data)
        _check_steps(plain)
        table = _columns(_Unpickler(io.BytesIO(plain)).load())
    except Exception as error:  # the bytes of a damaged pickle may mean any error
        raise CaptureError(f"{path} is no table of PandaSet ({short(error)}); {REMEDY}") from error
    missing = [name for name in columns if name not in table]
    if missing:
        raise CaptureError(f"{path} has no column '{missing[0]}'; {REMEDY}")
    return table


def numbers(
    table: Table,
    path: Path,  # for the message
    names: tuple[str, ...],
) -> NDArray[np.float64]:  # [rows, names]
    """Columns that must be finite."""
    try:
        values = np.stack([table[name].astype(np.float64) for name in names], axis=1)
    except (TypeError, ValueError) as error:
        raise CaptureError(f"{path}: {', '.join(names)} are no numbers; {REMEDY}") from error
    if not np.isfinite(values).all():
        raise CaptureError(f"{path}: {', '.join(names)} are not all finite; {REMEDY}")
    return values


def texts(table: Table, path: Path, name: str) -> list[str]:
    """A column of texts, none of them missing."""
    values = table[name].tolist()
    if not all(isinstance(value, str) for value in values):
        raise CaptureError(f"{path} has rows without '{name}'; {REMEDY}")
    return values


def _unpacked(data: bytes) -> bytes:
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            found = file.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"it cannot be unpacked: {error}") from error
    if len(found) > LARGEST:
        raise ValueError(f"it unpacks to more than {LARGEST >> 20} MiB")
    return found


def _check_steps(data: bytes) -> None:
    """Refuses numbers that make an unpickler take gigabytes before it reads on."""
    for step, value, _ in pickletools.genops(data):
        if step.name == "BYTEARRAY8" or (step.name.endswith("PUT") and int(str(value)) > MOST_KEPT):
            raise ValueError(f"its step {step.name} asks for too much memory")


def _columns(frame: Any) -> Table:
    manager = frame.state.get("_mgr", frame.state.get("_data"))
    if manager.state is None:  # pandas 1.3 and later
        blocks, axes = manager.given
    else:
        parts = manager.state[3]["0.14.1"]
        blocks, axes = parts["blocks"], parts["axes"]
    names = np.asarray(axes[0]["data"])
    table: Table = {}
    for block in blocks:
        values = np.asarray(block["values"])
        if values.ndim != 2:
            raise ValueError("a block of columns is no matrix")
        table.update(zip(map(str, names[block["mgr_locs"]]), values, strict=True))
    if len(table) != len(names) or len({len(column) for column in table.values()}) != 1:
        raise ValueError("its columns do not fit their names")
    if len(next(iter(table.values()))) > MOST_ROWS:
        raise ValueError(f"it has more than {MOST_ROWS} rows")
    return table
