# SPDX-License-Identifier: Apache-2.0
"""Principal axes are the eigenvectors of the neighbours' scatter."""

import pytest
import torch

from nurec_lite.scene.disks import principal_axes


@pytest.mark.parametrize(
    "extent", [(1.0, 1.0, 1.0), (1.0, 0.1, 1e-6), (3.0, 0, 0), (5.0, 5, 0), (0, 0, 0), (1e-9, 1, 1e-9)]
)
def test_axes_are_orthonormal_and_diagonalise(extent: tuple[float, float, float]) -> None:
    generator = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(33, 3, 3, generator=generator, dtype=torch.float64)).Q
    offsets = torch.randn(33, 8, 3, generator=generator, dtype=torch.float64) * torch.tensor(extent) @ turn
    axes = principal_axes(offsets)
    eye = torch.eye(3, dtype=torch.float64).expand(33, 3, 3)
    torch.testing.assert_close(axes.transpose(1, 2) @ axes, eye, rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.linalg.det(axes), torch.ones(33, dtype=torch.float64))
    scatter = offsets.transpose(1, 2) @ offsets
    found = axes.transpose(1, 2) @ scatter @ axes
    expected = torch.diag_embed(torch.linalg.eigvalsh(scatter))  # ascending, as the axes
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12 * float(scatter.abs().max() + 1e-300))


def test_no_points_have_no_axes() -> None:
    assert principal_axes(torch.zeros(0, 8, 3, dtype=torch.float64)).shape == (0, 3, 3)
