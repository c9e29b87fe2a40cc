# SPDX-License-Identifier: Apache-2.0
"""The functions of kernels/math over rows of numbers in float64: tests/native/math_rows, compiled at first use and kept."""

import ctypes
import hashlib
import math
import os
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from nurec_lite.base.paths import resource
from nurec_lite.native import build

F64 = torch.float64
FLAGS = "-O2 -std=c++17 -shared -fPIC"
ROWS = Path(__file__).parents[1] / "native/math_rows"


@cache
def library() -> ctypes.CDLL:
    compiler, digest = build.find_tools("").compiler, hashlib.sha256(FLAGS.encode())
    for path in sorted([*resource("kernels/math").iterdir(), *ROWS.iterdir()]):
        digest.update(path.read_bytes())
    digest.update(subprocess.run([*compiler, "--version"], capture_output=True, check=True).stdout)
    target = build.cache_folder() / f"math_{digest.hexdigest()[:16]}.so"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_suffix(f".{os.getpid()}")
        source = str(ROWS / "math.cpp")
        subprocess.run([*compiler, *FLAGS.split(), source, "-o", str(temporary)], check=True)
        temporary.replace(target)
    return ctypes.CDLL(str(target))


def call(
    name: str,
    *arguments: Tensor
    | float,  # [n, ...] float64, side by side in the order of the C++ function's; numbers: for all rows
) -> Tensor:  # [n, numbers of the result]
    n = max(len(a) for a in arguments if isinstance(a, Tensor))
    rows = [torch.as_tensor(a, dtype=F64).reshape(-1, 1) if not isinstance(a, Tensor) else a for a in arguments]
    row = torch.cat([a.detach().reshape(len(a), -1).expand(n, -1) for a in rows], dim=1).contiguous()
    width_in, width_out = (ctypes.c_int64 * 2).in_dll(library(), f"widths_{name}")
    assert row.shape[1] == width_in and row.dtype == F64, f"{name} takes {width_in} numbers, not {row.shape[1]}"
    out = torch.full((n, width_out), math.nan, dtype=F64)
    function = library()[f"math_{name}"]
    function(ctypes.c_int64(n), ctypes.c_void_p(row.data_ptr()), ctypes.c_void_p(out.data_ptr()))
    return out


def close(
    found: Tensor,  # [n, ...]
    expected: Tensor,
    tolerance: float | Tensor = 1e-12,  # of the largest number of the row (or of 1, if that is more)
) -> None:
    found, expected = found.flatten(1), expected.detach().reshape(found.shape[0], -1)
    assert found.shape == expected.shape
    limit = tolerance * expected.abs().amax(1).clamp(min=1)
    worst = (found - expected).abs().amax(1)
    bad = ~(worst <= limit)  # NaN is bad, too
    assert not bad.any(), f"{int(bad.sum())} rows differ, row {int(bad.nonzero()[0])} by {worst[bad][0]:.3g}"


def autograd(
    reference: Callable[..., Tensor],
    inputs: list[Tensor],
    d_out: Tensor,  # [n, ...] dL/d(result)
) -> Tensor:  # [n, numbers of all inputs]
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    grads = torch.autograd.grad(reference(*leaves).flatten(1), leaves, d_out.flatten(1))
    return torch.cat([g.flatten(1) for g in grads], dim=1)


def differences(
    forward: Callable[..., Tensor],  # of rows
    inputs: list[Tensor],
    d_out: Tensor,  # [n, numbers of the result]
    step: float = 1e-5,
) -> Tensor:  # [n, numbers of all inputs] by central differences
    columns = []
    for k, x in enumerate(inputs):
        flat = x.flatten(1)
        for j in range(flat.shape[1]):
            shift = torch.zeros_like(flat)
            shift[:, j] = step
            up, down = (
                forward(*inputs[:k], (flat + sign * shift).view_as(x), *inputs[k + 1 :]).flatten(1) for sign in (1, -1)
            )
            columns.append(((up - down) * d_out.flatten(1)).sum(1) / (2 * step))
    return torch.stack(columns, dim=1)
