# SPDX-License-Identifier: Apache-2.0
"""The radix sort of kernels/common by way of its C++ symbol, since no operator hands it out."""

import ctypes
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import Tensor

from nurec_lite.native import ops

NAME = "_ZN5nurec4cuda10sort_pairsERKNS0_5PairsEiRKNS0_5QueueE"  # sort_pairs(Pairs const&, int, Queue const&)
UNWANTED = -1  # as int32
Allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Pairs(ctypes.Structure):
    """Struct of kernels/common/sort.h."""

    _fields_ = [
        ("n", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("keys", "values", "sorted_keys", "sorted", "there", "kept", "wide")),
        ("lowest", ctypes.c_int),
        ("blocks", ctypes.c_void_p),
    ]


class Queue(ctypes.Structure):
    """Struct of kernels/common/device.h."""

    _fields_ = [("stream", ctypes.c_void_p), ("allocate", Allocate), ("owner", ctypes.c_void_p)]


@dataclass
class Sorted:
    values: Tensor  # [n] int32
    kept: Tensor | None = None  # [1] int64, pairs that are not UNWANTED; None: none is
    held: list[Tensor] = field(default_factory=list)  # memory that the sort asked for, which a graph goes on using

    def allocate(self, _: object, size: int) -> int:
        self.held.append(torch.empty(max(size, 1), dtype=torch.uint8, device=self.values.device))
        return self.held[-1].data_ptr()


@cache
def library() -> ctypes.CDLL:
    return ctypes.CDLL(str(ops.library(ops._architecture())))


def is_there() -> bool:
    """Whether the library has the sort; one that was compiled for a CPU does not."""
    return hasattr(library(), NAME)


def sort(
    keys: Tensor,  # [n] int32, taken for unsigned
    bits: int,  # number of lowest bits that are sorted
    values: Tensor | None = None,  # [n] int32; None: the numbers from 0 on
    choose: bool = False,  # drop UNWANTED keys
) -> Sorted:
    """Queues it on the current stream."""
    out = Sorted(torch.empty_like(keys), torch.empty(1, dtype=torch.int64, device=keys.device) if choose else None)
    addresses = [None if t is None else t.data_ptr() for t in (keys, values, None, out.values, None, out.kept)]
    stream = torch.cuda.current_stream(keys.device).cuda_stream if keys.is_cuda else None
    queue = Queue(stream, Allocate(out.allocate), None)
    library()[NAME](ctypes.byref(Pairs(len(keys), *addresses)), bits, ctypes.byref(queue))
    return out
