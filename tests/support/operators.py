# SPDX-License-Identifier: Apache-2.0
"""The operators torch.ops.nurec_lite.* called by the names of single tensors, also of those in lists."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.library import opcheck

from nurec_lite.native.operators.footprints import FootprintArgs
from nurec_lite.native.operators.move_actors import ActorArrays, MovedGrads
from nurec_lite.native.operators.shared import GaussianArrays, Grid, Lists, Outputs, RayArrays
from nurec_lite.native.operators.tile import Bounds
from nurec_lite.native.operators.view_colour import PlacementArrays

Arguments = dict[str, Any]  # by the names of tensors, and of an operator's other arguments
_GROUPS: dict[str, type[NamedTuple] | None] = {
    "gaussians": GaussianArrays,
    "rays": RayArrays,
    "lists": Lists,
    "grid": Grid,
    "projection": Bounds,
    "outputs": Outputs,
    "actors": ActorArrays,
    "d_moved": MovedGrads,
    "seen": FootprintArgs,
    "placements": PlacementArrays,
    "bands": None,  # of a lidar's warp tiles; without them
}


def operator(name: str) -> Any:
    return getattr(torch.ops.nurec_lite, name).default


def fields_of(argument: Any) -> tuple[str, ...]:
    """Names of the tensors of an argument of a schema."""
    if str(argument.type) != "List[Tensor]":
        return (argument.name,)
    group = _GROUPS[argument.name]
    return group._fields if group else ()


def names_of(name: str) -> list[str]:
    return [field for argument in operator(name)._schema.arguments for field in fields_of(argument)]


def packed(name: str, args: Arguments) -> tuple[Any, ...]:
    """Arguments in the form that the operator takes; those with a default may be left out."""
    found: list[Any] = []
    for argument in operator(name)._schema.arguments:
        fallback = {argument.name: argument.default_value} if argument.has_default_value() else {}
        values = [{**fallback, **args}[field] for field in fields_of(argument)]
        found.append(values if str(argument.type) == "List[Tensor]" else values[0])
    return tuple(found)


def check_schema(op: Any, args: tuple[Any, ...]) -> None:
    """Runs torch's checks of an operator: it changes and aliases exactly the tensors of its schema, and its gradient is registered."""
    opcheck(op, args, test_utils=("test_schema", "test_autograd_registration"))


def call(name: str, args: Arguments) -> list[Tensor]:
    """All results, those of lists one by one."""
    found = operator(name)(*packed(name, args))
    each = found if isinstance(found, tuple) else (found,)
    return [t for one in each for t in (one if isinstance(one, list) else [one])]
