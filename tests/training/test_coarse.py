# SPDX-License-Identifier: Apache-2.0
"""From coarse to fine: reduced images and their views belong together, and a run changes to whole images once, with any options."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from recorder_standin import install
from stepping import assert_close, no_sync_of, steps
from tiny_capture import tiny_capture, tiny_config, tiny_scene, tiny_shots, tiny_state
from torch import Tensor

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import ConfigError
from nurec_lite.base.options import parameters_of
from nurec_lite.capture.images import block_mean
from nurec_lite.capture.pack import read_pack, write_pack
from nurec_lite.capture.types import Capture
from nurec_lite.config import Config, DataConfig, DensityConfig, ModelConfig, TrainConfig
from nurec_lite.geometry.camera import SHUTTERS, pixel_directions, project_points, shutter_fraction
from nurec_lite.geometry.se3 import quat_rotate
from nurec_lite.native import ops
from nurec_lite.native.operators.rays import rays
from nurec_lite.opt.all import resident
from nurec_lite.opt.all.cuda_graph import CudaGraph
from nurec_lite.opt.lab import batch, pinned, prefetch
from nurec_lite.opt.post import workers
from nurec_lite.readers import open_capture
from nurec_lite.scene.scene import exposed, exposure
from nurec_lite.splat.views import CameraView, camera_view
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.coarse import coarse_share, resize
from nurec_lite.training.loop import train
from nurec_lite.training.shots import Shots
from nurec_lite.training.stages import Stages
from nurec_lite.training.start import make_state
from nurec_lite.training.state import StepResult, TrainState
from nurec_lite.training.step import render_frame, step

CPU = torch.device("cpu")
LENS = (-0.2, 0.05, 0.002, -0.003, 0.01)
OPTIONS: dict[str, Callable[[Stages], Stages]] = {
    "resident": lambda s: resident.apply(s, share=0.5, jpeg="host"), "pinned": pinned.apply, "prefetch": prefetch.apply,
    "workers": lambda s: workers.apply(s, count=1, ahead=2),
}  # fmt: skip
FEEDING = ("prefetch", "resident", "pinned", "workers", "workers pinned prefetch", "workers pinned prefetch resident")


def capture_of(**changes: Any) -> Capture:
    """The capture with changed cameras."""
    capture = tiny_capture()
    return replace(capture, cameras=tuple(replace(camera, **changes) for camera in capture.cameras))


def views(capture: Capture) -> tuple[CameraView, CameraView]:
    """Views of a whole image, and of the reduced one."""
    frame = capture.images[3]
    return camera_view(capture, frame, "cpu"), camera_view(capture, frame, "cpu", 2)


def centres(view: CameraView) -> Tensor:  # [H, W, 2] float64
    """Centres of the blocks of 2x2 pixels, in pixels of the whole image."""
    v, u = torch.meshgrid(
        torch.arange(view.camera.height // 2).double(), torch.arange(view.camera.width // 2).double(), indexing="ij"
    )
    return 2 * torch.stack([u, v], dim=-1) + 1


def coarse_config(coarse: float | str = 0.3, steps: int = 10, **density: Any) -> Config:
    train = TrainConfig(steps=steps, lidar_rays=128, coarse=coarse, checkpoint_seconds=1e9)
    return tiny_config(train=train, density=replace(tiny_config().density, **density))


# ---- a reduced image and its view


@pytest.mark.parametrize("distortion", [(), LENS], ids=["pinhole", "lens"])
@pytest.mark.parametrize("size", [(40, 24), (41, 25), (2, 3)], ids=str)
def test_rays_go_through_the_centres_of_the_blocks(size: tuple[int, int], distortion: tuple[float, ...]) -> None:
    whole, half = views(capture_of(width=size[0], height=size[1], distortion=distortion))
    pixels, _ = project_points(whole.camera, pixel_directions(half.camera, torch.float64))
    torch.testing.assert_close(pixels, centres(whole), rtol=0, atol=1e-9)


@pytest.mark.parametrize("shutter", SHUTTERS)
@pytest.mark.parametrize("size", [(40, 24), (41, 25), (3, 2)], ids=str)
def test_a_block_is_read_in_the_mean_of_its_pixels_times_from_where_the_sensor_is_then(
    size: tuple[int, int], shutter: str
) -> None:
    whole, half = views(capture_of(width=size[0], height=size[1], shutter=shutter))
    fractions = shutter_fraction(whole.camera, centres(whole)).flatten()
    q, place = whole.pose(fractions.float())
    rays = half.rays()
    times = whole.time_start + fractions * (whole.time_end - whole.time_start)
    torch.testing.assert_close(half.time_mid + rays.delays.double(), times, rtol=0, atol=1e-8)
    torch.testing.assert_close(half.centre() + rays.origins, place, rtol=0, atol=1e-5)
    directions = quat_rotate(q, pixel_directions(half.camera).flatten(0, 1))
    torch.testing.assert_close(rays.directions, directions, rtol=0, atol=1e-6)


@pytest.mark.parametrize("shutter", SHUTTERS)
def test_kernels_read_the_same_of_it(shutter: str) -> None:
    ops.load()
    _, half = views(capture_of(width=41, height=25, shutter=shutter, distortion=LENS))
    mine, plain = rays(half), half.rays()
    for name in ("origins", "directions", "delays"):
        torch.testing.assert_close(getattr(mine, name), getattr(plain, name), rtol=0, atol=2e-6)


def test_image_and_camera_are_those_of_data_downscale(tmp_path: Path) -> None:
    write_pack(tiny_capture(), tmp_path / "tiny.pack")
    whole, half = (read_pack(tmp_path / "tiny.pack", downscale=factor).with_split("interp") for factor in (1, 2))
    state = tiny_state(coarse_config())
    state.plan = replace(state.plan, capture=whole)
    (shot,) = resize(reference_stages(), state, state.plan.load(0)).images
    (other,) = replace(state.plan, capture=half).load(0).images
    assert torch.equal(shot.image, other.image) and shot.index == other.index
    mine, theirs = shot.view.camera, other.view.camera
    assert all(getattr(mine, key) == getattr(theirs, key) for key in ("width", "height", "fx", "fy", "cx", "cy"))
    assert mine.T_rig_cam is whole.camera(mine.name).T_rig_cam


def test_the_render_of_a_reduced_view_is_the_mean_of_the_whole_one_s_blocks() -> None:
    """The scene is a sky and a few large Gaussians; the tolerance covers the parts that are not linear in a block; half a pixel of the
    whole image to any side is off."""
    scene, stages = tiny_scene(), reference_stages()
    with torch.no_grad():
        scene.gaussians.log_scales.add_(2.0).clamp_(min=0.0)
        scene.gaussians.opacity_logits[40:] = -20.0
        scene.sky.copy_(torch.randn_like(scene.sky))
        whole, half = views(tiny_capture())
        blocks = render_frame(stages, scene, whole).colour.unflatten(1, (-1, 2)).unflatten(0, (-1, 2)).mean((1, 3))

        def error(**shift: float) -> float:
            moved = {key: getattr(half.camera, key) + pixels for key, pixels in shift.items()}
            view = replace(half, camera=replace(half.camera, **moved))  # type: ignore[arg-type]
            return float((render_frame(stages, scene, view).colour - blocks).abs().mean())

        assert error() < 0.0015
        assert min(error(cx=0.25), error(cx=-0.25), error(cy=0.25), error(cy=-0.25)) > 4 * error()


def test_a_camera_sees_alike_at_either_size() -> None:
    """Exposure, its drift, vignetting and grid go by the place in the image."""
    config = replace(tiny_config(), model=replace(tiny_config().model, calibrate=True, bilateral_grid=[3, 2, 2]))
    scene = tiny_state(config).scene
    assert scene.calibration is not None and scene.calibration.bilateral is not None
    with torch.no_grad():
        for learned in (scene.exposure, scene.calibration.vignetting, scene.calibration.bilateral):
            learned.copy_(0.1 * torch.randn_like(learned))
        image, drift = torch.rand(3).expand(24, 40, 3), 0.1 * torch.randn(2, 3)
        moment = torch.tensor(0.2, dtype=torch.float64)
        whole, half = (exposed(scene, 1, one, exposure(scene, 1, drift, moment)) for one in (image, image[:12, :20]))
    blocks = whole.unflatten(1, (-1, 2)).unflatten(0, (-1, 2)).mean((1, 3))
    assert float((whole - image).abs().mean()) > 0.02
    torch.testing.assert_close(half, blocks, rtol=0, atol=0.02)


# ---- when


@pytest.mark.parametrize(("width", "height", "share"), [(1242, 375, 0.0), (1000, 1000, 0.0), (1920, 1080, 0.65)])
def test_auto_reduces_large_images(width: int, height: int, share: float) -> None:
    capture = tiny_capture()
    camera = replace(capture.cameras[0], width=width, height=height)
    config = coarse_config("auto")
    assert coarse_share(config, replace(capture, cameras=(camera,))) == share
    assert coarse_share(coarse_config(0.3), replace(capture, cameras=(camera,))) == 0.3


@pytest.mark.parametrize(
    ("coarse", "progress", "halved"), [(0.0, 0.0, False), (0.3, 0.0, True), (0.3, 0.29, True), (0.3, 0.3, False), (0.3, 0.9, False)]
)  # fmt: skip
def test_the_progress_of_the_run_decides(coarse: float, progress: float, halved: bool) -> None:
    state, shots = tiny_state(coarse_config(coarse)), tiny_shots((0, 1), (0,), coarse=coarse > 0)
    state.progress = progress
    found = resize(reference_stages(), state, shots)
    if not halved:
        assert found is shots
        return
    assert [s.image.shape for s in found.images] == [(12, 20, 3)] * 2
    for mine, other in zip(found.images, shots.images, strict=True):
        assert torch.equal(mine.image, block_mean(other.image, 2)) and mine.view is other.reduced
        assert (mine.index, mine.camera) == (other.index, other.camera)
    assert found.sweeps == shots.sweeps and found.step == shots.step


def test_a_step_without_images_is_as_it_was() -> None:
    state, shots = tiny_state(coarse_config()), tiny_shots((), (0,))
    assert resize(reference_stages(), state, shots) is shots


def test_a_camera_that_cannot_be_halved_is_named() -> None:
    capture = capture_of(height=1)
    with pytest.raises(
        ConfigError, match=r"train\.coarse is 0\.3, but camera_0 has 40x1 pixels, .*; leave train\.coarse"
    ):
        make_state(coarse_config(), capture, CPU)


# ---- runs


def stages_of(*names: str) -> Stages:
    return build_stages({name: parameters_of(name) for name in names}, base_stages("native", CPU))


def watched(stages: Stages, seen: list[tuple[int, ...]]) -> Stages:
    """Notes the heights of the images that each step learns from."""

    def around(learn: Callable[..., StepResult]) -> Callable[..., StepResult]:
        def noting(stages: Stages, state: TrainState, shots: Shots) -> StepResult:
            seen.append(tuple(shot.image.shape[0] for shot in shots.images))
            assert all(shot.image.shape[0] == shot.view.camera.height for shot in shots.images)
            return learn(stages, state, shots)

        return noting

    return stages.wrap(learn=around)


def trained(stages: Stages, state: TrainState, folder: Path) -> list[tuple[int, ...]]:
    seen: list[tuple[int, ...]] = []
    stages = watched(stages, seen)
    try:
        train(stages, state, folder / "checkpoint.pt")
    finally:
        stages.close()
    return seen


@pytest.mark.parametrize("names", FEEDING)
def test_whatever_feeds_a_run_changes_at_the_same_step_and_learns_bitwise_the_same(tmp_path: Path, names: str) -> None:
    """Options do their work on a CPU here."""
    plain, fed, stages = tiny_state(coarse_config()), tiny_state(coarse_config()), reference_stages()
    for name in names.split():
        stages = OPTIONS[name](stages)
    expected = trained(reference_stages(), plain, tmp_path)
    assert expected == [(12,)] * 3 + [(24,)] * 7
    assert trained(stages, fed, tmp_path) == expected
    assert_close(fed, plain)


def test_zero_is_the_run_without_it(tmp_path: Path) -> None:
    """Reducing changes the result, too."""
    never, absent, some = (tiny_state(coarse_config(coarse)) for coarse in (0.0, 0.0, 0.3))
    without = reference_stages().replaced(resize=lambda stages, state, shots: shots)
    assert trained(reference_stages(), never, tmp_path) == [(24,)] * 10 == trained(without, absent, tmp_path)
    trained(reference_stages(), some, tmp_path)
    assert_close(never, absent)
    assert not torch.equal(never.scene.gaussians.means, some.scene.gaussians.means)


def street(coarse: float, **model: Any) -> TrainState:
    """The bundled street, small, with a model that corrects both cameras."""
    small = ModelConfig(points=2500, actor_points=50, raised_points=300, far_points=200, sky_height=16, **model)
    config = Config(
        device="cpu", data=DataConfig(downscale=4, frames=[0, 5]), model=small, density=DensityConfig(every=4, cap=3200),
        train=TrainConfig(steps=10, lidar_rays=512, coarse=coarse, evaluate=False),
    )  # fmt: skip
    return make_state(config, open_capture(config.data), CPU)


@pytest.mark.parametrize("optioned", [False, True], ids=["defaults", "options"])
def test_the_bundled_street_trains(tmp_path: Path, optioned: bool) -> None:
    model = {"calibrate": True, "bilateral_grid": [4, 4, 2]} if optioned else {}
    stages, state = base_stages("native", CPU), street(0.3, **model)
    if optioned:
        stages = stages_of("fused_interp", "collect_once", "no_sync", "fused_adam", "fused_ssim", "fused_sky")
        stages = batch.apply(stages, images=2, sweeps=1, scale_rates=True, one_launch=True)
        stages = prefetch.apply(workers.apply(stages, count=1, ahead=2))
        state.plan = stages.feed.frames(state.plan)
    height, images = state.plan.capture.cameras[0].height, 2 if optioned else 1
    seen = trained(stages, state, tmp_path)
    assert seen == [(height // 2,) * images] * 3 + [(height,) * images] * 7
    assert state.history.trouble() is None
    assert all(value.isfinite().all() for value in state.scene.parameters().values())


def test_lists_of_whole_images_have_a_capacity_of_their_own() -> None:
    """Without it the first steps after the change would fail and be done again."""
    stages, state = stages_of("fused_interp", "no_sync"), tiny_state(coarse_config(every=1000))
    steps(stages, state, 16)
    kinds = set(no_sync_of(stages).capacities._needed)
    assert kinds == {"camera_0 20x12", "camera_1 20x12", "camera_0 40x24", "camera_1 40x24", "lidar"}
    assert no_sync_of(stages).redone == 0


def test_a_graph_is_recorded_anew_and_every_launch_sees_the_image_and_the_view_of_its_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch)
    plain, graphed = (tiny_state(coarse_config(0.8, every=1000)) for _ in range(2))
    below = ("fused_interp", "collect_once", "no_sync", "fused_adam", "fused_ssim")
    without, stages = stages_of(*below), stages_of(*below, "cuda_graph")
    for one in (without, stages):
        monkeypatch.setattr(no_sync_of(one).capacities, "of", lambda view: 4096)
    for number in range(32):  # whole images from step 16 on
        plain.progress = graphed.progress = number / 20
        expected, found = step(without, plain).terms, step(stages, graphed).terms
        for name in expected:
            assert float(found[name]) == pytest.approx(float(expected[name]), rel=1e-3, abs=1e-5), (number, name)
        plain.step = graphed.step = number + 1
    own = stages.update.learn
    assert isinstance(own, CudaGraph)
    sizes = [tuple(shape for _, shape in images) for (images, _), *_ in own._steps]  # type: ignore[misc, attr-defined]
    assert set(sizes) == {((12, 20, 3),), ((24, 40, 3),)}
    assert own.recorded == len(own._steps) and own.launched >= 32 - 2 * own.recorded
