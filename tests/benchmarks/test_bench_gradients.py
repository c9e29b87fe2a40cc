# SPDX-License-Identifier: Apache-2.0
"""The benchmark of gradients against float64: the reference in groups, distances by hand, the rule that a wrong gradient breaks."""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from emulation import EMULATED
from torch import Tensor

from benchmarks.render import bench_gradients
from benchmarks.render.bench_gradients import bench_view, compared, main, squares_of
from benchmarks.render.contenders import outputs_of, relative, stages_with, upstream_of
from benchmarks.render.truth import PAIRS, Rendered, groups, problem_of, truth, undecided
from benchmarks.render.workload import SENSORS, SIZES, Size, Workload, random, simulated
from nurec_lite.geometry.harmonics import DEGREE_0
from nurec_lite.native.bind import native_stages
from nurec_lite.native.plan import CUDA_PLAN
from nurec_lite.scene.gaussians import AnyGaussians
from nurec_lite.splat.tiles import PairList
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.stages import Stages

CPU = torch.device("cpu")
TINY = Size(96, 60, 16, 64, 300, 40, 300)
ARGUMENTS = argparse.Namespace(tolerance=1e-3, pairs=PAIRS)


@pytest.fixture(scope="module")
def workloads() -> dict[str, Workload]:
    """A camera that stands still, and moving actors seen through a rolling shutter."""
    return {"random": random(TINY, 0, None, CPU), "simulated": simulated(TINY, 0, 0, CPU)}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "small", TINY)


def report(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    out = tmp_path / "out.json"
    main(["--workloads", "random", "--device", "cpu", "--out", str(out), *arguments])
    found: dict[str, Any] = json.loads(out.read_text())
    return found


class _TooLong(torch.autograd.Function):
    """The same values, with a gradient that is 1 % too long."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 1.01 * gradient


def spoiled(stages: Stages) -> Stages:
    """Gradients of the scales are wrong, in every render alike."""

    def wrong(g: AnyGaussians) -> AnyGaussians:
        return replace(g, scales=_TooLong.apply(g.scales))

    def camera(g: AnyGaussians, *rest: Any) -> Any:
        return stages.render.render_camera(wrong(g), *rest)

    def lidar(g: AnyGaussians, *rest: Any) -> Any:
        return stages.render.render_lidar(wrong(g), *rest)

    return stages.replaced(render_camera=camera, render_lidar=lidar)


# ---- the truth


def test_groups_are_neighbouring_tiles_of_whole_slabs() -> None:
    pairs = PairList(torch.arange(8).view(4, 2), torch.tensor([0, 40, 40, 41, 141]), torch.arange(141))
    parts = list(groups(pairs, 192))  # two slabs of 32 for two rays, none, one, four: 128 + 0 + 64, 256
    assert [part.rays.tolist() for part in parts] == [[[0, 1], [2, 3], [4, 5]], [[6, 7]]]
    assert [part.offsets.tolist() for part in parts] == [[0, 40, 40, 41], [0, 100]]
    assert torch.equal(torch.cat([part.gaussians for part in parts]), pairs.gaussians)
    assert [len(part.rays) for part in groups(pairs, 1)] == [1, 1, 1, 1]
    assert [len(part.rays) for part in groups(pairs, PAIRS)] == [4]


@pytest.mark.parametrize("sensor", SENSORS)
@pytest.mark.parametrize("name", ["random", "simulated"])
def test_groups_add_up_to_all_at_once(name: str, sensor: str, workloads: dict[str, Workload]) -> None:
    problem = problem_of(stages_with("", CPU), workloads[name], sensor)
    most = 1 << 13
    assert len(list(groups(problem.pairs, most))) > 2
    whole, added = truth(problem).tensors(), truth(problem, most).tensors()
    assert whole.keys() == added.keys() and max(relative(added[k], whole[k]) for k in whole) < 1e-12


@pytest.mark.parametrize("sensor", SENSORS)
def test_nothing_of_it_is_single(sensor: str, workloads: dict[str, Workload]) -> None:
    problem = problem_of(stages_with("", CPU), workloads["simulated"], sensor)
    exact = problem.double()
    outputs = outputs_of(reference_stages(), exact.gaussians, exact.view, exact.pairs, exact.sky)
    rays = exact.view.rays()
    assert {t.dtype for t in (*outputs, rays.origins, rays.directions, rays.delays)} == {torch.float64}
    assert torch.equal(exact.gaussians.means.float(), problem.gaussians.means)


@pytest.mark.parametrize("sensor", SENSORS)
def test_truth_is_the_slope_of_the_loss(sensor: str, workloads: dict[str, Workload]) -> None:
    """Opacities go a step up and down; the loss's own weights are known from an output of the same shape."""
    problem = problem_of(stages_with("", CPU), workloads["random"], sensor).double()
    step = 1e-7 * torch.randn(len(problem.gaussians), dtype=torch.float64)

    @torch.no_grad()
    def loss(sign: int) -> float:
        g = replace(problem.gaussians, opacities=problem.gaussians.opacities.detach() + sign * step)
        outputs = outputs_of(reference_stages(), g, problem.view, problem.pairs, problem.sky)
        return sum(float((o * upstream_of(o)).sum()) for o in outputs)

    slope = float((truth(problem, 1 << 14).gradients["opacities"] * step).sum())
    assert 0.5 * (loss(1) - loss(-1)) == pytest.approx(slope, rel=1e-5)


# ---- colours at the clamp


def at_the_clamp(workload: Workload, k: int) -> Workload:
    """Gaussian k is black but for rounding, the one behind it is black by more."""
    g = workload.scene.gaussians
    sh0, rest = g.sh0.clone(), g.sh_rest.clone()
    sh0[k : k + 2, 0, 1], rest[k : k + 2] = -0.5 / DEGREE_0, 0
    sh0[k + 1] *= 1.001
    return replace(workload, scene=replace(workload.scene, gaussians=replace(g, sh0=sh0, sh_rest=rest)))


@pytest.mark.parametrize("options", ["", "fused_interp"])
def test_a_colour_that_is_0_but_for_rounding_is_hidden(options: str, workloads: dict[str, Workload]) -> None:
    stages, plain, changed = stages_with(options, CPU), workloads["random"], at_the_clamp(workloads["random"], 6)
    problem = problem_of(stages, changed, "camera")
    assert problem.hidden == 1 and problem.gaussians.opacities.argmin() == 6 and problem.gaussians.opacities[6] == 0
    exact = truth(problem).gradients
    harmonics = torch.cat([exact["sh0"], exact["sh_rest"]], 1) if "sh0" in exact else exact["sh"]
    assert not harmonics[6].any() and harmonics.flatten(1).any(1).sum() > 30
    assert problem_of(stages, plain, "camera").hidden == 0 == problem_of(stages, changed, "lidar").hidden


def test_a_colour_is_undecided_by_the_size_of_its_terms(workloads: dict[str, Workload]) -> None:
    problem = problem_of(stages_with("", CPU), workloads["random"], "camera")
    sh = torch.zeros_like(problem.gaussians.sh)
    sh[:4, 0, 0] = torch.tensor([-0.5, -0.5 + 2e-6, -0.5 + 1e-5, -0.5 - 2e-6]) / DEGREE_0  # 64 * 2^-24 = 3.8e-6
    found = undecided(replace(problem.gaussians, sh=sh), problem.view)
    assert found[:6].tolist() == [True, True, False, True, False, False]


# ---- distances and the rule


def test_distances_by_hand() -> None:
    zero = torch.zeros(2)
    assert relative(torch.tensor([3.0, 4]), torch.tensor([0.0, 5])) == pytest.approx(10**0.5 / 5)
    assert relative(torch.tensor([3.0, 4]), zero) == 5 and relative(zero, zero) == 0
    assert squares_of(torch.tensor([[1.0, 2], [4, 0]]), torch.zeros(2, 2)).tolist() == [5, 16]
    assert squares_of(torch.tensor([1.0, 3]), zero).tolist() == [1, 9] and not squares_of(zero, zero).any()


def of(*scales: float) -> Rendered:
    return Rendered({"colour": torch.ones(1)}, {"scales": torch.tensor([*scales, 0.0], dtype=torch.float64)})


def test_the_limit_is_what_rounding_does_twice() -> None:
    draws = [of(1.003), of(1.006), of(1.001)]  # of the first: 1.002; rounding 0.004 / 1.002
    found = compared({"a": of(1.002), "b": of(1.0079), "c": of(1.0081)}, draws, of(1), 1e-3)
    assert found["rounding"]["d scales"] == pytest.approx(0.004 / 1.002)
    assert found["perturbed"]["d scales"] == pytest.approx(0.006)
    assert found["limit"] == pytest.approx({"colour": 1e-3, "d scales": 0.008 / 1.002})
    assert [row["distance"]["d scales"] for row in found["rows"].values()] == pytest.approx([0.002, 0.0079, 0.0081])
    assert [row["status"] for row in found["rows"].values()] == [
        None, None, "too far from float64: d scales 8.1e-03 (limit 8.0e-03)",
    ]  # fmt: skip


def test_what_is_no_number_is_too_far() -> None:
    found = compared({"": of(float("nan"))}, [of(float("nan"))], of(1), 1e-3)
    assert "d scales nan" in found["rows"][""]["status"]


@pytest.mark.parametrize("sensor", SENSORS)
@pytest.mark.parametrize("name", ["random", "simulated"])
def test_kernels_are_close(name: str, sensor: str, workloads: dict[str, Workload]) -> None:
    """Gradients agree to 1e-4, or to twice the rounding, which depends on the processor. Gradients of scales agree to 1e-4. With
    fused_interp the Gaussians that stand still are tensors of their own."""
    close = argparse.Namespace(tolerance=1e-4, pairs=PAIRS)
    for options in ("", "fused_interp"):
        view = bench_view(workloads[name], sensor, {options: stages_with(options, CPU)}, close)
        (row,) = view["rows"].values()
        assert row["status"] is None and max(row["distance"].values()) < 3e-4
        means = "d still_means" if options else "d means"
        assert row["distance"][means] > 0 and view["entries"] > 100 and view["groups"] == 1


@pytest.mark.parametrize("sensor", SENSORS)
def test_a_wrong_gradient_is_seen(sensor: str, workloads: dict[str, Workload]) -> None:
    """It is seen even when there is one set alone, whose perturbed means have the wrong gradient as well."""
    view = bench_view(workloads["random"], sensor, {"": spoiled(stages_with("", CPU))}, ARGUMENTS)
    assert view["rows"]["own"]["status"] == "too far from float64: d scales 1.0e-02 (limit 1.0e-03)"


# ---- the command


def test_too_far_is_exit_code_1(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_gradients, "stages_with", lambda name, device: spoiled(stages_with(name, device)))
    with pytest.raises(SystemExit) as ended:
        report(tmp_path, "--sensors", "camera")
    assert ended.value.code == 1 and "own is too far from float64: d scales 1.0e-02" in capsys.readouterr().out
    assert (tmp_path / "out.json").exists()
    report(tmp_path, "--sensors", "camera", "--tolerance", "0.02")


def plain() -> Stages:
    return stages_with("", torch.device("cpu"))


def in_warp_tiles(device: torch.device) -> Stages:
    """The drivers of a GPU, as `+opt=all` has them."""
    plan = replace(CUDA_PLAN, warp_tiles=True, tight_lists=True, segment_entries=8)
    return stages_with("", device).compiled(plan, native_stages)


@pytest.mark.skipif(not EMULATED, reason="runs the CUDA drivers: set NUREC_LITE_EMULATE_CUDA=1")
def test_drivers_of_warp_tiles_are_close(tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_gradients, "stages_with", lambda name, device: in_warp_tiles(device))
    for view in report(tmp_path, "--opt", "warp_cull")["views"]:
        assert view["rows"]["own warp_cull"]["status"] is None and view["entries"] > 100


@pytest.mark.gpu
def test_on_a_gpu(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    sets = ["", "split_backward", "split_backward,launch_bounds"]
    main(["--workloads", "random", "--size", "small", "--out", str(out), "--opt", *sets])
    for view in json.loads(out.read_text())["views"]:
        assert [row["status"] for row in view["rows"].values()] == [None] * 3
    main(["--workloads", "random", "--size", "small", "--out", str(out), "--opt", "warp_cull,tile_cull,balanced_tiles"])
