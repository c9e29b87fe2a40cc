# SPDX-License-Identifier: Apache-2.0
"""The benchmark of rendering: its reports on our stages and gsplat's, around a stand-in for the latter's kernels on a CPU."""

import json
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import torch
from gsplat_standin import GSPLAT, alphas
from splat_scenes import in_frustum, make_camera_view, make_gaussians, to_float32, view_float32

from benchmarks.render import bench_render
from benchmarks.render.bench_render import main, measure
from benchmarks.render.contenders import Own, difference, perturbed, stages_with
from benchmarks.render.pair_counts import summed
from benchmarks.render.peer import Gsplat, conic_counts, pair_list, standing
from benchmarks.render.workload import SIZES, Size, random
from nurec_lite.peer.rasterize import mid_exposure

CPU = torch.device("cpu")
TINY = Size(96, 60, 16, 64, 300, 40, 150)
# An image of 256x192 pixels: a Gaussian's standard deviation is about 3 pixels, a tenth of the image 20 to 25. gsplat's unscented
# transform drops Gaussians farther outside (gsplat_standin.py). In TINY's 64x20 pixels these are much of the image.
WIDE = Size(384, 576, 16, 64, 300, 40, 5000)
TINY_PAIRS = 5536  # that contribute to gsplat's eval3d of TINY, as counted on a GPU; ours had 9406 there


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "small", TINY)


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "small", WIDE)


def report(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    out = tmp_path / "out.json"
    main(["--workloads", "random", "--device", "cpu", "--rounds", "2", "--warmup", "0", "--out", str(out), *arguments])
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def own(name: str, sensor: str) -> Own:
    return Own(stages_with(name, CPU), random(TINY, 0, None, CPU), sensor)


# ---- our own


def test_report(tmp_path: Path, small: None, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(tmp_path, "--opt", "", "fused_interp")
    assert [(v["workload"], v["sensor"]) for v in found["views"]] == [("random", "camera"), ("random", "lidar")]
    assert found["rounds"] == 2 and "CUDA only" in found["peer"] and found["command"].endswith("--opt '' fused_interp")
    for view in found["views"]:
        assert list(view["rows"]) == ["own", "own fused_interp"] and view["gaussians"] == 150
        for row in view["rows"].values():
            assert row["status"] is None and row["difference"] < 1e-6
            assert row["counts"] == view["rows"]["own"]["counts"]
            for phase in ("project", "tile", "forward", "backward"):
                assert len(row["single_ms"][phase]) == 2 and 0 < row["ms"][phase]["min"] <= row["ms"][phase]["median"]
            rate = 1e3 * row["counts"]["contributing"] / row["ms"]["backward"]["median"]
            assert row["contributing_pairs_per_s"]["backward"] == pytest.approx(rate)
    shown = capsys.readouterr().out
    assert "random, camera (150 random Gaussians): 150 Gaussians, image [64, 20], shutter global" in shown
    assert "gsplat left out: render=gsplat runs on CUDA only" in shown


def test_rounds_take_all_in_turn_and_in_both_orders() -> None:
    order: list[str] = []

    class Fake:
        def __init__(self, name: str) -> None:
            self.name = name

        def sample(self, fill: Any) -> None:
            order.append(self.name)

    fakes: dict[str, Any] = {name: Fake(name) for name in "ab"}
    taken = measure(fakes, 1, 2, CPU)
    assert "".join(order) == "abbaab" and {name: len(samples) for name, samples in taken.items()} == {"a": 2, "b": 2}


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_a_disagreement_is_seen(sensor: str) -> None:
    a, b = own("", sensor), own("", sensor)
    assert difference(a, b) == 0
    with torch.no_grad():
        b.gaussians.opacities.mul_(0.9)
    assert difference(b, a) > 0.01


def test_means_move_by_one_float_each() -> None:
    own = Own(stages_with("", CPU), random(SIZES["small"], 0, 50, CPU), "camera")
    g, other = own.gaussians, perturbed(own.gaussians, 1)
    means, moved = g.whole().means.detach(), other.whole().means
    assert bool((moved != means).all()) and bool((moved > means).any()) and bool((moved < means).any())
    torch.testing.assert_close(moved, means, rtol=2.0**-22, atol=1e-30)
    assert torch.equal(other.scales, g.scales) and not torch.equal(perturbed(g, 2).whole().means, moved)


def test_one_that_disagrees_is_not_timed(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = cycle([0.2, 0.1, 0.1, 0.5])  # three draws of rounding, then the other set
    monkeypatch.setattr(bench_render, "difference", lambda a, b: next(found))
    with pytest.raises(SystemExit) as ended:
        report(tmp_path, "--opt", "", "fused_interp")
    assert ended.value.code == 1 and "own fused_interp disagrees: off by 5.0e-01" in capsys.readouterr().out
    rows = json.loads((tmp_path / "out.json").read_text())["views"][0]["rows"]
    assert "ms" in rows["own"] and "ms" not in rows["own fused_interp"]


# ---- gsplat's kernels


def test_gsplat_and_ours(tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_render, "find_peer", lambda wanted, device: (GSPLAT, None))
    found = report(tmp_path)
    assert found["environment"]["gsplat"] == "stand-in"
    camera, lidar = found["views"]
    assert list(camera["rows"]) == ["own", "gsplat conic", "gsplat eval3d"] and list(lidar["rows"]) == ["own"]
    mine, conic, exact = (row["counts"] for row in camera["rows"].values())
    assert conic["contributing"] == pytest.approx(mine["contributing"], rel=0.3)
    assert exact["contributing"] == pytest.approx(TINY_PAIRS, rel=0.03)
    assert conic["tiles"] == exact["tiles"] == 4 * 2  # of 16 pixels


def test_pairs_of_both_where_gsplat_drops_little() -> None:
    """The results that test_on_a_gpu expects, by the stand-in's projection."""
    mine = Own(stages_with("", CPU), random(WIDE, 0, None, CPU), "camera")
    peer = Gsplat(GSPLAT, "eval3d", mine.gaussians.whole(), mine.view)
    assert peer.counts().contributing == pytest.approx(mine.counts().contributing, rel=0.01)


def test_pairs_of_conics_one_by_one() -> None:
    """Every pixel goes through its tile's list until a Gaussian would take T to 0.0001."""
    view = view_float32(make_camera_view(40, 20, 30.0))
    g = to_float32(make_gaussians(in_frustum(view, 150, 3, 9), opacities=(0.3, 0.99), scales=(0.2, 0.9)))
    peer = Gsplat(GSPLAT, "conic", g, view)
    projected, lists = peer.listed()
    pairs = pair_list(lists, 40, 20)
    alpha = alphas(projected["means2d"][0], projected["conics"][0], g.opacities, 40, 20).flatten(1)
    expected = torch.zeros(len(pairs.rays), 8, 4, dtype=torch.int64)
    for k, rays in enumerate(pairs.rays):
        members = pairs.gaussians[pairs.offsets[k] : pairs.offsets[k + 1]].tolist()
        for w, warp in enumerate(rays.split(32)):
            T = dict.fromkeys(warp[warp >= 0].tolist(), 1.0)
            for i in members:
                if not T:
                    break
                n_open, used = len(T), 0
                for ray in list(T):
                    a = float(alpha[i, ray])
                    if a > 0 and T[ray] * (1 - a) <= 1e-4:
                        del T[ray]
                    elif a > 0:
                        T[ray], used = T[ray] * (1 - a), used + 1
                expected[k, w] += torch.tensor([1, n_open, used, used > 0])
    arrays = projected["means2d"][0], projected["conics"][0], g.opacities
    found = conic_counts(*arrays, pairs, 40)
    assert torch.equal(found, expected)
    assert peer.counts() == summed(expected, pairs, 800)
    assert 0 < peer.counts().contributing < peer.counts().open < 800 * 150


def test_the_peer_looks_from_the_middle_of_the_exposure() -> None:
    view = view_float32(make_camera_view(24, 18, 20.0, "top_to_bottom"))
    still = standing(view, mid_exposure(view))
    torch.testing.assert_close(mid_exposure(still), mid_exposure(view))
    assert still.camera.shutter == "global" and not still.rays().delays.any()


@pytest.mark.gpu
def test_on_a_gpu(tmp_path: Path, wide: None) -> None:
    """Both look at nearly the same pairs. By the rules of their bounds, worked out on a CPU, counts differ by 0.3 % at most, images by
    0.0001; the rest of the margins is for the kernels' arithmetic and for the bound of alpha (0.99, gsplat: 0.999)."""
    out = tmp_path / "out.json"
    main(["--workloads", "random", "--size", "small", "--rounds", "2", "--warmup", "1", "--peer", "--out", str(out)])
    for view in json.loads(out.read_text())["views"]:
        rows = view["rows"]
        assert all(row["status"] is None and row["ms"]["backward"]["min"] > 0 for row in rows.values())
        if view["sensor"] == "camera":
            mine = rows["own"]["counts"]["contributing"]
            assert rows["gsplat eval3d"]["counts"]["contributing"] == pytest.approx(mine, rel=0.02)
            assert rows["gsplat eval3d"]["image_difference"] < 0.005
