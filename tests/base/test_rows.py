# SPDX-License-Identifier: Apache-2.0
"""Rows by their numbers, of any shape, type and place."""

import torch

from nurec_lite.base.rows import rows_of


def test_rows_of_four_numbers_are_rows() -> None:
    values, rows = torch.randn(9, 8), torch.tensor([8, 0, 0, 3])
    for own in (
        values[:, :4].contiguous(),
        values[:, 4:],
        values.view(-1)[2:70].view(17, 4),
        values[:0, :4],
        values.half()[:, :4],
    ):
        index = rows[: 4 * bool(len(own))]
        assert torch.equal(rows_of(own, index), own[index])


def test_rows_of_each() -> None:
    values, rows = torch.randn(3, 5, 4), torch.tensor([4, 0, 0, 3, 1, 4])
    for own in (
        values,
        values.double(),
        values[..., 0].contiguous(),
        values[:, :, 1:],
        values[:0],
        values.transpose(0, 1),
    ):
        some = rows % own.shape[1]
        found = rows_of(own, some, dim=1)
        assert torch.equal(found, own[:, some]) and found.shape == (len(own), 6, *own.shape[2:])
    none = torch.zeros(0, dtype=torch.int64)
    assert rows_of(values[:, :0], none, dim=1).shape == (3, 0, 4)
