# SPDX-License-Identifier: Apache-2.0
"""Lidar returns as depths in an image: their pixels, their loss in a step, and measurements at them."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peer_standin import STANDIN, peer_stages
from splat_scenes import Motion, make_lidar, rays_view
from tiny_capture import tiny_capture, tiny_config, tiny_scene, tiny_state
from torch import Tensor
from torch.nn import functional as F

import nurec_lite.evaluate
from nurec_lite.base.errors import ConfigError
from nurec_lite.base.left_out import LeftOut
from nurec_lite.capture.deskew import project_world_points, world_points
from nurec_lite.capture.pack import write_pack
from nurec_lite.capture.types import Capture, ImageFrame
from nurec_lite.cli.reconstruction import Reconstruction
from nurec_lite.config import DataConfig, LossWeights, RenderConfig, TrainConfig
from nurec_lite.evaluation.measure import evaluate, held_out
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.peer.depth import ImagedReturns, expected_depth, project_returns, returns_in_image
from nurec_lite.render import render
from nurec_lite.splat.render import CameraImage
from nurec_lite.splat.views import CameraView, camera_view
from nurec_lite.train import run
from nurec_lite.training.state import TrainState
from nurec_lite.training.step import render_frame, step

CPU = torch.device("cpu")
RIG = torch.eye(4, dtype=torch.float64)  # x forward, y left, z up
AHEAD = torch.tensor([[0, 0, 1, 1.0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]]).double()  # a camera, 1 m before it


# Returns in an image


def pinhole() -> CameraView:
    camera = Camera("c", 20, 10, 10.0, 10.0, 10.0, 5.0, torch.eye(4, dtype=torch.float64))
    return CameraView(AHEAD, AHEAD, 0.0, 0.0, camera)


def sweep_of(ranges: Tensor, returned: list[bool] | None = None) -> Sweep:
    none, hit = torch.zeros(len(ranges)), torch.tensor(returned or [True] * len(ranges), dtype=torch.bool)
    return Sweep(none, ranges, none, none, none, hit)


def returns_at(points: list[list[float]], returned: list[bool] | None = None) -> ImagedReturns:
    """Returns of a lidar at the rig's origin."""
    place = torch.tensor(points, dtype=torch.float64)
    lidar = rays_view(make_lidar(), F.normalize(place, dim=-1), torch.zeros(len(place)).double(), T_world_lidar=RIG)
    return project_returns(lidar, sweep_of(place.norm(dim=-1), returned), pinhole())


def test_where_returns_fall_in_an_image() -> None:
    found = returns_at([[11.0, 0.25, 0.35], [5.0, -1.0, 1.0], [21.0, 19.9, 0.01]])
    # 10 m before the camera: 0.25 px left and 0.35 px above (10, 5); 4 m: 2.5 px right, 2.5 above; 20 m: 9.95 px left
    assert [divmod(p, 20) for p in found.pixels.tolist()] == [(4, 9), (2, 12), (4, 0)]
    assert found.depths.tolist() == pytest.approx([10, 4, 20])


def test_returns_outside_behind_or_too_near_and_rays_that_did_not_return_do_not_count() -> None:
    wide = [[11.0, -10.1, 0.0], [11.0, 10.1, 0.0], [11.0, 0.0, 5.1], [11.0, 0.0, -5.1]]
    ahead, behind, near = [11.0, -0.5, -0.5], [-9.0, 0.0, 0.0], [1.1, 0.0, 0.0]
    found = returns_at([*wide, behind, near, ahead, ahead], [True] * 7 + [False])
    assert found.pixels.tolist() == [5 * 20 + 10] and found.depths.tolist() == pytest.approx([10])


def test_a_moving_lidar_places_each_return_by_its_own_pose() -> None:
    ahead, times = torch.tensor([[1.0, 0.0, 0.0]] * 3).double(), torch.tensor([0.0, 0.5, 1.0]).double()
    lidar = rays_view(make_lidar(), ahead, times, Motion((2.0, 0.0, 0.0)), RIG)  # from 1 m behind to 1 m before
    found = project_returns(lidar, sweep_of(torch.full((3,), 11.0).double()), pinhole())
    assert found.depths.tolist() == pytest.approx([9, 10, 11])


def flat_image(distance: float, opacity: float) -> CameraImage:
    full = torch.ones(10, 20, dtype=torch.float64)
    return CameraImage(full[..., None].expand(-1, -1, 3), distance * full, opacity * full)


def test_errors_of_depth() -> None:
    found = returns_at([[11.0, -0.5, -0.5], [5.0, -0.2, -0.2]])  # z of 10 and 4 in pixel (5, 10)
    along = 1 / math.sqrt(1 + 2 * 0.05**2)  # z of the unit ray through (10.5, 5.5)
    errors = found.errors(flat_image(distance=4.0, opacity=0.5), pinhole())
    assert errors.tolist() == pytest.approx([10 - 8 * along, 8 * along - 4])
    assert found.errors(flat_image(0.0, 0.0), pinhole()).tolist() == pytest.approx([10, 4])


@pytest.mark.parametrize("split", ["interp", "side"])
def test_returns_come_from_all_sweeps_of_the_moment_that_may_be_used(split: str) -> None:
    capture = tiny_capture().with_split(split)
    assert capture.split is not None
    for number, frame in enumerate(capture.images):
        view = camera_view(capture, frame, CPU)
        found = returns_in_image(capture, capture.split.train_sweeps, number, view)
        assert (found is None) == (split == "interp" and number in capture.split.test_images)
        if found is not None:
            pixels, z = seen_from_the_middle(capture, frame)
            assert len(z) > 20 and sorted(found.depths.tolist()) == pytest.approx(sorted(z.tolist()), rel=1e-5)
            assert Counter(found.pixels.tolist()) == Counter(pixels.tolist())
    twice = returns_in_image(capture, (0, 0), 0, camera_view(capture, capture.images[0], CPU))
    once = returns_in_image(capture, (0,), 0, camera_view(capture, capture.images[0], CPU))
    assert twice is not None and once is not None and len(twice.pixels) == 2 * len(once.pixels)


def seen_from_the_middle(capture: Capture, frame: ImageFrame) -> tuple[Tensor, Tensor]:
    """Flat pixels and z of all returns of that moment inside the image, in double precision, from the capture's own poses."""
    (sweep_frame,) = (s for s in capture.sweeps if s.index == frame.index)
    sweep = sweep_frame.load()
    points = world_points(sweep_frame, sweep, capture.lidar(sweep_frame.sensor))
    camera = replace(capture.camera(frame.sensor), shutter="global")
    places, z = project_world_points(camera, frame, points)
    pixels, size = places.floor().long(), torch.tensor([camera.width, camera.height])
    inside = sweep.returned & (z >= 0.2) & (pixels >= 0).all(-1) & (pixels < size).all(-1)
    return (pixels[:, 1] * camera.width + pixels[:, 0])[inside], z[inside]


# Training


def depth_state(**weights: float) -> TrainState:
    """The state that `nurec_lite.training.start.make_state` gives: shots without rays, and one opacity."""
    config = tiny_config(loss=LossWeights(**weights))
    config.model.lidar_opacity = False
    state = tiny_state(config)
    return replace(state, plan=replace(state.plan, lidar_rays=0))


def gradients_of_a_step(range_weight: float) -> tuple[dict[str, Tensor | None], dict[str, Tensor]]:
    """The optimizer's gradients, and the terms."""
    found: dict[str, Tensor | None] = {}

    def note(state: TrainState) -> None:
        found.update({name: p.grad for name, p in state.scene.parameters().items()})

    stages, state = (
        peer_stages().replaced(optimize=note, density=lambda stages, state: None),
        depth_state(range=range_weight),
    )
    state.step = 3
    result = step(stages, state)
    return found, result.terms


def test_the_term_range_is_the_mean_error_of_depth_and_enters_with_its_weight() -> None:
    (without, terms), (with_it, _) = gradients_of_a_step(0.0), gradients_of_a_step(2.0)
    state, stages = depth_state(), peer_stages()
    capture = state.plan.capture
    frame = capture.images[state.plan.load(3).images[0].index]
    view = camera_view(capture, frame, CPU)
    depth = expected_depth(render_frame(stages, state.scene, view), view).flatten()
    pixels, z = seen_from_the_middle(capture, frame)
    term = (depth[pixels] - z.float()).abs().mean()
    assert len(z) > 20 and float(term.detach()) > 0.1
    assert set(terms) == {"image", "range", "opacity", "scale", "exposure"}
    assert float(terms["range"]) == pytest.approx(float(term.detach()), rel=1e-4)
    (wanted,) = torch.autograd.grad(2 * term, [state.scene.gaussians.means])
    a, b = without["means"], with_it["means"]
    assert a is not None and b is not None and wanted.abs().max() > 0
    torch.testing.assert_close(b - a, wanted, rtol=1e-3, atol=1e-4 * float(wanted.abs().max()))
    assert without["lidar_logits"] is None


def test_a_step_without_rays_has_no_term_range() -> None:
    stages, state = peer_stages(), depth_state()
    state.config.train.lidar_rays = 0
    assert "range" not in step(stages, state).terms


def test_a_sweep_is_loaded_once_an_image() -> None:
    stages, state, loads = peer_stages(), depth_state(), Counter[int]()
    capture = state.plan.capture

    def counted(number: int) -> Callable[[], Sweep]:
        def load() -> Sweep:
            loads[number] += 1
            return capture.sweeps[number].load()

        return load

    sweeps = tuple(replace(s, load=counted(i)) for i, s in enumerate(capture.sweeps))
    state.plan = replace(state.plan, capture=replace(capture, sweeps=sweeps))
    for state.step in range(32):
        step(stages, state)
    assert capture.split is not None
    assert loads == dict.fromkeys(capture.split.train_sweeps, 2)  # two cameras


def test_returns_of_reduced_images_are_found_anew() -> None:
    """Those of whole images, which come later in a run, stand at other pixels."""
    stages, (whole, early, late) = peer_stages(), (depth_state() for _ in range(3))
    for state in (early, late):
        state.config.train.coarse = 0.5
        state.plan = replace(state.plan, coarse=True)
    late.progress = 0.5
    plain, reduced, then = (float(step(stages, state).terms["range"]) for state in (whole, early, late))
    assert then == pytest.approx(plain, rel=1e-6)
    assert reduced != plain and reduced == pytest.approx(plain, rel=0.2)


def test_training_lowers_both_terms_and_relocates() -> None:
    stages, state, terms = peer_stages(), depth_state(), []
    for state.step in range(32):
        terms.append(step(stages, state).terms)
    for name in ("image", "range"):
        first, last = (torch.stack([t[name] for t in part]).mean() for part in (terms[:16], terms[16:]))
        assert last < 0.9 * first, name
    assert len(state.scene.gaussians) > len(tiny_scene().gaussians)


# Measuring


def test_lidar_errors_are_those_of_depth_in_images_of_the_same_moment() -> None:
    capture, scene = tiny_capture(), tiny_scene()
    found, errors = evaluate(peer_stages(), scene, capture, held_out(capture)), []
    for i in held_out(capture).images:
        frame = capture.images[i]
        view = camera_view(capture, frame, CPU)
        depth = expected_depth(render_frame(peer_stages(), scene, view), view).flatten()
        pixels, z = seen_from_the_middle(capture, frame)
        errors.append((depth[pixels] - z).abs())
    medians, every = [f.lidar_median_abs_m for f in found.frames], torch.cat(errors)
    assert medians == pytest.approx([float(e.quantile(0.5)) for e in errors], rel=1e-3)
    assert found.metrics["lidar_median_abs_m"] == pytest.approx(float(every.quantile(0.5)), rel=1e-3)
    assert found.metrics["lidar_mean_abs_m"] == pytest.approx(float(every.mean()), rel=1e-3)
    others = ("lidar_median_sq_m2", "lidar_opacity_half", "intensity_rmse", "drop_accuracy", "chamfer_m")
    assert all(math.isnan(found.metrics[name]) for name in others)  # type: ignore[arg-type]
    assert found.sweeps == () and [f.sensor for f in found.frames] == ["camera_0", "camera_1"] * 2


def test_without_sweeps_nothing_is_said_of_lidar() -> None:
    capture = tiny_capture().with_split("side")
    found = evaluate(peer_stages(), tiny_scene(), capture, replace(held_out(capture), images=(1,)))
    assert math.isnan(found.metrics["lidar_median_abs_m"])  # type: ignore[arg-type]
    assert "lidar_errors" not in found.metrics and found.frames[0].lidar_median_abs_m is None


# The commands


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, Any]]:
    """Checkpoint of two steps with render=gsplat, and its metrics; loading gsplat gives the stand-in."""
    pytest.importorskip("tensorboard")
    monkeypatch.setattr("nurec_lite.peer.rasterize.check_device", lambda device: None)
    monkeypatch.setattr("nurec_lite.peer.rasterize.load_peer", lambda device: STANDIN)
    write_pack(tiny_capture(), tmp_path / "tiny.pack", image_format="png")
    data = DataConfig(kind="pack", root=str(tmp_path / "tiny.pack"))
    config = tiny_config(out=str(tmp_path / "run"), data=data, render="gsplat")
    config.train = TrainConfig(steps=2, lidar_rays=128, tensorboard=True)
    return tmp_path / "run" / "checkpoint.pt", run(config)


def test_a_run_says_how_it_was_measured_and_its_checkpoint_remembers(
    trained: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    (checkpoint, metrics), folder = trained, trained[0].parent
    stored = json.loads((folder / "metrics.json").read_text())
    assert stored["lidar_errors"] == "image depth" and stored["chamfer_m"] is None
    page = (folder / "report.html").read_text()
    assert "render=gsplat has no lidar" in page and "camera_0, median error" in page
    assert "range" in (folder / "history.csv").read_text().splitlines()[0].split(",")
    nurec_lite.evaluate.work([f"checkpoint={checkpoint}", "device=cpu"])
    again = json.loads(next(folder.glob("evaluate-interp-test-step*/metrics.json")).read_text())
    assert all(again[name] == metrics[name] for name in ("psnr", "lidar_median_abs_m", "lidar_errors"))
    assert re.search(r"Lidar errors are of +image depth", capsys.readouterr().out)


def test_a_checkpoint_of_the_peer_can_be_measured_with_our_renderer(trained: tuple[Path, dict[str, Any]]) -> None:
    nurec_lite.evaluate.work([f"checkpoint={trained[0]}", "device=cpu", "render=own", "ops=reference"])
    metrics = json.loads(next(trained[0].parent.glob("evaluate-interp-test-step*-*/metrics.json")).read_text())
    assert "lidar_errors" not in metrics and metrics["chamfer_m"] > 0


def rendering(folder: Path, **changes: Any) -> list[str]:
    config = RenderConfig(checkpoint=str(folder / "checkpoint.pt"), times=[0.45], render="gsplat", **changes)
    job = Reconstruction(config, peer_stages(), tiny_scene(), tiny_capture(), CPU, {"step": 7.0}, [])
    return sorted(p.name for p in render(job, LeftOut())[1].glob("*.png"))


def test_rendering_leaves_lidars_out_unless_they_were_asked_for(tmp_path: Path) -> None:
    assert rendering(tmp_path) == ["camera_0_t0000.450.png", "camera_1_t0000.450.png"]
    with pytest.raises(ConfigError, match=r"gsplat draws images alone, no lidar; leave lidar out of sensors, or use"):
        rendering(tmp_path, sensors=["camera_0", "lidar"])
