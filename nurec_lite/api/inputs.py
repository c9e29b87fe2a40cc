# SPDX-License-Identifier: Apache-2.0
"""Poses and times as callers give them: arrays, tensors or lists, one or a batch. A wrong one raises an error with one sentence."""

from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.texts import type_of
from nurec_lite.capture.check import FARTHEST

_RIGID = 1e-3  # largest error of a rotation's rows in length and angle


def poses_from(
    given: Any,  # [4, 4] or [B, 4, 4]
    name: str,  # of the argument
) -> Tensor:  # [4, 4] or [B, 4, 4] as it is given, float64 on the host
    """Returns poses as they are given; ConfigError unless all are rigid motions."""
    pose = _numbers(given, name)
    if pose.ndim not in (2, 3) or pose.shape[-2:] != (4, 4):
        raise ConfigError(f"{name} has shape {list(pose.shape)}, but must be [4, 4], or [B, 4, 4] for a batch")
    if not torch.equal(pose[..., 3, :], pose.new_tensor([0.0, 0, 0, 1]).expand(pose.shape[:-1])):
        raise ConfigError(f"{name} must end with the row 0, 0, 0, 1; transpose it if that is its last column")
    if bool((pose[..., :3, 3].abs() > FARTHEST).any()):
        raise ConfigError(
            f"{name} lies farther than {FARTHEST:g} m from the origin; give metres in the world of the capture"
        )
    R = pose[..., :3, :3]
    off = (R @ R.transpose(-1, -2) - torch.eye(3, dtype=torch.float64)).abs().max() if len(pose) else pose.new_zeros(())
    if float(off) > _RIGID or bool((torch.linalg.det(R) < 0).any()):
        raise ConfigError(f"{name} is no rigid motion; its upper left 3x3 part must be a rotation")
    return pose


def times_from(
    given: Any,  # [] or [B]
    span: tuple[float, float],  # seconds that the drive lasts from and to
    edge: float,  # seconds that a time may lie outside
) -> Tensor:  # [] or [B] as it is given, float64 on the host
    """Returns times as they are given; ConfigError for a time outside of the drive."""
    whole = f"the drive spans {span[0]:z.3f} to {span[1]:z.3f} s"
    if given is None:
        raise ConfigError(f"time is missing; {whole}")
    times = _numbers(given, "time")
    if times.ndim > 1:
        raise ConfigError(f"time has shape {list(times.shape)}, but must be a number of seconds, or [B] for a batch")
    outside = (times < span[0] - edge) | (times > span[1] + edge)
    if bool(outside.any()):
        raise ConfigError(f"time is {float(times[outside].reshape(-1)[0]):g} s, but {whole}; choose times within it")
    return times


def batch_of(
    **given: Tensor | None,  # by the names of arguments; poses and times as above
) -> int | None:
    """The length of the batch; None: a single view. ConfigError where lengths differ."""
    sizes = {name: len(v) for name, v in given.items() if v is not None and v.ndim in (1, 3)}
    if len(set(sizes.values())) > 1:
        raise ConfigError(f"{' and '.join(f'{n} has {b}' for n, b in sizes.items())} entries, but batches must agree")
    if 0 in sizes.values():
        raise ConfigError(f"{next(iter(sizes))} is empty; give at least one")
    return next(iter(sizes.values()), None)


def seconds_from(given: Any, name: str) -> float | None:
    """Returns seconds, None for None; ConfigError unless the value is a duration up to 1000 s."""
    return None if given is None else number_from(given, name, 0.0, 1000.0)


def number_from(
    given: Any,
    name: str,  # of the argument
    low: float = -1e6,
    high: float = 1e6,
) -> float:
    """Returns a number; ConfigError unless the value is one within these limits."""
    (number,) = vector_from(given, name, (), low, high)
    return number


def vector_from(
    given: Any,
    name: str,  # of the argument
    shape: tuple[int, ...],
    low: float = -1e6,
    high: float = 1e6,
) -> list[float]:
    """Returns numbers of that shape; ConfigError for another shape, or a number outside of the bounds."""
    numbers = _numbers(given, name)
    if numbers.shape != shape or not bool(((numbers >= low) & (numbers <= high)).all()):
        what = f"{shape[0]} numbers" if shape else "a number"
        raise ConfigError(f"{name} is {given!s:.80}, but must be {what} between {low:g} and {high:g}")
    found: list[float] = numbers.reshape(-1).tolist()
    return found


def file_from(
    given: Any,
    name: str,  # of the argument
) -> Path:
    """Returns the path of a file or folder; ConfigError unless the value is one."""
    if not isinstance(given, str | PathLike) or not isinstance(fspath(given), str):
        raise ConfigError(f"{name} is {type_of(given)}, but must be a path")
    if not fspath(given):
        raise ConfigError(f"{name} is empty, but must be a path")
    return Path(given).expanduser()


def _numbers(given: Any, name: str) -> Tensor:
    try:
        numbers = _tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{name} must hold numbers, as an array, a tensor or a list ({error!s:.100})") from None
    if not bool(numbers.isfinite().all()):
        raise ConfigError(f"{name} holds a number that is not finite")
    return numbers


def _tensor(given: Any) -> Tensor:  # float64 on the host
    if isinstance(given, Tensor):
        if given.is_complex() or given.layout != torch.strided:
            raise TypeError("a dense tensor of real numbers")
        return given.detach().to("cpu", torch.float64)
    values = np.asarray(given)
    if values.dtype.kind not in "fiub":  # floating point, integers, bool
        raise TypeError(f"not {values.dtype}")
    return torch.from_numpy(np.array(values, np.float64))
