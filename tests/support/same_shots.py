# SPDX-License-Identifier: Apache-2.0
"""Whether two ways to feed a step give it the same shots."""

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from nurec_lite.training.shots import Shots


def assert_same(a: Shots, b: Shots) -> None:
    """Asserts that shots are equal: their views, too, and that their sensors are the capture's own objects."""
    assert a.step == b.step
    for x, y in zip((*a.images, *a.sweeps), (*b.images, *b.sweeps), strict=True):
        assert x.index == y.index
    for x, y in zip(records(a), records(b), strict=True):
        assert type(x) is type(y)
        for name in (f.name for f in fields(x)):
            mine, other = getattr(x, name), getattr(y, name)
            if isinstance(mine, Tensor):
                assert mine.dtype == other.dtype and torch.equal(mine, other)
            elif name in ("camera", "lidar"):
                assert mine is other


def records(shots: Shots) -> list[Any]:
    return [*shots.images, *(shot.sweep for shot in shots.sweeps), *shots.views]
