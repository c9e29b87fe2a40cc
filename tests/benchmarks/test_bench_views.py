# SPDX-License-Identifier: Apache-2.0
"""The benchmark of several views in one launch: its report, its views, and its end if the two ways disagree."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from emulation import EMULATED

from benchmarks.render import bench_views
from benchmarks.render.bench_views import beside, main, rasterized
from benchmarks.render.contenders import stages_with
from benchmarks.render.workload import SIZES, Size, random
from nurec_lite.native.bind import native_stages
from nurec_lite.native.plan import CUDA_PLAN

CPU = torch.device("cpu")
TINY = Size(96, 60, 16, 64, 300, 40, 150)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "small", TINY)


def report(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    out = tmp_path / "out.json"
    given = ["--workloads", "random", "--device", "cpu", "--rounds", "2", "--warmup", "0", "--out", str(out)]
    main([*given, "--views", "1", "3", "--images", "own", "33x17", *arguments])
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(tmp_path)
    assert [(v["sensor"], v["rays"], v["views"]) for v in found["views"]] == [
        (sensor, rays, n)
        for sensor, rays in (("camera", 64 * 20), ("camera", 33 * 17), ("lidar", 8 * 64))
        for n in (1, 3)
    ]
    for view in found["views"]:
        assert list(view["rows"]) == ["together", "one by one"] and view["difference"] == 0
        for row in view["rows"].values():
            assert row["status"] is None and len(row["single_ms"]) == 2
            assert row["rays_per_s"] == pytest.approx(view["rays"] * view["views"] * 1e3 / row["ms"]["median"])
    said = capsys.readouterr().out
    assert "gsplat left out" in said and "3 at once, 561 rays each" in said and "M rays/s" in said


@pytest.mark.skipif(not EMULATED, reason="runs the CUDA drivers: set NUREC_LITE_EMULATE_CUDA=1")
def test_report_of_the_drivers_of_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace(CUDA_PLAN, warp_tiles=True, tight_lists=True, segment_entries=384)
    inner = bench_views.stages_with

    def driven(options: str, device: torch.device) -> Any:
        return inner(options, device).compiled(plan, native_stages)

    monkeypatch.setattr(bench_views, "stages_with", driven)
    found = report(tmp_path)
    assert all(0 <= view["difference"] < 1e-5 for view in found["views"])
    assert all(row["status"] is None for view in found["views"] for row in view["rows"].values())


def test_views_stand_next_to_one_another() -> None:
    view = random(TINY, 0, None, CPU).views["camera"]
    first, _, third = beside(view, 3, 0.5)
    assert (third.centre() - first.centre()).tolist() == pytest.approx([0, 1.0, 0])
    assert third.time_mid - first.time_mid == pytest.approx(0.02) and third.row is not None and first.row is not None
    assert not third.row.equal(first.row) and first.centre().equal(view.centre())


def test_gsplat_gets_the_cameras_of_all_views() -> None:
    """Each sees the means where our own view has them."""
    workload, stages = random(TINY, 0, None, CPU), stages_with("", CPU)
    views: Any = beside(workload.views["camera"], 3, 0.5)
    given: dict[str, Any] = {}
    fake: Any = SimpleNamespace(rasterization=lambda *args, **named: given.update(args=args, **named))
    rasterized(fake, stages, workload.scene, views)()
    means, _, _, _, sh, viewmats, Ks, width, height = given["args"]
    assert sh.shape[1:] == (16, 3) and (width, height) == (views[0].camera.width, views[0].camera.height)
    assert viewmats.shape == (3, 4, 4) and Ks.shape == (3, 3, 3) and given["sh_degree"] == 3
    for view, T in zip(views, viewmats, strict=True):
        local = means @ T[:3, :3].T + T[:3, 3]
        axes = view.T_world_sensor_start[:3, :3]
        expected = (workload.scene.gaussians.means - view.centre()) @ axes
        torch.testing.assert_close(local, expected, rtol=1e-5, atol=1e-4)
