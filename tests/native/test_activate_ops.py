# SPDX-License-Identifier: Apache-2.0
"""The operators activate, regularisers and sgld_noise: schemas, refusals, and that a graph of them may be replayed;
tests/opt/test_fused_activate.py has their numbers."""

from typing import Any

import pytest
import torch
from operators import call as called
from operators import check_schema
from stored_gaussians import STORED, gaussians_of, on, opacities_of
from torch import Tensor

from nurec_lite.native import ops
from nurec_lite.opt.all import fused_activate

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


def stored(**changes: Tensor) -> dict[str, Any]:
    g = gaussians_of(7, odd=False)
    return {name: getattr(g, name) for name in STORED} | changes


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("columns", [2, 3])
def test_torch_s_own_checks(columns: int, device: str) -> None:
    g = on(gaussians_of(7, columns, odd=False), device)
    leaves = tuple(getattr(g, name).requires_grad_() for name in STORED)
    check_schema(torch.ops.nurec_lite.activate.default, leaves)
    unit, *values = (v.detach() for v in torch.ops.nurec_lite.activate(*leaves))
    own_grad = torch.randn_like(values[3]) if columns > 2 else None
    given = torch.randn_like(unit), None, torch.randn_like(values[1]), None, own_grad
    args = leaves[0].detach(), *values, columns, *given
    check_schema(torch.ops.nurec_lite.activate_backward.default, args)
    camera, lidar, scales = (v.to(device).requires_grad_() for v in opacities_of(7))
    own = lidar if columns > 2 else None
    check_schema(torch.ops.nurec_lite.regularisers.default, (camera, own, scales))
    detached = camera.detach(), None if own is None else own.detach(), scales.detach()
    one = torch.ones((), device=device)
    check_schema(torch.ops.nurec_lite.regularisers_backward.default, (*detached, one, None, one))
    plain = on(gaussians_of(7, columns), device)
    own_arrays = (
        plain.means,
        plain.log_scales,
        *(getattr(plain, k) for k in ("quats", "opacity_logits", "lidar_logits")),
    )
    check_schema(torch.ops.nurec_lite.sgld_noise.default, (*own_arrays, one, 3, one, None, -9.0))


WRONG = {
    "quats has shape": {"quats": torch.randn(7, 3)},
    "log_scales has shape": {"log_scales": torch.randn(6, 3)},
    "opacity_logits has shape": {"opacity_logits": torch.randn(7, 1)},
    "lidar_logits has 4 columns": {"lidar_logits": torch.randn(7, 4)},
    "lidar_logits is Double": {"lidar_logits": torch.randn(7, 2).double()},
    "log_scales is not contiguous": {"log_scales": torch.randn(3, 7).T},
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_arrays_are_refused(words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        called("activate", stored(**WRONG[words]))


def test_wrong_scalars_and_gradients_are_refused() -> None:
    camera, lidar, scales = opacities_of(7)
    with pytest.raises(ValueError, match="lidar_opacities has shape"):
        torch.ops.nurec_lite.regularisers(camera, lidar[:6], scales)
    with pytest.raises(ValueError, match="d_tie has shape"):
        torch.ops.nurec_lite.regularisers_backward(camera, lidar, scales, None, None, torch.ones(1))
    values = torch.ops.nurec_lite.activate(*stored().values())
    with pytest.raises(ValueError, match="d_scales has shape"):
        torch.ops.nurec_lite.activate_backward(*values, 3, None, torch.ones(7), None, None, None)
    g = gaussians_of(7)
    one = torch.ones(())
    with pytest.raises(ValueError, match="step has shape"):
        fused_activate.add_sgld_noise(g, torch.ones(7), 0, one, None)
    for seed in (-1, 1 << 32):
        with pytest.raises(ValueError, match=f"seed is {seed}, which has not 32 bits"):
            fused_activate.add_sgld_noise(g, one, seed, one, None)
    with pytest.raises(ValueError, match="failed has shape"):
        fused_activate.add_sgld_noise(g, one, 0, one, torch.zeros(1))


@pytest.mark.gpu
def test_a_graph_of_it_goes_by_what_lies_there() -> None:
    g = on(gaussians_of(1000), "cuda")
    leaves = [getattr(g, name).requires_grad_() for name in STORED]
    step, amount, failed = (torch.tensor(0.0, device="cuda") for _ in range(3))

    def work() -> tuple[Tensor, ...]:
        values = fused_activate.activate(g)
        terms = fused_activate.regularisers(values["opacities"], values["lidar_opacities"], values["scales"])
        grads = torch.autograd.grad(sum(terms.values(), values["quats"][:, 0].sum()) + values["lidar"].sum(), leaves)
        fused_activate.add_sgld_noise(g, step, 0, amount, failed)
        return grads

    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(side):
        work()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=side):
        found = work()
    with torch.no_grad():
        g.log_scales.add_(1)
    before = g.means.clone()
    amount.fill_(0.5)
    graph.replay()
    for a, b in zip(found, work(), strict=True):
        torch.testing.assert_close(a, b)
    assert not torch.equal(g.means, before)
    moves = []
    for number in (1.0, 2.0, 1.0):  # of updates: the same launch draws by them
        step.fill_(number)
        g.means.zero_()
        graph.replay()
        moves.append(g.means.clone())
    assert torch.equal(moves[0], moves[2]) and not torch.equal(moves[0], moves[1])
