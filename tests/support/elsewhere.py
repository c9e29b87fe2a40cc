# SPDX-License-Identifier: Apache-2.0
"""A device that is not the CPU, for machines that have none: tensors that were made or copied there do not go with the CPU's."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("meta")  # the one device that every build of torch knows and nobody computes on


class Elsewhere(torch.Tensor):
    """Says that it lies on DEVICE; `held` has its numbers."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> "Elsewhere":
        return torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            dtype=held.dtype,
            device=DEVICE,
            storage_offset=held.storage_offset(),
        )

    def __init__(self, held: torch.Tensor) -> None:
        self.held = held

    def tolist(self) -> Any:  # torch has none for subclasses
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})


class Other(TorchDispatchMode):
    """Makes DEVICE work in a block, for this thread alone. AssertionError where tensors of both places come together."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})


def _computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, torch.Tensor)]
    there = [tensor for tensor in tensors if isinstance(tensor, Elsewhere)]
    here = [tensor for tensor in tensors if not isinstance(tensor, Elsewhere) and tensor.dim() > 0]
    copies = func in (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default)
    assert copies or not (there and here), f"{func} of tensors of both devices"
    result = func(*tree_map(_held, args), **tree_map(_held, kwargs))
    asked = kwargs.get("device")
    if not (there if asked is None else torch.device(asked) == DEVICE):
        return result
    own = {id(tensor.held): tensor for tensor in there}  # tensors that were changed in place
    return tree_map(lambda v: own.get(id(v), Elsewhere(v)) if isinstance(v, torch.Tensor) else v, result)


def _held(value: Any) -> Any:
    if isinstance(value, Elsewhere):
        return value.held
    return torch.device("cpu") if isinstance(value, torch.device) and value == DEVICE else value
