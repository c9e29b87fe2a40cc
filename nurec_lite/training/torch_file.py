# SPDX-License-Identifier: Apache-2.0
"""Reads files of torch.save from any source: plain values and dense tensors, each as large as the bytes that stand for it.

torch.load(weights_only=True) executes nothing, but believes a file's sizes: a storage that claims more than its record
is read beyond its end, strides of zero make gigabytes of four bytes, lists that hold one another twice take forever to walk.
Here a file is a tree (only names, numbers and tuples of these are referred to twice), and nothing in it is larger than the file.
"""

import math
import pickletools
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.archives import opened_archive

MOST_OPERATIONS = 300_000  # a checkpoint has 3 000, and 50 for each of a few hundred rows of history
LARGEST_PICKLE = 1 << 24  # bytes
DTYPES = {
    "torch FloatStorage": torch.float32,
    "torch DoubleStorage": torch.float64,
    "torch LongStorage": torch.int64,
    "torch ByteStorage": torch.uint8,
    "torch BFloat16Storage": torch.bfloat16,
}
# the latter holds hooks, and there are none
_REBUILD, _ORDERED = "torch._utils _rebuild_tensor_v2", "collections OrderedDict"
# records of no tensor
_BESIDE = "data.pkl", "byteorder", "version", ".format_version", ".storage_alignment", ".data/serialization_id"
_SCALARS = (str, int, float, bool, type(None))


class TorchFileError(ValueError):
    """The file is not one of torch.save with plain values and dense tensors; the message names the fault."""


@dataclass(frozen=True)
class _Global:
    name: str  # module and name; nothing is imported


@dataclass(frozen=True)
class _Storage:
    name: str  # of its record
    dtype: torch.dtype
    elements: int


def read_torch_file(path: Path) -> Any:
    """Returns tensors on the host. TorchFileError, or an error of zipfile or pickletools, for anything but a whole file."""
    with opened_archive(path) as archive:
        _check_members(archive.infolist(), path.stat().st_size)
        root = next((n.partition("/")[0] for n in archive.namelist() if n.endswith("/data.pkl")), "archive")
        if f"{root}/byteorder" in archive.namelist() and archive.read(f"{root}/byteorder") != b"little":
            raise TorchFileError("its numbers are not little-endian")
        if archive.getinfo(f"{root}/data.pkl").file_size > LARGEST_PICKLE:
            raise TorchFileError("its list of values is too long")
        reader = _Reader(archive, root)
        found = reader.read(archive.read(f"{root}/data.pkl"))
        if reader.unread.keys() - {f"{root}/{name}" for name in _BESIDE}:
            raise TorchFileError("it has records that belong to nothing")
        return found


def _check_members(members: list[zipfile.ZipInfo], size: int) -> None:
    if any(m.compress_type != zipfile.ZIP_STORED or m.compress_size != m.file_size for m in members):
        raise TorchFileError("a record is compressed")
    if sum(m.file_size for m in members) > size or len({m.filename for m in members}) < len(members):
        raise TorchFileError("its records are larger than the file, or two have one name")


class _Reader:
    """The operations of pickle that torch.save uses, on a stack; `marks` are where MARK found it."""

    def __init__(self, archive: zipfile.ZipFile, root: str) -> None:
        self.archive, self.root = archive, root
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.unread = {m.filename: m.file_size for m in archive.infolist()}

    def read(self, data: bytes) -> Any:
        for count, (operation, argument, _) in enumerate(pickletools.genops(data)):
            if operation.name == "STOP":
                return self.stack.pop()
            if count > MOST_OPERATIONS:
                raise TorchFileError("its list of values is too long")
            self._do(operation.name, argument)
        raise TorchFileError("its list of values has no end")

    def _do(self, name: str, argument: Any) -> None:
        match name:
            case "PROTO":
                pass
            case "MARK":
                self.marks.append(len(self.stack))
            case "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = self.stack[-1]
            case "SETITEM" | "SETITEMS":
                items = self._last(2 if name == "SETITEM" else None)
                _fill(self.stack[-1], items)
            case "APPEND" | "APPENDS":
                items = self._last(1 if name == "APPEND" else None)
                _container(self.stack[-1], list).extend(items)
            case _:
                self.stack.append(self._value(name, argument))

    def _value(self, name: str, argument: Any) -> Any:
        match name:
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                return {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[name]
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT" | "BINUNICODE":
                return argument
            case "EMPTY_DICT" | "EMPTY_LIST" | "EMPTY_TUPLE":
                return {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}[name]()
            case "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                return tuple(self._last(int(name[5:]) if name[5:] else None))
            case "BINGET" | "LONG_BINGET":
                return _again(self.memo[argument])
            case "GLOBAL":
                return _Global(argument)
            case "BINPERSID":
                return self._storage(*self.stack.pop())
            case "REDUCE":
                function, arguments = self._last(2)
                return self._made(function, arguments)
        raise TorchFileError(f"it uses {name}, which torch.save does not")

    def _last(self, n: int | None) -> list[Any]:
        """Takes n values off the stack, or all above the last mark."""
        at = self.marks.pop() if n is None else len(self.stack) - n
        if at < 0 or at > len(self.stack):
            raise TorchFileError("its list of values is damaged")
        taken, self.stack[at:] = self.stack[at:], []
        return taken

    def _storage(self, kind: str, dtype: _Global, key: str, place: str, elements: int) -> _Storage:
        return _Storage(f"{self.root}/data/{key}", DTYPES[dtype.name], elements)

    def _made(self, function: Any, arguments: Any) -> Any:
        if function == _Global(_ORDERED) and arguments == ():
            return {}
        if function != _Global(_REBUILD) or len(arguments) < 4:
            raise TorchFileError("something is made in another way than torch.save makes a tensor")
        return self._tensor(*arguments)

    def _tensor(
        self, storage: _Storage, offset: int, size: Any, stride: Any, *rest: Any
    ) -> Tensor:  # rest: requires_grad and hooks, which a reader has no use for
        numbers = [offset, storage.elements, *size, *stride]
        if not all(type(n) is int and n >= 0 for n in numbers):
            raise TorchFileError("a tensor has a size that is no number")
        width = storage.dtype.itemsize
        if storage.elements * width != self.unread.pop(storage.name, None):
            raise TorchFileError("a tensor has another size than its record")
        if offset or math.prod(size) != storage.elements or not dense(size, stride):
            raise TorchFileError("a tensor does not fill its record")
        data = bytearray(self.archive.read(storage.name))
        flat = torch.frombuffer(data, dtype=storage.dtype) if data else torch.empty(0, dtype=storage.dtype)
        return flat.as_strided(size, stride)


def dense(size: Sequence[int], stride: Iterable[int]) -> bool:
    """Whether every element has a place of its own, with none between, in any order of the dimensions. No element fills no place."""
    if 0 in size:
        return True
    places = 1
    for step, n in sorted(zip(stride, size, strict=True)):
        if n != 1 and step != places:
            return False
        places *= n
    return True


def _again(value: Any) -> Any:
    """Objects that a file may refer to twice: a list that holds one list twice, and so on, would be walked without end."""
    inside = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(v, (*_SCALARS, _Global)) for v in inside):
        raise TorchFileError("a list or a tensor is there twice")
    return value


def _container(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TorchFileError("its list of values is damaged")
    return value


def _fill(target: Any, items: list[Any]) -> None:
    keys = items[::2]
    if len(items) % 2 or not all(type(key) in (str, int) for key in keys):
        raise TorchFileError("a key is neither a name nor a number")
    _container(target, dict).update(zip(keys, items[1::2], strict=True))
