# SPDX-License-Identifier: Apache-2.0
"""Bilateral grids: slicing, loss terms, learning, and held-out images, which get the grid of their neighbours in time."""

import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from strangers import SCENE, put, rewrite
from tiny_capture import tiny_capture, tiny_config, tiny_scene, tiny_state
from torch import Tensor

from nurec_lite.backends import base_stages
from nurec_lite.capture.types import Capture, ImageFrame
from nurec_lite.config import Config, TrainConfig
from nurec_lite.evaluation.measure import corrections, image_of
from nurec_lite.scene.bilateral import sliced, variation
from nurec_lite.scene.calibration import Calibration, none_known
from nurec_lite.scene.scene import Scene, exposed, exposure
from nurec_lite.training.baseline import next_batch, reference_stages
from nurec_lite.training.checkpoint import CheckpointError, load_checkpoint
from nurec_lite.training.loop import train
from nurec_lite.training.shots import ShotPlan, Shots
from nurec_lite.training.start import make_state
from nurec_lite.training.step import render

CPU, F64 = torch.device("cpu"), torch.float64


def config_of(steps: int = 6, **training: object) -> Config:
    config = tiny_config(train=TrainConfig(steps=steps, lidar_rays=128, checkpoint_seconds=0.0, **training))  # type: ignore[arg-type]
    return replace(config, model=replace(config.model, calibrate=True, knot_seconds=0.3, bilateral_grid=[4, 3, 2]))


def known_of(scene: Scene) -> tuple[Calibration, Tensor]:
    known = scene.calibration
    assert known is not None and known.bilateral is not None
    return known, known.bilateral


def drawn(*shape: int, seed: int = 0, low: float = 0.0, high: float = 1.0) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


# ---- slicing


def sliced_by_a_loop(grid: Tensor, image: Tensor) -> Tensor:
    """Pixel by pixel, from the eight cells about it."""
    height, width, found = image.shape[0], image.shape[1], torch.empty_like(image)
    for v, u in itertools.product(range(height), range(width)):
        colour = image[v, u]
        luminance = min(max(float(0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]), 0.0), 1.0)
        shares = (luminance, v / (height - 1) if height > 1 else 0.5, u / (width - 1) if width > 1 else 0.5)
        at = [share * (n - 1) for share, n in zip(shares, grid.shape[1:], strict=True)]
        numbers = torch.zeros(12, dtype=F64)
        for corner in itertools.product((0, 1), repeat=3):
            cells = [math.floor(place) + c for place, c in zip(at, corner, strict=True)]
            weight = math.prod(1 - abs(place - cell) for place, cell in zip(at, cells, strict=True))
            if weight > 0:
                numbers += weight * grid[:, cells[0], cells[1], cells[2]]
        found[v, u] = colour + numbers.view(3, 4) @ torch.cat([colour, torch.ones(1, dtype=F64)])
    return found


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (5, 1), (13, 9)], ids=str)
@pytest.mark.parametrize("cells", [(1, 1, 1), (4, 8, 8), (2, 1, 3), (1, 5, 31)], ids=str)
def test_it_is_the_plain_loop(size: tuple[int, int], cells: tuple[int, int, int]) -> None:
    """Colours below 0 and above 1 among them."""
    grid, image = drawn(12, *cells, low=-0.5, high=0.5), drawn(*size, 3, seed=1, low=-0.3, high=1.4)
    torch.testing.assert_close(sliced(grid, image), sliced_by_a_loop(grid, image), atol=1e-12, rtol=1e-12)


def test_zeros_change_nothing() -> None:
    image = torch.rand(31, 33, 3)
    assert torch.equal(sliced(torch.zeros(12, 4, 8, 8), image), image)


def test_gradients_reach_the_grid_and_the_colours_with_their_luminance() -> None:
    grid, image = drawn(12, 3, 2, 4, low=-0.5, high=0.5), drawn(5, 3, 3, seed=1, low=0.05, high=0.95)
    assert torch.autograd.gradcheck(sliced, (grid.requires_grad_(), image.requires_grad_()), eps=1e-6, atol=1e-7)


def test_variation_is_that_of_neighbours_in_place_luminance_and_time() -> None:
    grids = drawn(2, 3, 12, 4, 1, 5)
    squares = [
        (grids[:, 1:] - grids[:, :-1]).square(),
        (grids[:, :, :, 1:] - grids[:, :, :, :-1]).square(),
        (grids[..., 1:] - grids[..., :-1]).square(),
    ]
    torch.testing.assert_close(variation(grids), torch.stack([s.mean() for s in squares]).sum())
    assert variation(torch.ones(2, 3, 12, 4, 1, 5)) == 0


@pytest.mark.parametrize("shape", [(2, 3, 12, 4, 1, 5), (1, 1, 12, 2, 2, 2), (1, 1, 12, 1, 1, 1)], ids=str)
def test_the_gradient_of_variation(shape: tuple[int, ...]) -> None:
    assert torch.autograd.gradcheck(variation, drawn(*shape).requires_grad_())


# ---- in a scene


def test_a_grid_is_linear_between_knots_and_holds_beyond_them() -> None:
    calibration = none_known(tiny_capture(), 0.1, "cpu", [5, 4, 3])
    assert calibration.bilateral is not None and calibration.bilateral.shape[2:] == (12, 3, 4, 5)
    values = torch.randn_like(calibration.bilateral)
    calibration.bilateral = values
    of, last = values[1], len(calibration.knots) - 1
    for place, expected in ((-5.0, of[0]), (0.25, 0.75 * of[0] + 0.25 * of[1]), (last + 5.0, of[last])):
        found = calibration.grid(1, calibration.knots[0] + 0.1 * place)
        assert found is not None
        torch.testing.assert_close(found, expected)


def test_without_the_key_a_scene_is_what_it_was() -> None:
    calibration = none_known(tiny_capture(), 0.1, "cpu")
    assert calibration.bilateral is None and calibration.grid(0, calibration.knots[0]) is None
    assert "bilateral" not in calibration.parameters() and "local" not in calibration.found()


def test_what_was_found_is_reported() -> None:
    calibration = none_known(tiny_capture(), 0.1, "cpu", [2, 2, 2])
    assert calibration.bilateral is not None
    calibration.bilateral[1, 0, 3, 1, 0, 0] = -0.07
    assert str(corrections(replace(tiny_scene(), calibration=calibration))["corrections"]).endswith(", local 7 %")


def fitted(cells: list[int] | None) -> float:
    """Distance between an image and its target. The camera lifts the shadows of one side, and turns the lights of the other red."""
    scene, moment = tiny_scene(), torch.tensor(0.0, dtype=F64)
    scene = replace(scene, calibration=none_known(tiny_capture(), 0.1, "cpu", cells))
    assert scene.calibration is not None
    image = drawn(24, 40, 3).float()
    left, light = torch.linspace(1, 0, 40)[None, :, None], image.mean(-1, keepdim=True)
    target = image + 0.3 * left * (1 - light) + 0.3 * (1 - left) * light * torch.tensor([1.0, -0.5, -0.5])
    names = ("exposure_drift", "vignetting", *(("bilateral",) if cells else ()))
    learned = [p.requires_grad_() for name, p in scene.parameters().items() if name in (*names, "exposure")]
    adam = torch.optim.Adam(learned, lr=0.02)
    for _ in range(150):
        drift = scene.calibration.exposure_drift[0, 0]
        error = (exposed(scene, 0, image, exposure(scene, 0, drift, moment)) - target).square().mean()
        adam.zero_grad()
        error.backward()
        adam.step()
    return float(error.detach().sqrt())


def test_it_learns_a_local_change_that_exposure_and_vignetting_cannot() -> None:
    without, with_it = fitted(None), fitted([4, 3, 3])
    assert without > 0.05 and with_it < 0.1 * without


# ---- checkpoints and held-out images


class PowerCutError(Exception):
    pass


def test_a_resumed_run_is_bitwise_an_uninterrupted_one(tmp_path: Path) -> None:
    def until_the_third(plan: ShotPlan, at: int) -> Shots:
        if at == 3:
            raise PowerCutError
        return next_batch(plan, at)

    whole = make_state(config_of(), tiny_capture(), CPU)
    train(reference_stages(), whole, tmp_path / "whole.pt")
    with pytest.raises(PowerCutError):
        cut = reference_stages().swap("test", next_batch=until_the_third)
        train(cut, make_state(config_of(), tiny_capture(), CPU), tmp_path / "cut.pt")
    resumed = make_state(config_of(resume=str(tmp_path / "cut.pt")), tiny_capture(), CPU)
    assert resumed.step == 3 and known_of(resumed.scene)[1].any()
    train(reference_stages(), resumed, tmp_path / "cut.pt")
    for name, value in whole.scene.parameters().items():
        other = resumed.scene.parameters()[name]
        assert torch.equal(value, other), name
        assert torch.equal(whole.optimizer.state[value]["exp_avg"], resumed.optimizer.state[other]["exp_avg"]), name


def test_a_grid_that_no_training_leaves_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    train(reference_stages(), make_state(config_of(1), tiny_capture(), CPU), path)
    assert load_checkpoint(path, "cpu")["config"]["model"]["bilateral_grid"] == [4, 3, 2]
    whole = path.read_bytes()
    for change, message in (
        (lambda t: t[:, :, :11].clone(), r"bilateral must be a tensor \[2, \d, 12, any, any, any\]"),
        (lambda t: t[..., :0].clone(), "bilateral must be grids of one cell at least"),
        (lambda t: t + math.nan, "bilateral must be numbers from"),
    ):
        path.write_bytes(whole)
        rewrite(path, put(*SCENE, "bilateral", value=change))
        with pytest.raises(CheckpointError, match=message):
            load_checkpoint(path, "cpu")


def test_a_grid_cannot_be_added_to_a_run_without_one(tmp_path: Path) -> None:
    plain = config_of(1)
    plain.model.bilateral_grid = None
    train(reference_stages(), make_state(plain, tiny_capture(), CPU), tmp_path / "plain.pt")
    with pytest.raises(CheckpointError, match=r"was made with model\.bilateral_grid=null, but this run has \[4,3,2\]"):
        make_state(config_of(resume=str(tmp_path / "plain.pt")), tiny_capture(), CPU)


def test_a_run_from_before_there_were_grids_goes_on(tmp_path: Path) -> None:
    path, plain = tmp_path / "checkpoint.pt", config_of(2)
    plain.model.bilateral_grid = None
    train(reference_stages(), make_state(plain, tiny_capture(), CPU), path)
    rewrite(path, lambda content: content["config"]["model"].pop("bilateral_grid"))
    again = replace(plain, train=replace(plain.train, resume=str(path), steps=3))
    state = make_state(again, tiny_capture(), CPU)
    train(reference_stages(), state, path)
    assert state.step == 3 and state.scene.calibration is not None and state.scene.calibration.bilateral is None


def test_a_held_out_image_gets_what_its_neighbours_in_time_found() -> None:
    capture, scene = tiny_capture(), tiny_scene()
    assert capture.split is not None
    frame = capture.images[capture.split.test_images[0]]
    calibration = none_known(capture, 0.1, "cpu", [2, 2, 2])
    near = calibration.weights(torch.tensor(frame.time_mid, dtype=F64)) > 0
    assert calibration.bilateral is not None and near.sum() == 2
    scene = replace(scene, calibration=calibration)
    plain = image_of(reference_stages(), scene, capture, frame)
    calibration.bilateral[:, ~near] = 0.5
    assert torch.equal(image_of(reference_stages(), scene, capture, frame), plain)
    calibration.bilateral[:, near, 3] = -0.05  # added to red
    red = image_of(reference_stages(), scene, capture, frame)
    torch.testing.assert_close(red[..., 0], (plain[..., 0] - 0.05).clamp(min=0), atol=1e-6, rtol=0)
    assert torch.equal(red[..., 1:], plain[..., 1:])


def test_no_held_out_image_is_looked_at(tmp_path: Path) -> None:
    found = []
    for capture in (tiny_capture(), with_other_held_out_images()):
        state = make_state(config_of(), capture, CPU)
        train(reference_stages(), state, tmp_path / "checkpoint.pt")
        found.append(state.scene.parameters())
    assert all(torch.equal(value, found[1][name]) for name, value in found[0].items())


def with_other_held_out_images() -> Capture:
    def inverted(frame: ImageFrame) -> ImageFrame:
        return replace(frame, load=lambda: 255 - frame.load())

    capture = tiny_capture()
    assert capture.split is not None
    held = set(capture.split.test_images)
    images = tuple(inverted(frame) if i in held else frame for i, frame in enumerate(capture.images))
    return replace(capture, images=images)


@pytest.mark.parametrize("name", ["reference", "native"])
def test_the_moment_of_a_view_chooses_the_grid(name: str) -> None:
    """The kernel that corrects views knows nothing of grids, and need not."""
    stages = reference_stages() if name == "reference" else base_stages("native", CPU)
    state = tiny_state(config_of())
    known, grids = known_of(state.scene)
    with torch.no_grad():
        grids.copy_(drawn(*grids.shape, low=-0.2, high=0.2))
    shots = stages.feed.place(stages, state, state.plan.load(1))
    rendered = render(stages, state.scene, shots)
    (image,), (seen,), camera = rendered.images, rendered.exposed, shots.images[0].camera
    grid = known.grid(camera, shots.images[0].view.moment())
    assert grid is not None
    log_gain = state.scene.exposure[camera, 0] - state.scene.exposure[:, 0].mean(0)  # all that is learned is still zero
    torch.testing.assert_close(seen, sliced(grid, image.colour * torch.exp(log_gain)))
    (gradient,) = torch.autograd.grad(seen.sum(), grids)
    near = torch.zeros(gradient.shape[:2], dtype=torch.bool)
    near[camera] = known.weights(shots.images[0].view.moment()) > 0
    assert torch.equal(gradient.flatten(2).any(2), near)
