# SPDX-License-Identifier: Apache-2.0
"""The operator mask_absent_actors: opacity 0 for actors that are absent at a time."""

from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.ranges import BACKWARD, span


def register() -> None:
    torch.library.register_autograd("nurec_lite::mask_absent_actors", _present_gradients, setup_context=_keep_present)


def _keep_present(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    _, times, node, ctx.still, first, last = inputs
    ctx.set_materialize_grads(False)  # deferred gradients (nurec_lite/native/deferred_backward.py) do not arrive here
    ctx.save_for_backward(*times, node, first, last)


def _present_gradients(ctx: Any, d_present: list[Tensor | None]) -> tuple[Any, ...]:
    """The operator is linear, and each value depends on its own alone: gradients go the same way."""
    *times, node, first, last = ctx.saved_tensors
    asked = [q for q, d in enumerate(d_present) if d is not None]
    given = [d.contiguous() for d in d_present if d is not None]
    with span("mask_absent_actors", within=BACKWARD):
        own = torch.ops.nurec_lite.mask_absent_actors(given, [times[q] for q in asked], node, ctx.still, first, last)
    found = dict(zip(asked, own, strict=True))
    return [found.get(q) for q in range(len(times))], [None] * len(times), None, None, None, None
