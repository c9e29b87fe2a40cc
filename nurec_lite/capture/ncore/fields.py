# SPDX-License-Identifier: Apache-2.0
"""Values of NCore's descriptions, or a CaptureError with the remedy."""

from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.files import short
from nurec_lite.capture.ncore.store import REMEDY
from nurec_lite.capture.types import CaptureError

Value = TypeVar("Value")
LIMIT = 1e12  # of any number
LATEST_US = 1 << 62


def field(known: dict[str, Any], key: str, kind: type[Value], where: str) -> Value:
    """Returns a value of one type: dict, list, str or int."""
    value = known.get(key)
    if type(value) is not kind:
        raise CaptureError(f"{where}: '{short(key)}' is {_shown(value)}, but must be {_KINDS[kind]}; {REMEDY}")
    return value


def stamp(known: dict[str, Any], key: str, where: str) -> int:  # microseconds
    value = field(known, key, int, where)
    if not 0 <= value < LATEST_US:
        raise CaptureError(f"{where}: '{short(key)}' is {_shown(value)}, but must be microseconds; {REMEDY}")
    return value


def numbers(known: dict[str, Any], key: str, shape: tuple[int, ...], where: str) -> Tensor:
    """Returns numbers of this shape as float64; -1 in `shape` stands for any length. CaptureError if they are no such numbers."""
    try:
        values = np.array(known.get(key), dtype=object)
        plain = values.ndim == len(shape) and all(type(v) in (int, float) for v in values.flat)
        found = torch.from_numpy(values.astype(np.float64)) if plain else torch.zeros(())
    except (ValueError, OverflowError):  # lists of unequal lengths; a number beyond all floats
        found = torch.zeros(())
    fits = found.dim() == len(shape) and all(n in (-1, m) for n, m in zip(shape, found.shape, strict=True))
    if not fits or not bool((found.abs() < LIMIT).all()):
        sizes = " x ".join("any" if n < 0 else str(n) for n in shape)
        raise CaptureError(f"{where}: '{short(key)}' must be {sizes} finite numbers within +-{LIMIT:g}; {REMEDY}")
    return found


_KINDS = {
    dict: "a record", list: "a list", str: "a text", int: "a whole number",
}  # fmt: skip


def _shown(value: Any) -> str:
    return (
        "missing"
        if value is None
        else f"'{short(value)}'"
        if isinstance(value, (str, int, float))
        else "of another kind"
    )
