# SPDX-License-Identifier: Apache-2.0
"""Checks of single values of a checkpoint. Each takes a value and the place where it stands, and raises SchemaError."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.names import name_flaw
from nurec_lite.base.texts import excerpt

LARGEST = 1e6  # of a parameter, before its activation


class SchemaError(ValueError):
    """A flaw of a checkpoint, and its place."""


def demand(holds: bool, at: str, wanted: str) -> None:
    if not holds:
        raise SchemaError(f"{at} must be {wanted}")


def check_keys(value: Any, at: str, known: tuple[Any, ...]) -> None:
    named = ", ".join(map(str, known))
    demand(type(value) is dict and list(value) == list(known), at, f"a record of {named[:100]}")


def check_number(value: Any, at: str, low: float, high: float) -> None:
    holds = type(value) in (int, float) and low <= value <= high  # NaN fails as well
    demand(holds, at, f"a number from {low:g} to {high:g}")


def check_names(
    value: Any, at: str, count: int | None = None, flaw: Callable[[object], str | None] = name_flaw
) -> None:
    demand(type(value) is tuple and count in (None, len(value)), at, f"{'' if count is None else f'{count} '}names")
    for one in value:
        wrong = flaw(one)
        demand(wrong is None, at, f"names, but {excerpt(one)} {wrong}")


def check_tensor(
    value: Any,
    at: str,
    shape: tuple[int | None, ...],  # None: any length
    dtype: torch.dtype = torch.float32,
    low: float = -LARGEST,
    high: float = LARGEST,
) -> None:
    fits = type(value) is Tensor and value.dtype == dtype and value.dim() == len(shape)
    fits = fits and all(n in (None, m) for n, m in zip(shape, value.shape, strict=True))
    wanted = ", ".join("any" if n is None else str(n) for n in shape)
    demand(fits, at, f"a tensor [{wanted}] of {str(dtype).removeprefix('torch.')}")
    if dtype != torch.uint8:
        numbers = value.float() if dtype == torch.bfloat16 else value  # which would round the bounds, up to infinity
        demand(bool(((numbers >= low) & (numbers <= high)).all()), at, f"numbers from {low:g} to {high:g}")
