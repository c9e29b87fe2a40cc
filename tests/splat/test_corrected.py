# SPDX-License-Identifier: Apache-2.0
"""Views with corrected poses, and the learning of the corrections."""

import math
from dataclasses import replace

import pytest
import torch
from splat_scenes import (
    CAMERA_MOTION,
    F64,
    LIDAR_MOTION,
    around,
    in_frustum,
    make_camera_view,
    make_gaussians,
    make_lidar,
    make_lidar_view,
)
from tiny_capture import tiny_capture, tiny_scene
from torch import Tensor

from nurec_lite.evaluation.measure import corrections
from nurec_lite.geometry.se3 import pose_matrix, rotvec_to_quat
from nurec_lite.scene.calibration import Calibration, none_known
from nurec_lite.scene.gaussians import WorldGaussians
from nurec_lite.scene.scene import exposed, exposure
from nurec_lite.splat.corrected import corrected, corrected_row
from nurec_lite.splat.project import project
from nurec_lite.splat.render import render_camera, render_lidar
from nurec_lite.splat.tiles import tile
from nurec_lite.splat.view_row import FIELDS, view_row
from nurec_lite.splat.views import CameraView, LidarView

View = CameraView | LidarView
NOW = torch.tensor(0.0, dtype=F64)
TURN, SHIFT = torch.tensor([0.02, -0.03, 0.01], dtype=F64), torch.tensor([0.3, -0.2, 0.1], dtype=F64)


def view_of(sensor: str) -> View:
    if sensor == "lidar":
        return make_lidar_view(make_lidar(8, 48), LIDAR_MOTION)
    return make_camera_view(17, 13, 16.0, *(("top_to_bottom", CAMERA_MOTION) if "moving" in sensor else ()))


def scene_before(view: View) -> WorldGaussians:
    local = in_frustum(view, 60, 3, 9) if isinstance(view, CameraView) else around(60, 3, 9)
    return make_gaussians(local, scales=(0.3, 0.9))


def turned(view: View, turn: Tensor, shift: Tensor) -> View:
    """The view by the definition T' = T exp(correction), with gradients of its own."""
    T = pose_matrix(rotvec_to_quat(turn), shift)
    ends = {name: getattr(view, name) @ T for name in ("T_world_sensor_start", "T_world_sensor_end")}
    return replace(view, row=None, **ends)


def learned(view: View, turn: Tensor, shift: Tensor) -> Calibration:
    """A calibration that corrects this view by that turn and shift: of a rig whose axes are the sensor's."""
    zeros, ones = torch.zeros(1, 3, dtype=F64), torch.ones(2, 1, dtype=F64)
    knots = torch.tensor([view.time_start - 1, view.time_end + 1], dtype=F64)
    drift = torch.zeros(1, 2, 2, 3, dtype=F64)
    camera = zeros, zeros.clone(), drift, zeros.clone(), torch.zeros(1, dtype=F64)
    return Calibration(knots, ("none of it",), ones * turn, ones * shift, *camera)


def at_the_rig(view: View) -> View:
    place = {"T_rig_cam" if isinstance(view, CameraView) else "T_rig_lidar": torch.eye(4, dtype=F64)}
    own = replace(view.sensor, **place)  # type: ignore[type-var, arg-type]
    return replace(view, **{"camera" if isinstance(view, CameraView) else "lidar": own})


SENSORS = ["still camera", "moving camera", "lidar"]


@pytest.mark.parametrize("sensor", SENSORS)
def test_a_row_is_that_of_the_corrected_poses(sensor: str) -> None:
    view = view_of(sensor)
    found = corrected_row(view_row(view).double(), TURN, SHIFT)
    expected = view_row(turned(view, TURN, SHIFT))
    for name, numbers in FIELDS.items():
        torch.testing.assert_close(found[numbers].float(), expected[numbers], atol=4e-6, rtol=4e-6, msg=name)


@pytest.mark.parametrize("sensor", SENSORS)
def test_a_view_is_where_its_correction_takes_it(sensor: str) -> None:
    view = at_the_rig(view_of(sensor))
    found, expected = corrected(view, learned(view, TURN, SHIFT)), turned(view, TURN, SHIFT)
    for name in ("T_world_sensor_start", "T_world_sensor_end"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name))
    assert corrected(view, None) is view and corrected(view, learned(view, 0 * TURN, 0 * SHIFT)).pose_delta is not None


@pytest.mark.parametrize("sensor", SENSORS)
def test_what_a_correction_learns_is_what_poses_would(sensor: str) -> None:
    """The sensor stands still to the last digit; a moving one is taken to turn about the middle of its way."""
    view = at_the_rig(view_of(sensor))
    g = scene_before(view)
    g = replace(g, means=g.means.clone().requires_grad_(), sh=g.sh[:, :1], velocities=torch.zeros_like(g.velocities))
    lists = tile(project(g, view), view)
    weights = torch.Generator().manual_seed(4)

    def gradient(seen: View, leaves: list[Tensor]) -> Tensor:
        if isinstance(seen, CameraView):
            out = render_camera(g, seen, lists, torch.zeros(3, 4, 8, dtype=F64))  # a sky that is the same everywhere
            parts = [out.colour, out.distance / 6]
        else:
            returns = render_lidar(g, seen, lists)
            parts = [returns.intensity, returns.drop, returns.distance / 6]
        weights.manual_seed(4)
        loss = sum((torch.randn(p.shape, generator=weights, dtype=F64) * p).sum() for p in parts)
        assert isinstance(loss, Tensor)
        return torch.cat([d.flatten() for d in torch.autograd.grad(loss, leaves)])

    turn, shift = (torch.zeros(3, dtype=F64, requires_grad=True) for _ in range(2))
    expected = gradient(turned(view, turn, shift), [turn, shift])
    calibration = learned(view, torch.zeros(3, dtype=F64), torch.zeros(3, dtype=F64))
    knots = calibration.rig_rotations.requires_grad_(), calibration.rig_translations.requires_grad_()
    found = gradient(corrected(view, calibration), list(knots)).view(2, 2, 3).sum(1).flatten()
    limit = 1e-9 if sensor == "still camera" else 0.1
    assert float((found - expected).norm() / expected.norm()) < limit


def test_a_correction_is_linear_between_knots_and_holds_beyond_them() -> None:
    capture = tiny_capture()
    calibration = none_known(capture, 0.1, "cpu")
    k = len(calibration.knots)
    assert calibration.knots[0] <= capture.images[0].time_start and calibration.knots[-1] >= capture.sweeps[-1].time_end
    values = torch.randn(k, 3)
    calibration.rig_translations = values
    for place, expected in ((-5.0, values[0]), (0.25, 0.75 * values[0] + 0.25 * values[1]), (k + 5.0, values[-1])):
        moment = calibration.knots[0] + 0.1 * place
        torch.testing.assert_close(calibration.weights(moment) @ values, expected)


def test_the_rig_moves_every_sensor_by_its_lever_and_a_camera_moves_alone() -> None:
    capture = tiny_capture()
    calibration, camera, lidar = none_known(capture, 0.1, "cpu"), capture.cameras[0], capture.lidars[0]
    moment = torch.tensor(capture.images[0].time_mid, dtype=F64)
    calibration.rig_rotations[:] = torch.tensor([0, 0, 0.01])
    calibration.rig_translations[:] = torch.tensor([0.5, 0, 0])
    T = pose_matrix(rotvec_to_quat(torch.tensor([0, 0, 0.01], dtype=F64)), torch.tensor([0.5, 0, 0], dtype=F64))
    for sensor, mount in ((camera, camera.T_rig_cam), (lidar, lidar.T_rig_lidar)):
        turn, shift, *_ = calibration.of(sensor, moment)
        expected = torch.linalg.inv(mount) @ T @ mount
        found = pose_matrix(rotvec_to_quat(turn.double()), shift.double())
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)  # a lever of a metre, turned by 0.01: 0.5e-4
    before, own = calibration.of(camera, moment)[1], torch.tensor([0.1, 0.2, 0.3])
    calibration.camera_translations[0] = own
    torch.testing.assert_close(calibration.of(camera, moment)[1], before + own)
    torch.testing.assert_close(calibration.of(lidar, moment)[0].norm(), torch.tensor(0.01))


def test_a_camera_that_sits_elsewhere_is_found() -> None:
    """It is off by a hundredth of a radian and 5 cm; 40 steps of Adam leave a fifth of the difference between the images."""
    view = at_the_rig(view_of("still camera"))
    assert isinstance(view, CameraView)
    calibration, sky = learned(view, 0 * TURN, 0 * SHIFT), torch.zeros(3, 4, 8, dtype=F64)
    calibration.cameras = (view.camera.name,)
    g = scene_before(view)
    true = turned(view, torch.tensor([0.0, 0.01, 0], dtype=F64), torch.tensor([0.05, 0, 0], dtype=F64))
    target = render_camera(g, true, tile(project(g, true), true), sky).colour  # type: ignore[arg-type]
    places = calibration.camera_rotations.requires_grad_(), calibration.camera_translations.requires_grad_()
    adam = torch.optim.Adam([{"params": [places[0]], "lr": 1e-3}, {"params": [places[1]], "lr": 5e-3}])
    errors = []
    for _ in range(40):
        seen = corrected(view, calibration)
        loss = (render_camera(g, seen, tile(project(g, seen), seen), sky).colour - target).square().mean()
        errors.append(float(loss.detach().sqrt()))
        adam.zero_grad()
        loss.backward()
        adam.step()
    assert errors[-1] < 0.2 * errors[0]


def test_what_was_found_is_reported() -> None:
    capture = tiny_capture()
    calibration = none_known(capture, 0.1, "cpu")
    calibration.camera_rotations[0, 1], calibration.camera_translations[0, 2] = math.radians(0.5), 0.03
    calibration.rig_translations[1, 0], calibration.exposure_drift[0, 1, 0, 2] = -0.2, math.log(0.8)
    calibration.vignetting[0], calibration.camera_offsets[0] = torch.tensor([0.1, 0.05, 0.05]), -0.0123
    result = corrections(replace(tiny_scene(), calibration=calibration))
    first = capture.cameras[0].name
    assert str(result["corrections"]).startswith(f"{first} 0.50° 30 mm -12.3 ms, ")
    assert str(result["corrections"]).endswith("rig 0.00° 200 mm, exposure 25 %, corners 22 %")
    assert corrections(tiny_scene()) == {}


def test_corners_are_darker_and_the_centre_is_what_it_was() -> None:
    capture, scene = tiny_capture(), tiny_scene()
    calibration = none_known(capture, 0.1, "cpu")
    calibration.vignetting[0] = torch.tensor([-0.2, 0.1, -0.3])
    scene = replace(scene, calibration=calibration)
    image = torch.rand(7, 11, 3) + 0.1
    seen, plain = (exposed(s, 0, image, exposure(s, 0, None, NOW)) for s in (scene, replace(scene, calibration=None)))
    for corner in ((0, 0), (0, 10), (6, 0), (6, 10)):
        torch.testing.assert_close(seen[corner], plain[corner] * math.exp(-0.4))
    torch.testing.assert_close(seen[3, 5], plain[3, 5])
    r2 = (3**2 + 1**2) / (5**2 + 3**2)
    torch.testing.assert_close(seen[4, 8], plain[4, 8] * math.exp(-0.2 * r2 + 0.1 * r2**2 - 0.3 * r2**3))
    torch.testing.assert_close(
        exposed(scene, 1, image, exposure(scene, 1, None, NOW)),
        exposed(replace(scene, calibration=None), 1, image, exposure(scene, 1, None, NOW)),
    )
