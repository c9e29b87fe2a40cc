# SPDX-License-Identifier: Apache-2.0
"""Values come out of bytes as they went in."""

import pickle

import pytest
import torch

from nurec_lite.base.pickled import dumps


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (31, 3)])
def test_tensors_keep_type_shape_and_values(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    value = torch.rand(shape, generator=torch.Generator().manual_seed(0)).mul(3).to(dtype)
    for given in (value, value.mT if value.dim() > 1 else value):
        found = pickle.loads(dumps({"a": given}))["a"]
        assert torch.equal(found, given) and found.dtype is dtype and found.shape == given.shape
        found.zero_()  # it may be written
