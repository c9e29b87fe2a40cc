# SPDX-License-Identifier: Apache-2.0
"""The operator expose against nurec_lite/scene/scene.py in float64: images, and gradients of image, gains, offsets and vignetting.

Tolerance: an image is a few roundings of 2^-24 beside the gain's exponential; a sum over pixels is compared relative to the sum of the
sizes of its terms, since terms of either sign may cancel.
"""

from collections.abc import Callable

import pytest
import torch
from operators import check_schema
from parity import DEVICES
from torch import Tensor

from nurec_lite.native import ops
from nurec_lite.native.operators.expose import expose
from nurec_lite.scene.scene import exposed_by

IMAGES = [(1, 1), (1, 31), (33, 7), (9, 130), (21, 257)]  # rows and columns, also more than a block has


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


def inputs(image: tuple[int, int], vignetting: bool = True) -> list[Tensor | None]:
    """An image, log gains, offsets, vignetting."""
    generator = torch.Generator().manual_seed(0)
    log_gain, offset, fall = (0.3 * torch.randn(3, generator=generator) for _ in range(3))
    return [torch.rand(*image, 3, generator=generator) * 1.6 - 0.3, log_gain, offset, fall if vignetting else None]


def slope(image: tuple[int, int]) -> Tensor:
    return torch.randn(*image, 3, generator=torch.Generator().manual_seed(1))


def moved(values: list[Tensor | None], to: str | torch.dtype) -> list[Tensor | None]:
    return [None if value is None else value.to(to) for value in values]


def results(by: Callable[..., Tensor], values: list[Tensor | None], d: Tensor) -> list[Tensor]:
    leaves = [None if value is None else value.clone().requires_grad_() for value in values]
    found = by(*leaves)
    return [found.detach(), *torch.autograd.grad(found, [leaf for leaf in leaves if leaf is not None], d)]


def assert_right(values: list[Tensor | None], d: Tensor, device: str) -> None:
    doubles = moved(values, torch.float64)
    right = results(exposed_by, doubles, d.double())
    positive = [None if value is None else value.abs() for value in doubles[:1]] + doubles[1:]
    sizes = results(exposed_by, positive, d.double().abs())
    found = results(expose, moved(values, device), d.to(device))
    for own, expected, size in zip(found, right, sizes, strict=True):
        assert own.isfinite().all() and own.shape == expected.shape
        assert ((own.cpu().double() - expected).abs() <= 1e-6 * size.abs().clamp(min=1)).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("vignetting", [True, False])
@pytest.mark.parametrize("image", IMAGES, ids=str)
def test_images_and_gradients(image: tuple[int, int], vignetting: bool, device: str) -> None:
    assert_right(inputs(image, vignetting), slope(image), device)


@pytest.mark.parametrize("device", DEVICES)
def test_a_black_image_shows_the_offset_and_tells_nothing_of_gains(device: str) -> None:
    image, *few = moved(inputs((33, 7)), device)
    assert image is not None and few[1] is not None
    seen, _, d_log_gain, _, d_vignetting = results(expose, [torch.zeros_like(image), *few], slope((33, 7)).to(device))
    assert torch.equal(seen, few[1].expand_as(seen))
    assert not d_log_gain.any() and not d_vignetting.any()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("vignetting", [True, False])
def test_no_change_is_the_identity(vignetting: bool, device: str) -> None:
    image, *few = moved(inputs((33, 7), vignetting), device)
    assert image is not None
    d = slope((33, 7)).to(device)
    seen, d_image, *_ = results(expose, [image, *(None if t is None else torch.zeros_like(t) for t in few)], d)
    assert torch.equal(seen, image) and torch.equal(d_image, d)


@pytest.mark.parametrize("device", DEVICES)
def test_two_runs_give_the_same_sums(device: str) -> None:
    values, d = moved(inputs((40, 150)), device), slope((40, 150)).to(device)
    for first, second in zip(results(expose, values, d), results(expose, values, d), strict=True):
        assert torch.equal(first, second)


@pytest.mark.parametrize("device", DEVICES)
def test_arrays_need_not_lie_row_by_row(device: str) -> None:
    values, d = moved(inputs((12, 9)), device), slope((12, 9)).to(device)
    turned = d.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    for a, b in zip(results(expose, values, turned), results(expose, values, d), strict=True):
        assert torch.equal(a, b)


def test_double_precision_goes_the_plain_way() -> None:
    values = moved(inputs((4, 5)), torch.float64)
    assert torch.equal(expose(*values), exposed_by(*values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (((4, 5, 4), (3,), (3,), (3,)), r"image has shape \[4, 5, 4\]"),
        (((0, 5, 3), (3,), (3,), (3,)), "height is 0"),
        (((4, 5, 3), (1,), (3,), (3,)), r"log_gain has shape \[1\]"),
        (((4, 5, 3), (3,), (2,), (3,)), r"offset has shape \[2\]"),
        (((4, 5, 3), (3,), (3,), (3, 1)), r"vignetting has shape \[3, 1\]"),
    ],
)
def test_wrong_arrays_are_refused(sizes: tuple[tuple[int, ...], ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        torch.ops.nurec_lite.expose(*(torch.zeros(size) for size in sizes))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("vignetting", [True, False])
def test_torch_s_own_checks(vignetting: bool, device: str) -> None:
    arguments = [None if t is None else t.requires_grad_() for t in moved(inputs((4, 5), vignetting), device)]
    check_schema(torch.ops.nurec_lite.expose.default, tuple(arguments))
