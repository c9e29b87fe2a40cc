# SPDX-License-Identifier: Apache-2.0
"""The option `fused_range`: the loss of lidar rays and its gradients are those of the plain one, which is asked in float64."""

import json
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from operators import check_schema
from tiny_capture import tiny_config, tiny_state
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.opt import bench_fused_range
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.options import parameters_of
from nurec_lite.config import LossWeights
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.native import ops
from nurec_lite.opt.all.fused_range import lidar_loss
from nurec_lite.splat.render import LidarReturns
from nurec_lite.training import losses
from nurec_lite.training.step import step

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
OPTIONS = {"fused_range": parameters_of("fused_range")}
SIZES = (0, 1, 31, 33, 255, 256, 257, 4097, 9001)  # a block has 256 rays, a slice of the CPU 4096
TERMS = ("range", "intensity", "drop")
GIVEN = {"range": 2.0, "intensity": -3.0, "drop": 5.0}  # gradients of the terms
Rays = tuple[LidarReturns, Sweep]


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


def rays_of(n: int, returned: float = 0.7, device: str = "cpu") -> Rays:
    """Rays; some match the measured ones exactly, with drops near, at and beyond 0 and 1."""
    hit, equal = torch.rand(n) < returned, torch.rand(n) < 0.2
    ranges, intensities = torch.where(hit, 80 * torch.rand(n), 0.0), torch.where(hit, torch.rand(n), 0.0)
    distance = torch.where(equal, ranges, ranges + torch.randn(n))
    intensity = torch.where(equal, intensities, torch.rand(n))
    odd = torch.tensor([0, 1, 1.25, -0.25, 2e-6, 0.5])[torch.arange(n) % 6]
    drop = torch.where(torch.rand(n) < 0.3, odd, 0.01 + 0.98 * torch.rand(n))
    passed = torch.where(drop == odd, 0.0, 0.5 * drop)
    features = torch.stack([intensity, drop - passed], dim=-1)
    found = (tensor.to(device) for tensor in (distance, distance, features, passed))
    nothing = torch.zeros(n)
    sweep = Sweep(torch.zeros(n, 3), ranges, intensities, nothing.double(), nothing.long(), hit)
    return LidarReturns(*found), sweep.to(device)


def in_double(returns: LidarReturns, sweep: Sweep) -> Rays:
    doubled = (getattr(returns, name).cpu().double() for name in LidarReturns.__dataclass_fields__)
    on_host = sweep.to("cpu")
    return LidarReturns(*doubled), replace(
        on_host, ranges=on_host.ranges.double(), intensities=on_host.intensities.double()
    )


def with_gradients(loss: Any, rays: Rays, *more: Any, asked: tuple[str, ...] = TERMS) -> dict[str, Tensor | None]:
    """All terms, and gradients by those that are asked for."""
    returns, sweep = rays
    names = ("distance", "features", "transmittance")
    leaves = [getattr(returns, name).detach().requires_grad_() for name in names]
    terms = loss(LidarReturns(leaves[0], returns.median, *leaves[1:]), sweep, *more)
    assert list(terms) == list(TERMS)
    value = sum((GIVEN[name] * terms[name] for name in asked), torch.zeros((), device=leaves[0].device))
    found = torch.autograd.grad(value, leaves, allow_unused=True)
    return {name: term.detach() for name, term in terms.items()} | dict(zip(names, found, strict=True))


def assert_same(found: dict[str, Tensor | None], truth: dict[str, Tensor | None]) -> None:
    """Every number agrees to some units in its last place; the cost of a drop goes to a million, as far as rounding lets 1 - drop."""
    for name, b in truth.items():
        a = found[name]
        assert (a is None) == (b is None), name
        if a is None or b is None:
            continue
        assert a.shape == b.shape and a.dtype == torch.float32
        torch.testing.assert_close(a.cpu().double(), b, rtol=3e-6, atol=1e-7, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("counted", [None, 0.9, 0.0], ids=str)
@pytest.mark.parametrize("aimed", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_values_and_gradients(n: int, aimed: bool, counted: float | None, device: str) -> None:
    rays, mask = rays_of(n, device=device), None if counted is None else torch.rand(n) < counted
    truth = with_gradients(losses.lidar_loss, in_double(*rays), mask, aimed)
    assert_same(with_gradients(lidar_loss, rays, None if mask is None else mask.to(device), aimed), truth)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("aimed", [False, True])
@pytest.mark.parametrize("returned", [0.0, 1.0])
@pytest.mark.parametrize("n", [1, 33, 300])
def test_nothing_returned_or_all(n: int, returned: float, aimed: bool, device: str) -> None:
    rays = rays_of(n, returned, device)
    found = with_gradients(lidar_loss, rays, None, aimed)
    assert_same(found, with_gradients(losses.lidar_loss, in_double(*rays), None, aimed))
    if not returned:
        assert float(found["range"]) == 0 == float(found["intensity"])  # type: ignore[arg-type]
        assert not found["distance"].any()  # type: ignore[union-attr]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("hit", [False, True])
def test_the_limits_of_a_probability_are_those_of_torch(hit: bool, device: str) -> None:
    """In single precision, one number on either side of each limit."""
    limits = torch.tensor([1e-6, 1 - 1e-6])
    drop = torch.cat(
        [torch.nextafter(limits, torch.tensor(to)) for to in (0.0, 1.0)] + [limits, torch.tensor([0.0, 1])]
    )
    n, zero = len(drop), torch.zeros(len(drop))
    sweep = Sweep(torch.zeros(n, 3), zero, zero, zero, zero.long(), torch.full((n,), hit))
    returns = LidarReturns(zero, zero, torch.stack([zero, drop], dim=-1), zero)
    on_device = LidarReturns(*(getattr(returns, name).to(device) for name in LidarReturns.__dataclass_fields__))
    found = with_gradients(lidar_loss, (on_device, sweep.to(device)))["features"]
    plain = with_gradients(losses.lidar_loss, (returns, sweep))["features"]
    assert isinstance(found, torch.Tensor) and isinstance(plain, torch.Tensor)
    slope = 1 / (1 - drop) if hit else -1 / drop
    plain[4:6, 1] = (
        slope[4:6] * plain[2, 1] / slope[2]
    )  # at the limits torch's clamp passes no slope from version 2.14 on
    torch.testing.assert_close(found.cpu(), plain)
    assert int((plain[:, 1] != 0).sum()) == 4


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_no_number_is_reported(device: str) -> None:
    returns, sweep = rays_of(40, device=device)
    hit = int(sweep.returned.nonzero()[0])
    for name, term in (("distance", "range"), ("transmittance", "drop")):
        odd = getattr(returns, name).clone()
        odd[hit] = torch.nan
        assert lidar_loss(replace(returns, **{name: odd}), sweep)[term].isnan()
    odd = returns.distance.clone()
    odd[~sweep.returned] = torch.nan  # which no term looks at
    assert lidar_loss(replace(returns, distance=odd), sweep)["range"].isfinite()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("asked", [("range",), ("intensity",), ("drop",), ("range", "drop")])
def test_what_nothing_depends_on(asked: tuple[str, ...], device: str) -> None:
    """It has no gradient, or zeros beside the inputs that have one."""
    rays = rays_of(300, device=device)
    found = with_gradients(lidar_loss, rays, asked=asked)
    truth = with_gradients(losses.lidar_loss, in_double(*rays), asked=asked)
    assert (found["distance"] is None) == ("range" not in asked)
    assert (found["transmittance"] is None) == ("drop" not in asked)
    for name in ("distance", "features", "transmittance"):  # the plain one gives zeros
        if truth[name] is not None and found[name] is None:
            assert not truth.pop(name).any()  # type: ignore[union-attr]
            found.pop(name)
    assert_same(found, truth)


@pytest.mark.parametrize("device", DEVICES)
def test_rays_with_strides(device: str) -> None:
    """Every other ray of a longer sweep."""
    returns, sweep = rays_of(600, device=device)
    every = slice(None, None, 2)
    other = LidarReturns(*(getattr(returns, name)[every] for name in LidarReturns.__dataclass_fields__))
    rays, mask = (other, sweep.select(every)), (torch.rand(600, device=device) < 0.5)[every]  # type: ignore[arg-type]
    truth = with_gradients(losses.lidar_loss, in_double(*rays), mask.cpu())
    assert_same(with_gradients(lidar_loss, rays, mask), truth)


@pytest.mark.parametrize("device", DEVICES)
def test_twice_the_same_bits(device: str) -> None:
    rays = rays_of(5001, device=device)
    one, two = (with_gradients(lidar_loss, rays) for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", DEVICES)
def test_the_operators_are_whole_ones(device: str) -> None:
    """The operator changes exactly the tensors of its schema, and its gradient is registered."""
    r, s = rays_of(33, device=device)
    measured, mask = (s.ranges, s.intensities, s.returned), torch.rand(33, device=device) < 0.8
    leaves = [t.clone().requires_grad_() for t in (r.distance, r.features, r.transmittance)]
    check_schema(torch.ops.nurec_lite.lidar_loss.default, (*leaves, *measured, mask, False))
    check_schema(torch.ops.nurec_lite.lidar_loss.default, (*leaves, *measured, None, True))
    rendered, one = (t.detach() for t in leaves), torch.ones((), device=device)
    given = torch.ones(2, device=device), one, None, one
    args = *rendered, *measured, None, True, *given
    check_schema(torch.ops.nurec_lite.lidar_loss_backward.default, args)


@pytest.mark.parametrize(
    ("changed", "error", "sentence"),
    [
        ({"distance": torch.zeros(5, 1)}, ValueError, "distance has shape"),
        ({"features": torch.zeros(5, 3)}, ValueError, "features has shape"),
        ({"transmittance": torch.zeros(4)}, ValueError, "transmittance has shape"),
        ({"distance": torch.zeros(5).double()}, TypeError, "distance is Double, but must be Float"),
        ({"ranges": torch.zeros(6)}, ValueError, "ranges has shape"),
        ({"intensities": torch.zeros(5).half()}, TypeError, "intensities is Half, but must be Float"),
        ({"returned": torch.zeros(5)}, TypeError, "returned is Float, but must be Bool"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, Tensor], error: type[Exception], sentence: str) -> None:
    returns, sweep = rays_of(5)
    of_sweep = {name: tensor for name, tensor in changed.items() if name in Sweep.__dataclass_fields__}
    of_returns = {name: tensor for name, tensor in changed.items() if name not in of_sweep}
    with pytest.raises(error, match=sentence):
        lidar_loss(replace(returns, **of_returns), replace(sweep, **of_sweep))
    with pytest.raises(ValueError, match="counted has shape"):
        lidar_loss(returns, sweep, torch.ones(4).bool())


# ---- in training


def test_the_option_swaps_the_loss() -> None:
    assert build_stages(OPTIONS).changes.claims == {"lidar_loss": "fused_range"}


@pytest.mark.parametrize("reach", [0.0, 2.0])
@pytest.mark.parametrize("others", [(), ("fused_interp", "collect_once", "no_sync", "batch")], ids=str)
def test_steps_are_those_without_it(others: tuple[str, ...], reach: float) -> None:
    """Three steps before the first relocation, with one sweep and with several. Padding fills up some of their rays."""
    found, below = [], {name: parameters_of(name) for name in others}
    if "batch" in below:
        below["batch"] |= {"sweeps": 2}
    for options in (below | OPTIONS, below):
        stages = build_stages(options, base_stages("native", torch.device("cpu")))
        state = tiny_state(tiny_config(loss=LossWeights(reach=reach)))
        state.plan = stages.feed.frames(state.plan)
        for state.step in range(3):
            terms = step(stages, state).terms
        found.append(({name: float(terms[name]) for name in TERMS}, state.scene.parameters()))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-4)
    close = partial(torch.testing.assert_close, rtol=1e-3, atol=1e-3)
    for name, value in found[0][1].items():
        close(value, found[1][1][name])


class Operators(TorchDispatchMode):
    """Counts those that write something."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[func._schema.name] += not func.is_view
        return func(*args, **(kwargs or {}))


def test_what_is_left_to_torch() -> None:
    """Only this test acts between the renderer's results and their gradients."""
    rays, found = rays_of(40), {}
    for name, loss in (("plain", losses.lidar_loss), ("fused", lidar_loss)):
        with Operators() as operators:
            with_gradients(loss, rays)
        found[name] = operators.calls
    assert not +(found["fused"] - found["plain"]) - Counter(
        ["nurec_lite::lidar_loss", "nurec_lite::lidar_loss_backward"]
    )
    assert found["plain"].total() - found["fused"].total() >= 35


@pytest.mark.gpu
def test_a_graph_of_it_is_replayed() -> None:
    """Forward and backward are captured once, and take the rays of their launch."""
    rays, other = rays_of(500, device="cuda"), rays_of(500, device="cuda")
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        with_gradients(lidar_loss, rays)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        found = with_gradients(lidar_loss, rays)
    for mine, new in zip(rays, other, strict=True):
        for name in mine.__dataclass_fields__:
            getattr(mine, name).copy_(getattr(new, name))
    graph.replay()
    expected = with_gradients(lidar_loss, other)
    assert all(torch.equal(found[name], expected[name]) for name in found)  # type: ignore[arg-type]


# ---- its benchmark

SMALL = ["--device", "cpu", "--rays", "300", "--rounds", "2", "--warmup", "1", "--copy-mib", "1"]


def test_the_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    assert bench_fused_range.main([*SMALL, "--out", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 8 and {row["version"] for row in rows} == {"plain", "fused"}
    assert {row["on"] for row in rows} == {
        f"300 rays{aimed} {what}" for aimed in ("", ", aimed") for what in ("forward", "and backward")
    }
    assert bench_fused_range.least_bytes("300 rays, aimed", "and backward") == 300 * (26 + 26 + 16)
    assert "fused" in capsys.readouterr().out


def test_the_benchmark_does_not_time_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def wrong(*args: Any) -> dict[str, Tensor]:
        return {name: 1.01 * term for name, term in losses.lidar_loss(*args).items()}

    monkeypatch.setitem(bench_fused_range.VERSIONS, "plain", wrong)
    assert bench_fused_range.main([*SMALL, "--out", str(tmp_path / "out.json")]) == 1
    report = json.loads((tmp_path / "out.json").read_text())
    assert list(report["disagreements"]) == ["plain, 300 rays", "plain, 300 rays, aimed"]
    assert {row["version"] for row in report["rows"]} == {"fused"}
