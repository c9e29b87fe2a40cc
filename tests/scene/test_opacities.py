# SPDX-License-Identifier: Apache-2.0
"""Two opacities of a Gaussian: cameras see one, a lidar the other, and each learns from its own sensor alone."""

from dataclasses import replace

import pytest
import torch
from splat_scenes import F64, POSE, make_camera_view, make_gaussians, make_lidar, make_lidar_view, make_sky, tensor
from torch import Tensor
from torch.autograd import gradcheck

from nurec_lite.geometry.tracks import Tracks
from nurec_lite.scene.collect import collect_at, collect_gaussian_parameters
from nurec_lite.scene.gaussians import LIDAR_VALUES, Gaussians, activate, log_odds, seen
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.views import CameraView, LidarView
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.step import render_frame, render_sweep

PLACES = tensor([0.1, 0.2, 4.0], [-0.3, 0.1, 5.0], [0.3, -0.2, 6.0], [0.0, 0.0, 5.5])  # in front of the camera
FORWARD = tensor(
    [0.0, -1, 0, 0], [0, 0, -1, 0], [1, 0, 0, 0], [0, 0, 0, 1]
)  # a lidar that looks along the camera's axis


def scene_of(own: bool = True) -> tuple[Scene, dict[str, CameraView | LidarView]]:
    """A few Gaussians, in double precision, that a camera and a lidar see."""
    camera = make_camera_view(7, 5, 8.0)
    lidar = make_lidar_view(make_lidar(5, 64, 0.2, -0.2), T_world_lidar=POSE @ FORWARD, sector=(-0.4, 0.4))
    g = make_gaussians(PLACES, scales=(0.3, 0.6), coefficients=4)
    lidar_logits = torch.randn(4, LIDAR_VALUES + own, dtype=F64)
    store = Gaussians(
        g.means, g.quats, g.scales.log(), log_odds(g.opacities), g.sh[:, :1], g.sh[:, 1:], lidar_logits,
        torch.zeros(4, dtype=torch.int64),
    )  # fmt: skip
    empty = torch.zeros(0, dtype=F64)
    tracks = Tracks((), (), empty.view(0, 3), (0,), empty, empty.view(0, 3), empty.view(0, 4))
    scene = Scene(store, make_sky(), tracks, tracks.translations, tracks.quaternions, torch.zeros(1, 2, 3, dtype=F64))
    return scene, {"camera": camera, "lidar": lidar}


def rendered(scene: Scene, view: CameraView | LidarView) -> Tensor:
    stages = reference_stages()
    if isinstance(view, CameraView):
        return render_frame(stages, scene, view).colour
    returns = render_sweep(stages, scene, view)
    return torch.stack([returns.distance, *returns.values()])


def test_activation_gives_both() -> None:
    g = scene_of()[0].gaussians
    values = activate(g)
    torch.testing.assert_close(values["opacities"], torch.sigmoid(g.opacity_logits))
    torch.testing.assert_close(values["lidar_opacities"], torch.sigmoid(g.lidar_logits[:, 2]))
    torch.testing.assert_close(values["lidar"], torch.sigmoid(g.lidar_logits[:, :2]))
    assert values["lidar"].is_contiguous()  # kernels take it as it is


def test_without_one_of_its_own_the_lidar_sees_the_camera_s() -> None:
    values = activate(scene_of(own=False)[0].gaussians)
    assert values["lidar_opacities"] is values["opacities"] and values["lidar"].shape == (4, 2)
    assert seen(values, by_lidar=True)["opacities"] is seen(values, by_lidar=False)["opacities"]


@pytest.mark.parametrize("own", [True, False])
def test_each_view_is_given_what_its_sensor_sees(own: bool) -> None:
    scene, _ = scene_of(own)
    camera = torch.sigmoid(scene.gaussians.opacity_logits)
    lidar = torch.sigmoid(scene.gaussians.lidar_logits[:, 2]) if own else camera
    worlds = collect_at(scene, torch.zeros(3, dtype=F64), by_lidar=(True, False, True))
    for world, expected in zip(worlds, (lidar, camera, lidar), strict=True):
        torch.testing.assert_close(world.opacities, expected)
    torch.testing.assert_close(collect_gaussian_parameters(scene, 0.0).opacities, camera)
    torch.testing.assert_close(collect_gaussian_parameters(scene, 0.0, by_lidar=True).opacities, lidar)


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_a_sensor_tells_its_own_opacity_alone(sensor: str) -> None:
    """Its gradient is that of finite differences; that of the other opacity is exactly 0."""
    scene, views = scene_of()
    g = scene.gaussians

    def of(camera: Tensor, lidar: Tensor) -> Tensor:
        logits = torch.cat([g.lidar_logits[:, :LIDAR_VALUES], lidar[:, None]], dim=1)
        store = replace(g, opacity_logits=camera, lidar_logits=logits)
        return rendered(replace(scene, gaussians=store), views[sensor])

    inputs = [x.clone().requires_grad_() for x in (g.opacity_logits, g.lidar_logits[:, LIDAR_VALUES])]
    assert gradcheck(of, inputs, atol=1e-7, rtol=1e-5)
    found = torch.autograd.grad(of(*inputs).square().sum(), inputs, allow_unused=True)
    result, other = found if sensor == "camera" else found[::-1]
    assert result.abs().max() > 1e-3 and (other is None or not other.any())


def test_a_gaussian_opaque_to_the_lidar_alone_is_seen_by_it_alone() -> None:
    scene, views = scene_of()
    g = scene.gaussians
    clear = torch.full_like(g.opacity_logits, -20.0)
    none = replace(scene, gaussians=Gaussians(**{name: value[:0] for name, value in vars(g).items()}))
    lidar_s = replace(scene, gaussians=replace(g, opacity_logits=clear))
    camera_s = replace(
        scene, gaussians=replace(g, lidar_logits=torch.cat([g.lidar_logits[:, :2], clear[:, None]], dim=1))
    )
    torch.testing.assert_close(rendered(lidar_s, views["camera"]), rendered(none, views["camera"]))
    torch.testing.assert_close(rendered(camera_s, views["lidar"]), rendered(none, views["lidar"]))
    torch.testing.assert_close(rendered(lidar_s, views["lidar"]), rendered(scene, views["lidar"]))
    torch.testing.assert_close(rendered(camera_s, views["camera"]), rendered(scene, views["camera"]))
    assert float((rendered(scene, views["lidar"]) - rendered(none, views["lidar"])).abs().max()) > 0.1
