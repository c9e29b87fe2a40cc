# SPDX-License-Identifier: Apache-2.0
"""The package `pyarrow`, an extra, and columns of its tables as arrays of the type that a data set gives them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nurec_lite.capture.files import short
from nurec_lite.capture.packages import check_package
from nurec_lite.capture.types import CaptureError

Table = dict[str, NDArray[Any]]  # columns by name, all of one length
Kinds = dict[
    str, type
]  # of a column, by its name: int, float, str, object (int or str), or list (of numbers, equally many in each row)
REMEDY = "copy the file again from its source"
_KINDS = {
    int: "iu",
    float: "iuf",
    str: "O",
    object: "iuO",
    list: "iuf",
}  # kinds of numpy's types that a column may have
_WANTED = {
    int: "whole numbers",
    float: "numbers",
    str: "texts",
    object: "names or their numbers",
    list: "lists of numbers of one length",
}


def check_installed(path: Path) -> None:
    check_package("pyarrow", "pyarrow", path)


@contextmanager
def damaged(path: Path, remedy: str = REMEDY) -> Iterator[None]:
    """Turns any error of the library about a damaged file into one sentence."""
    try:
        yield
    except CaptureError:
        raise
    except OSError as error:
        reason = error.strerror or short(str(error).splitlines()[0] if str(error) else "damaged")
        raise CaptureError(f"{path} cannot be read ({reason}); {remedy}") from error
    except Exception as error:  # damaged bytes can raise any error
        reason = short(str(error).splitlines()[0]) if str(error) else type(error).__name__
        raise CaptureError(f"{path} cannot be read ({reason}); {remedy}") from error


def check_columns(path: Path, there: list[str], asked: Kinds) -> None:
    missing = [name for name in asked if there.count(name) != 1]
    if missing:
        raise CaptureError(f"{path} has no column '{missing[0]}'; {REMEDY}")


def column(
    values: Any,  # pyarrow.ChunkedArray
    path: Path,  # for messages
    name: str,
    kind: type,
) -> NDArray[Any]:  # [rows] int64, float64 or str; [rows, m] float64 of a list
    """Values of a column without gaps; numbers are finite."""
    if values.null_count:
        raise CaptureError(f"{path} has rows without '{name}'; {REMEDY}")
    found = _plain(values) if kind is not list else _matrix(values)
    if found is None or found.dtype.kind not in _KINDS[kind] or (kind is str and not _texts(values)):
        wanted = _WANTED[kind]
        raise CaptureError(f"{path}: '{name}' holds {short(values.type)}, but must hold {wanted}; {REMEDY}")
    if kind in (float, list):
        found = found.astype(np.float64)
        if not np.isfinite(found).all():
            raise CaptureError(f"{path}: '{name}' is not finite everywhere; {REMEDY}")
    return found.astype(np.int64) if found.dtype.kind in "iu" else found


def _plain(values: Any) -> NDArray[Any] | None:
    kind = values.type
    plain = _number(kind) or _texts(values)
    return np.asarray(values.to_numpy()) if plain else None


def _matrix(values: Any) -> NDArray[Any] | None:  # [rows, m]; None: rows are no lists of one length
    import pyarrow.compute as compute
    import pyarrow.types as of

    kind = values.type
    if not (of.is_list(kind) or of.is_fixed_size_list(kind) or of.is_large_list(kind)):
        return None
    lengths = compute.list_value_length(values).to_numpy()
    inner = compute.list_flatten(values)
    if not len(lengths) or (lengths != lengths[0]).any() or inner.null_count or not _number(inner.type):
        return None
    return np.asarray(inner.to_numpy()).reshape(len(lengths), int(lengths[0]))


def _number(kind: Any) -> bool:
    import pyarrow.types as of

    return bool(of.is_integer(kind) or of.is_floating(kind))


def _texts(values: Any) -> bool:
    import pyarrow.types as of

    return bool(of.is_string(values.type) or of.is_large_string(values.type))


def check_once(names: Sequence[object], path: Path) -> None:
    """Refuses a table that has two rows of one sensor."""
    again = next((name for name, count in Counter(names).items() if count > 1), None)
    if again is not None:
        raise CaptureError(f"{path} has two rows of {short(again).strip('()')}; {REMEDY}")
