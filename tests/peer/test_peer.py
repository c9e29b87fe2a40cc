# SPDX-License-Identifier: Apache-2.0
"""Images of render=gsplat: on a CPU around a stand-in for its rasterization, on a GPU by gsplat itself."""

import math
import sys
from dataclasses import fields, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from peer_standin import STANDIN, drawn, ours, peer_stages
from splat_scenes import (
    Motion,
    changed,
    in_frustum,
    make_camera_view,
    make_gaussians,
    make_pose,
    make_sky,
    to_float32,
    view_float32,
)  # fmt: skip
from tiny_capture import tiny_capture, tiny_config, tiny_scene
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import ConfigError, OptionError
from nurec_lite.capture.pack import write_pack
from nurec_lite.capture.types import Capture
from nurec_lite.config import DataConfig
from nurec_lite.geometry.harmonics import DEGREE_0
from nurec_lite.peer.depth import expected_depth
from nurec_lite.peer.rasterize import colour, load_peer
from nurec_lite.scene.gaussians import WorldGaussians
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.views import CameraView, camera_view
from nurec_lite.train import run
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.step import render_frame

CPU, GPU = torch.device("cpu"), torch.device("cuda")
needs_gsplat = pytest.mark.skipif(find_spec("gsplat") is None, reason="needs the package gsplat")


# An image


def one_gaussian(view: CameraView, column: int, row: int, z: float, grey: float, opacity: float) -> WorldGaussians:
    """A ball in the middle of a pixel."""
    c = view.camera
    local = torch.tensor([[(column + 0.5 - c.cx) / c.fx * z, (row + 0.5 - c.cy) / c.fy * z, z]], dtype=torch.float64)
    sh = torch.full((1, 1, 3), (grey - 0.5) / DEGREE_0, dtype=torch.float64)
    return changed(make_gaussians(local, coefficients=1), sh=sh, opacities=opacity, scales=0.01 * z)


def test_colour_depth_and_sky_of_a_pixel() -> None:
    view, sky = make_camera_view(), torch.zeros(3, 4, 8, dtype=torch.float64)  # the sigmoid of 0: a grey of 0.5
    image = drawn(one_gaussian(view, 2, 5, z=4.0, grey=0.9, opacity=0.75), view, sky)
    c = view.camera
    longer = math.sqrt(1 + ((2.5 - c.cx) / c.fx) ** 2 + ((5.5 - c.cy) / c.fy) ** 2)  # of the ray than of its z
    assert image.colour[5, 2].tolist() == pytest.approx([0.75 * 0.9 + 0.25 * 0.5] * 3)
    assert float(image.opacity[5, 2]) == pytest.approx(0.75)
    assert float(image.distance[5, 2]) == pytest.approx(0.75 * 4 * longer)
    assert float(expected_depth(image, view)[5, 2]) == pytest.approx(4)
    assert image.colour[0, 8].tolist() == pytest.approx([0.5] * 3)
    assert float(image.opacity[0, 8]) == float(expected_depth(image, view)[0, 8]) == 0


@pytest.mark.parametrize("coefficients", [1, 4, 9, 16])
def test_with_an_exact_response_it_is_our_image(coefficients: int) -> None:
    view, sky = make_camera_view(width=24, height=18, focal=20.0), make_sky()
    gaussians = make_gaussians(in_frustum(view, 60, 3, 12), scales=(0.02, 0.05), coefficients=coefficients)
    mine, theirs = ours(gaussians, view, sky), drawn(gaussians, view, sky)
    torch.testing.assert_close(theirs.colour, mine.colour)
    torch.testing.assert_close(theirs.opacity, mine.opacity)
    torch.testing.assert_close(theirs.distance, mine.distance, rtol=0.02, atol=1e-3)  # they differ within a Gaussian


def test_gradients_are_those_of_our_image() -> None:
    view, sky = make_camera_view(width=24, height=18, focal=20.0), make_sky()
    fixed = make_gaussians(in_frustum(view, 30, 3, 12), scales=(0.05, 0.3))
    names, weight, found = ("means", "quats", "scales", "opacities", "sh"), torch.rand(18, 24, 3).double(), []
    for draw in (ours, drawn):
        leaves = {name: getattr(fixed, name).clone().requires_grad_() for name in names}
        image = draw(replace(fixed, **leaves), view, sky)
        found.append(torch.autograd.grad((weight * image.colour).sum(), list(leaves.values())))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(theirs, mine)


def test_a_rolling_shutter_stands_still_in_the_middle_of_its_exposure() -> None:
    rolling = make_camera_view(24, 18, 20.0, "top_to_bottom", Motion((0.4, 0.1, 0.6), (0.02, 0.05, 0.01), 0.03))
    still, sky = make_camera_view(24, 18, 20.0), make_sky()
    gaussians = make_gaussians(in_frustum(still, 40, 3, 12), scales=(0.05, 0.3))
    torch.testing.assert_close(
        drawn(gaussians, rolling, sky).colour, ours(gaussians, still, sky).colour, rtol=0, atol=1e-6
    )


def test_far_from_the_origin_of_the_world_single_precision_holds() -> None:
    images, far, sky = [], 4096.0, make_sky().float()  # metres that leave means and poses exact in single precision
    for place in ((0.0, 0.0, 0.0), (far, -far, 0.0)):
        torch.manual_seed(1)
        view = make_camera_view(24, 18, 20.0, T_world_cam=make_pose((0, 0, 0), place))
        local = (in_frustum(view, 40, 3, 12) * 64).round() / 64
        gaussians = make_gaussians(local, T=make_pose((0, 0, 0), place), scales=(0.05, 0.3))
        images.append(drawn(to_float32(gaussians), view_float32(view), sky))
    torch.testing.assert_close(images[1].colour, images[0].colour)
    torch.testing.assert_close(images[1].distance, images[0].distance)


def test_a_distorted_lens_is_an_error_with_a_remedy() -> None:
    view, sky = make_camera_view(distortion=(0.1, 0.0, 0.0, 0.0, 0.0)), make_sky()
    gaussians = one_gaussian(view, 2, 5, 4.0, 0.9, 0.75)
    with pytest.raises(ConfigError, match=r"camera c has lens distortion, which render=gsplat .* use render=own"):
        drawn(gaussians, view, sky)
    flat = replace(view, camera=replace(view.camera, distortion=(0.0,) * 5))
    assert drawn(gaussians, flat, sky).colour.shape == (7, 9, 3)


# Poses of tracks


def scene_with_a_car() -> Scene:
    """The tiny scene; 60 of its Gaussians lie on the car that drives ahead."""
    scene = tiny_scene()
    g, on_car = scene.gaussians, slice(0, 60)
    g.node[on_car] = 1
    g.means[on_car] = (torch.rand(60, 3) - 0.5) * scene.tracks.sizes[0].float()
    g.log_scales[on_car] = math.log(0.2)
    return scene


def still_view(capture: Capture, number: int) -> CameraView:
    """View of an image with a global shutter in place of its own."""
    cameras = tuple(replace(c, shutter="global") for c in capture.cameras)
    return camera_view(replace(capture, cameras=cameras), capture.images[number], CPU)


def test_poses_of_tracks_get_the_gradients_that_they_get_from_ours() -> None:
    weight, scene, found = torch.rand(24, 40, 3), scene_with_a_car(), []
    poses = [scene.track_translations.requires_grad_(), scene.track_quaternions.requires_grad_()]
    for stages in (reference_stages(), peer_stages()):
        image = render_frame(stages, scene, still_view(tiny_capture(), 8)).colour
        found.append(torch.autograd.grad((weight * image).sum(), poses))
    for mine, theirs in zip(*found, strict=True):
        assert mine.abs().max() > 0.1
        torch.testing.assert_close(theirs, mine, rtol=1e-3, atol=1e-3 * float(mine.abs().max()))


# Choices


@pytest.mark.parametrize(
    ("ops", "device", "render", "message"),
    [
        ("native", "cpu", "gsplat", r"render=gsplat runs on CUDA only, but the device is cpu; use render=own"),
        ("reference", "cuda", "gsplat", r"render=gsplat has no plain torch reference; leave ops=native, or use"),
        ("native", "cpu", "gplat", r"render is 'gplat', but must be one of own, gsplat"),
        ("natve", "cuda", "gsplat", r"ops is 'natve', but must be one of native, reference"),
    ],
)
def test_what_cannot_run_is_a_sentence(ops: str, device: str, render: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        base_stages(ops, torch.device(device), render)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gsplat", None)
    with pytest.raises(ConfigError, match=r"render=gsplat needs the package gsplat \(.*\); pip install gsplat, or use"):
        load_peer(GPU)


def test_an_option_for_a_stage_of_the_peer_is_an_error_that_names_both() -> None:
    for stage in ("project", "tile", "render_camera", "render_lidar", "terms"):
        with pytest.raises(OptionError, match=rf"'render=gsplat' and 'other' both replace the stage '{stage}'"):
            peer_stages().swap("other", **{stage: print})
    free = ("image_loss", "gather", "collect", "optimize", "density", "try_step", "place")
    assert peer_stages().swap("other", **dict.fromkeys(free, print)).update.optimize is print
    assert build_stages({"workers": {"count": 1, "ahead": 1}}, peer_stages()).changes.claims["next_batch"] == "workers"


def test_our_stages_have_lidar_whatever_claims_them() -> None:
    assert (
        reference_stages().renders_lidar and reference_stages().swap("split_backward", render_lidar=print).renders_lidar
    )
    assert not peer_stages().renders_lidar and not peer_stages().wrap(render_lidar=lambda inner: inner).renders_lidar


# gsplat itself


def on_gpu(gaussians: WorldGaussians) -> WorldGaussians:
    single = to_float32(gaussians)
    return replace(single, **{f.name: getattr(single, f.name).to(GPU) for f in fields(single)})


def far_and_small(coefficients: int = 9) -> tuple[WorldGaussians, CameraView, Tensor]:
    """Gaussians of 5 to 12 pixels, small in angle: their images are ellipses, which 0.3 pixels^2 more widen by 0.6 % at most."""
    view = make_camera_view(width=320, height=200, focal=1500.0)
    gaussians = make_gaussians(in_frustum(view, 400, 60, 100), scales=(0.33, 0.48), coefficients=coefficients)
    single = view_float32(view)
    ends = {k: getattr(single, k).to(GPU) for k in ("T_world_sensor_start", "T_world_sensor_end")}
    return on_gpu(gaussians), replace(single, **ends), make_sky().float().to(GPU)


@needs_gsplat
@pytest.mark.gpu
@pytest.mark.parametrize("coefficients", [1, 4, 9, 16])
def test_gsplat_draws_our_image_of_small_far_gaussians(coefficients: int) -> None:
    gaussians, view, sky = far_and_small(coefficients)
    mine, theirs = ours(gaussians, view, sky), drawn(gaussians, view, sky, load_peer(GPU))
    assert mine.opacity.mean() > 0.3
    torch.testing.assert_close(theirs.opacity, mine.opacity, rtol=0, atol=0.02)
    torch.testing.assert_close(theirs.colour, mine.colour, rtol=0, atol=0.02)
    depths = [expected_depth(image, view)[mine.opacity > 0.5] for image in (mine, theirs)]
    assert float((depths[0] - depths[1]).abs().mean()) < 0.1  # of 60 to 100 m


@needs_gsplat
@pytest.mark.gpu
@pytest.mark.parametrize("coefficients", [1, 4, 9, 16])
def test_harmonics_of_gsplat_are_ours(coefficients: int) -> None:
    gaussians, view, _ = far_and_small(coefficients)
    torch.testing.assert_close(
        colour(gaussians, view, load_peer(GPU)), colour(gaussians, view, STANDIN), rtol=0, atol=1e-5
    )


@needs_gsplat
@pytest.mark.gpu
def test_gradients_through_gsplat_are_nearly_ours() -> None:
    gaussians, view, sky = far_and_small()
    names, found = ("means", "scales", "opacities", "sh"), []
    for draw in (ours, partial(drawn, peer=load_peer(GPU))):
        leaves = {name: getattr(gaussians, name).clone().requires_grad_() for name in names}
        image = draw(replace(gaussians, **leaves), view, sky)
        loss = image.colour.square().mean() + 1e-3 * image.distance.mean()
        found.append(torch.autograd.grad(loss, list(leaves.values())))
    for name, mine, theirs in zip(names, *found, strict=True):
        assert F.cosine_similarity(mine.flatten(), theirs.flatten(), dim=0) > 0.98, name


@needs_gsplat
@pytest.mark.gpu
def test_a_run_with_gsplat(tmp_path: Path) -> None:
    write_pack(tiny_capture(), tmp_path / "tiny.pack", image_format="png")
    data = DataConfig(kind="pack", root=str(tmp_path / "tiny.pack"))
    metrics = run(tiny_config(steps=60, out=str(tmp_path / "run"), data=data, render="gsplat", device="cuda"))
    columns = (tmp_path / "run" / "history.csv").read_text().splitlines()[0].split(",")
    assert metrics["psnr"] > 10 and metrics["lidar_errors"] == "image depth"  # type: ignore[operator]
    assert {"image", "range"} <= set(columns)
