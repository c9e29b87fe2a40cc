# SPDX-License-Identifier: Apache-2.0
"""Whether work of the GPU can be recorded as a graph: its waits, reads on the host, copies of memory that the host may change, and
uses of memory that is not the recording's."""

import sys
import traceback
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

HOST_READS = (  # the host must know their result, or its size
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "is_nonzero",
    "equal",
    "bincount",
    "unique_consecutive",
    "_unique2",
)
_COPIES = ("_to_copy", "copy_")
_OWN = "nurec_lite"


class Findings(TorchDispatchMode):
    """Sees every operation on tensors, those of the backward pass as well."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.kind = device.type
        self.found: dict[str, None] = {}  # sentences, each once

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Returns False: inspected code is never compiled, and telling torch's compiler so would import it, which takes
        seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        what = _unsafe(func.overloadpacket.__name__, args, out, self.kind)
        if what is not None:
            self.found.setdefault(f"{what} ({func.overloadpacket.__name__}, {_place()})")
        return out


def _unsafe(
    name: str,
    args: tuple,
    out: Any,
    kind: str,  # of the device that does the work
) -> str | None:
    """The reason that forbids an operation, in words."""
    if name in HOST_READS and any(_lies_on(value, kind) for value in args):
        return "the host reads a number and waits for it"
    if name == "index" and any(_lies_on(i, kind) and i.dtype is torch.bool for i in args[1]):
        return "the host reads how many a mask holds"
    if name == "_pin_memory":
        return "page-locked memory is taken"
    if name in _COPIES:
        return _unsafe_copy(*((args[1], args[0]) if name == "copy_" else (args[0], out)))
    return None


def _unsafe_copy(source: Tensor, target: Tensor) -> str | None:
    if source.device == target.device or not source.numel():
        return None
    if source.is_cuda:
        return "the host gets numbers of the device"
    return "a copy from the host would be that of the recording for ever"


def _lies_on(value: Any, kind: str) -> bool:
    return isinstance(value, Tensor) and value.device.type == kind


def _place() -> str:
    """The innermost line of the package; operations of the backward pass have none."""
    frames = [
        f
        for f in traceback.extract_stack()
        if f"/{_OWN}/" in f.filename and not f.filename.endswith("capture_safety.py")
    ]
    return f"{frames[-1].filename.split(f'/{_OWN}/')[-1]}:{frames[-1].lineno}" if frames else "in the backward pass"


@contextmanager
def unsafe_operations(device: torch.device) -> Iterator[list[str]]:
    """Yields sentences about unsafe work in the block; the list is filled when the block ends. Our own operators are
    not inspected: those that wait end a recording with an error."""
    unsafe: list[str] = []
    with _uncompiled(), Findings(device) as mode:  # compiled functions would not be seen
        yield unsafe
    unsafe.extend(mode.found)


def _uncompiled() -> AbstractContextManager[Any]:
    """Block without torch's compiler. Before its import, which takes seconds, nothing is compiled, and the block does nothing."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


class CaptureSafety:
    """Inspects work before it is recorded. Work is safe if each of its parts was in safe work before. If the first work of some parts
    makes things once, it does not count: the second decides."""

    def __init__(self) -> None:
        self._clean: set[Hashable] = set()  # parts that can be recorded
        self._doubted: set[tuple[Hashable, ...]] = set()  # parts of a first work that was unsafe

    def is_safe(self, *parts: Hashable) -> bool:
        return self._clean.issuperset(parts)

    def judge(
        self,
        parts: tuple[Hashable, ...],
        unsafe: list[str],  # in a work of them
    ) -> str | None:  # why none of it can be recorded, in words; None: it can, or the next will tell
        if unsafe and parts in self._doubted:
            return "; ".join(unsafe)
        if unsafe:
            self._doubted.add(parts)
        else:
            self._clean.update(parts)
        return None
