# SPDX-License-Identifier: Apache-2.0
"""The operator adam: its schema, its refusals, and that a graph of it may be replayed; tests/opt/test_fused_adam.py has its numbers."""

import pytest
import torch
from operators import check_schema

from nurec_lite.native import ops

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
BETAS, EPSILON = (0.9, 0.999), 1e-15


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


@pytest.mark.parametrize("device", DEVICES)
def test_the_operator_is_a_whole_one(device: str) -> None:
    """The operator changes exactly the tensors of its schema."""
    shapes = ((5, 3), (7,))
    parameters, gradients, first, second = ([torch.rand(s, device=device) for s in shapes] for _ in range(4))
    steps, rates = [torch.ones((), device=device) for _ in shapes], torch.tensor([0.1, 0.2], device=device)
    args = parameters, gradients, first, second, steps, rates, None, [False, True], *BETAS, EPSILON
    check_schema(torch.ops.nurec_lite.adam.default, args)


@pytest.mark.parametrize(
    ("changed", "error", "sentence"),
    [
        (
            {"gradients": [torch.zeros(5, 2)]},
            ValueError,
            r"gradients\[0\] has shape \[5, 2\], but must have that of its",
        ),
        ({"first": [torch.zeros(5, 3).double()]}, TypeError, r"first\[0\] is Double, but must be Float"),
        ({"second": [torch.zeros(3, 5).T]}, ValueError, r"second\[0\] has strides \[1, 5\], but must have those of"),
        ({"gradients": [torch.zeros(5, 6)[:, ::2]]}, ValueError, r"gradients\[0\] has strides .* without gaps"),
        ({"steps": []}, ValueError, "must have as many elements as parameters, 1"),
        ({"steps": [torch.zeros(1)]}, ValueError, "a tensor of steps has shape"),
        ({"rates": torch.zeros(2)}, ValueError, "rates has shape"),
        ({"failed": torch.zeros(1)}, ValueError, "failed has shape"),
        ({"touched_only": [True, False]}, ValueError, "must have as many elements as parameters, 1"),
        ({"parameters": [torch.zeros(1)] * 21}, ValueError, "parameters has 21 tensors, but must have 20 at most"),
        ({"places": [0, 1]}, ValueError, "places has 2 elements, but must have as many as parameters, 1"),
        ({"places": [1]}, ValueError, "places has a 1, but rates has 1 elements"),
        ({"places": [-1]}, ValueError, "places has a -1, but rates has 1 elements"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict, error: type[Exception], sentence: str) -> None:
    one = [torch.zeros(5, 3)]
    args = {"parameters": one, "gradients": one, "first": one, "second": one, "steps": [torch.zeros(())]}
    args |= {"rates": torch.zeros(1), "failed": None, "touched_only": [False]}
    places = changed.pop("places", None)
    with pytest.raises(error, match=sentence):
        torch.ops.nurec_lite.adam(*(args | changed).values(), *BETAS, EPSILON, None, None, places)


@pytest.mark.parametrize("device", DEVICES)
def test_rates_may_be_those_of_more_than_these(device: str) -> None:
    def updated(*given: object) -> list[torch.Tensor]:
        values, moments = [torch.zeros(5, device=device) for _ in range(2)], torch.zeros(4, 5, device=device)
        gradients, steps = [torch.ones(5, device=device)] * 2, [torch.zeros((), device=device) for _ in range(2)]
        rates, *places = given
        args = values, gradients, list(moments[:2]), list(moments[2:]), steps, rates, None, [False] * 2
        torch.ops.nurec_lite.adam(*args, *BETAS, EPSILON, None, None, *places)
        return values

    rates = torch.tensor([0.5, 0.1, 0.2, 0.3], device=device)
    for one, other in zip(updated(rates, [3, 1]), updated(rates[[3, 1]].contiguous()), strict=True):
        assert torch.equal(one, other) and one[0] != 0


@pytest.mark.gpu
def test_a_graph_of_it_takes_the_rates_that_lie_there() -> None:
    """The operator alone: rates, failed and steps are in device memory."""
    values, gradient = torch.zeros(40, device="cuda"), torch.ones(40, device="cuda")
    moments = torch.zeros(2, 40, device="cuda")
    steps, rates, failed = (torch.zeros(shape, device="cuda") for shape in ((), (1,), ()))
    args = [values], [gradient], [moments[0]], [moments[1]], [steps], rates, failed, [False], *BETAS, EPSILON
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph, stream=stream):
        torch.ops.nurec_lite.adam(*args)
    for rate, overflow in ((0.5, 0.0), (0.25, 0.0), (8.0, 1.0)):
        rates.fill_(rate), failed.fill_(overflow)
        graph.replay()
    torch.testing.assert_close(values, torch.full_like(values, -0.75), rtol=1e-5, atol=0)
    assert float(steps) == 2
