# SPDX-License-Identifier: Apache-2.0
"""Fields of records as programs give them: numbers of numpy, arrays and lists become numbers and tensors, and other values a sentence."""

import operator
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nurec_lite.base.errors import UserError
from nurec_lite.base.texts import excerpt


def convert_fields(
    record: Any,  # a frozen dataclass, in its __post_init__
    called: str,  # for the message
) -> None:
    """Gives each field of a type below a value of that type; UserError where the value given means none."""
    for name, kind in _typed_fields(type(record)):  # type: ignore[arg-type]
        value: Any = getattr(record, name)
        kept = (torch.float64,) if name.startswith("T_") else _KEPT  # poses
        if type(value) is not kind or (isinstance(value, Tensor) and value.dtype not in kept):
            found = converted(kind, value, f"{called}: {name}")
            object.__setattr__(record, name, found.double() if kept == (torch.float64,) else found)


def converted(
    kind: type,
    value: object,
    what: str,  # for the message
) -> Any:  # of that type
    noun, convert = _CONVERSIONS[kind]
    try:
        return convert(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise UserError(f"{what} is {excerpt(value)}, but must be {noun}") from None


@lru_cache(maxsize=32)
def _typed_fields(record: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((f.name, f.type) for f in fields(record) if f.type in _CONVERSIONS)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(value: object) -> float:
    if isinstance(value, int):
        return value
    if isinstance(value, str | bytes):
        raise TypeError
    return float(value)  # type: ignore[arg-type]


def _numbers(value: Iterable[object]) -> tuple[float, ...]:
    return tuple(_number(number) for number in value)


def _truth(value: object) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError
    return bool(value)


def _tensor(value: object) -> Tensor:  # float64 unless it holds float32
    if isinstance(value, Tensor):
        if value.is_complex() or value.dtype == torch.bool:
            raise TypeError
        return value if value.dtype in _KEPT else value.double()
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise TypeError
    return torch.from_numpy(array.astype(np.float64))


def mask_of(
    value: object,
    what: str,  # for the message
) -> Tensor:  # bool, or a tensor as it is: `check_capture` names another one's type
    if isinstance(value, Tensor):
        return value
    array = np.asarray(value)
    if array.dtype != np.bool_:
        raise UserError(f"{what} is {excerpt(value)}, but must be an array or a tensor of true and false")
    return torch.from_numpy(array.copy())


_KEPT = (torch.float32, torch.float64)
_CONVERSIONS: dict[Any, tuple[str, Callable[[Any], Any]]] = {
    str: ("a text", _text),
    int: ("a whole number", operator.index),
    float: ("a number", _number),
    bool: ("true or false", _truth),
    tuple[float, ...]: ("a list of numbers", _numbers),
    Tensor: ("an array or a tensor of numbers", _tensor),
}
