# SPDX-License-Identifier: Apache-2.0
"""The operator mask_absent_actors against its definition in double precision; its use: tests/opt/test_fused_interp.py."""

from typing import Any

import pytest
import torch
from operators import check_schema
from parity import DEVICES
from torch import Tensor

from nurec_lite.geometry.tracks import within
from nurec_lite.native import ops

F64 = torch.float64
SIZES = {  # Gaussians, how many of them are always there, and nodes
    "none": (0, 0, 1),
    "one": (1, 0, 1),
    "all stay": (33, 33, 2),
    "none stays": (31, 0, 4),
    "in the middle of four": (1027, 1001, 3),
    "several blocks": (2500, 1030, 5),
}


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    ops.load()
    monkeypatch.setenv("NUREC_LITE_CHECK", "1")  # CUDA looks at numbers only then


def spans_of(nodes: int) -> tuple[Tensor, Tensor]:
    """[K] seconds; the first is there always."""
    first, last = torch.arange(nodes, dtype=F64) / 10, torch.arange(nodes, dtype=F64) / 10 + 0.15
    first[:1], last[:1] = -torch.inf, torch.inf
    return first, last


def nodes_of(n: int, still: int, nodes: int) -> Tensor:
    """Nodes of rows in their order. Those of rows that stay may be any: nobody reads them."""
    behind = torch.randint(0, nodes, (n - still,)).sort().values
    return torch.cat([torch.zeros(still, dtype=torch.int64), behind])


def made(size: str, times: int, device: str, same: bool = False) -> tuple[Any, ...]:
    """Arguments of the operator; `same`: all times have the very same opacities."""
    n, still, nodes = SIZES[size]
    opacities = [torch.rand(n, device=device) for _ in range(1 if same else times)] * (times if same else 1)
    at = torch.linspace(-0.1, 0.6, times, dtype=F64).to(device).unbind(0)
    first, last = (t.to(device) for t in spans_of(nodes))
    return opacities, list(at), nodes_of(n, still, nodes).to(device), still, first, last


def reference(
    opacities: list[Tensor], times: list[Tensor], node: Tensor, still: int, first: Tensor, last: Tensor
) -> list[Tensor]:
    """The baseline's formula, in double precision."""
    there = within(first, last, torch.stack(times), F64)
    each = (torch.cat([row.new_ones(still), row[node[still:]]]) for row in there)
    return [o.double() * factor for o, factor in zip(opacities, each, strict=True)]


def present(*args: Any) -> list[Tensor]:
    return list(torch.ops.nurec_lite.mask_absent_actors(*args))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("same", [False, True], ids=["", "the same"])
@pytest.mark.parametrize("times", [1, 2, 19])
@pytest.mark.parametrize("size", SIZES)
def test_values_and_gradients(size: str, times: int, same: bool, device: str) -> None:
    """Products by 0 and 1 are exact. More times than a launch takes, too."""
    args = made(size, times, device, same)
    leaves = list({id(o): o.requires_grad_() for o in args[0]}.values())
    found, expected = present(*args), reference(*args)
    slopes = [torch.randn_like(o) for o in found]
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == torch.float32 and a.double().equal(b)
    d_found = torch.autograd.grad(found, leaves, slopes)
    d_expected = torch.autograd.grad(expected, leaves, [s.double() for s in slopes])
    for a, b in zip(d_found, d_expected, strict=True):  # of several times their sum
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-5 if same else 0)


@pytest.mark.parametrize("device", DEVICES)
def test_the_ends_of_a_span_belong_to_it(device: str) -> None:
    """The ends count to the last bit of a double."""
    ends = torch.tensor([0.1, 0.1, 0.3, 0.3, torch.nan], dtype=F64)
    ends[[1, 3]] = torch.nextafter(ends[[1, 3]], torch.tensor([0.0, 1.0], dtype=F64))
    node, none = torch.zeros(1, dtype=torch.int64, device=device), [torch.ones(1, device=device)] * len(ends)
    first, last = (torch.tensor([s], dtype=F64, device=device) for s in (0.1, 0.3))
    found = present(none, list(ends.to(device)), node, 0, first, last)
    assert torch.cat(found).tolist() == [1, 0, 1, 0, 0]


@pytest.mark.parametrize("device", DEVICES)
def test_rows_that_begin_in_the_middle_of_a_vector(device: str) -> None:
    opacities, *rest = made("several blocks", 2, device)
    shifted = [torch.cat([o.new_zeros(1), o])[1:] for o in opacities]
    for a, b in zip(present(shifted, *rest), present(opacities, *rest), strict=True):
        assert a.equal(b)


@pytest.mark.parametrize("device", DEVICES)
def test_one_time_of_three_alone_gets_a_gradient(device: str) -> None:
    opacities, *rest = made("in the middle of four", 3, device)
    leaves = [o.requires_grad_() for o in opacities]
    found = torch.autograd.grad(present(leaves, *rest)[1].sum(), leaves, allow_unused=True)
    expected = torch.autograd.grad(reference(leaves, *rest)[1].sum(), leaves, allow_unused=True)  # type: ignore[arg-type]
    assert [d is None for d in found] == [d is None for d in expected] == [True, False, True]
    assert found[1].equal(expected[1])


@pytest.mark.parametrize("device", DEVICES)
def test_no_time(device: str) -> None:
    assert present(*made("several blocks", 0, device)) == []


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("same", [False, True], ids=["", "the same"])
def test_torch_s_own_checks(same: bool, device: str) -> None:
    opacities, *rest = made("in the middle of four", 2, device)
    if same:
        opacities = [opacities[0].requires_grad_()] * 2
    check_schema(torch.ops.nurec_lite.mask_absent_actors.default, ([o.requires_grad_() for o in opacities], *rest))


WRONG: dict[str, tuple[int, Any]] = {  # which argument of a call with 31 Gaussians of 4 nodes at 2 times
    "there are 1 opacities, but 2 times": (0, [torch.rand(31)]),
    "opacities has shape": (0, [torch.rand(31), torch.rand(30)]),
    "opacities is Double": (0, [torch.rand(31).double()] * 2),
    "opacities is not contiguous": (0, [torch.rand(62)[::2]] * 2),
    "times has shape": (1, [torch.zeros(1, dtype=F64)] * 2),
    "times is Float": (1, [torch.zeros(())] * 2),
    "node is Int": (2, torch.zeros(31, dtype=torch.int32)),
    "node holds 4 in row 0, but must be at least 0 and below 4": (2, torch.full((31,), 4)),
    "still is 32, but must be 0 to 31": (3, 32),
    "still is -1": (3, -1),
    "first is Float": (4, torch.zeros(4)),
    "last has shape": (5, torch.zeros(3, dtype=F64)),
}


def on(device: str, t: Tensor) -> Tensor:
    """The tensor on a device, with its gaps; a plain copy would close them."""
    return t.to(device) if t.is_contiguous() else t.repeat_interleave(2).to(device)[::2]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("words", WRONG)
def test_what_does_not_fit_is_refused(words: str, device: str) -> None:
    args, (k, wrong) = list(made("none stays", 2, device)), WRONG[words]
    there = [on(device, t) for t in wrong] if isinstance(wrong, list) else wrong
    args[k] = there.to(device) if isinstance(there, Tensor) else there
    with pytest.raises((ValueError, TypeError), match=words):
        present(*args)
