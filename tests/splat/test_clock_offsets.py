# SPDX-License-Identifier: Apache-2.0
"""Cameras whose clocks differ from the rig's: their poses, and the learning of their offsets."""

from dataclasses import replace

import pytest
import torch
from splat_scenes import CAMERA_MOTION, F64, in_frustum, make_camera_view, make_gaussians
from tiny_capture import tiny_capture
from torch import Tensor

from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.geometry.se3 import matrix_to_quat as quat_of
from nurec_lite.geometry.se3 import pose_matrix, quat_to_rotvec, rotvec_to_quat
from nurec_lite.scene.calibration import Calibration, none_known
from nurec_lite.splat.corrected import corrected
from nurec_lite.splat.project import project
from nurec_lite.splat.render import render_camera
from nurec_lite.splat.tiles import tile
from nurec_lite.splat.views import CameraView, camera_view, lidar_view

SKY = torch.zeros(3, 4, 8, dtype=F64)


def shifted_apart(found: Tensor, expected: Tensor) -> float:
    """Distance in metres; a radian counts as ten."""
    turn = quat_to_rotvec(quat_of(found[:3, :3].T @ expected[:3, :3]))
    return float((found - expected)[:3, 3].norm() + 10 * turn.norm())


def test_an_offset_looks_the_rig_s_path_up_later() -> None:
    """Poses differ at both ends of exposures that a shutter rolls through; terms of second order leave a hundredth of the way."""
    capture = tiny_capture()
    path, calibration = trajectory_of(capture), none_known(capture, 0.5, "cpu")
    calibration.camera_offsets[:] = torch.tensor([0.02, -0.02])
    frames = [frame for frame in capture.images if 0.1 < frame.time_mid < path.span[1] - 0.1]
    for frame in frames:
        view, offset = camera_view(capture, frame, "cpu"), 0.02 if frame.sensor == "camera_0" else -0.02
        found = corrected(view, calibration)
        for end in ("start", "end"):
            time, T = getattr(frame, f"time_{end}"), capture.camera(frame.sensor).T_rig_cam
            then, now = (path.at(t) @ T for t in (time + offset, time))
            pose = getattr(found, f"T_world_sensor_{end}").double()
            assert shifted_apart(pose, then) < 0.02 * shifted_apart(now, then) + 1e-4
        assert float(found.moment()) == pytest.approx(frame.time_mid + offset, abs=1e-7)


def test_what_is_left_falls_with_the_square_of_an_offset() -> None:
    """On a path of one turning and one speed, where half an offset is off by a quarter."""
    speed, rate, far = 9.0, 0.4, []

    def pose(time: float) -> Tensor:
        turned = rotvec_to_quat(torch.tensor([0, 0, rate * time], dtype=F64))
        angle = torch.tensor(rate * time, dtype=F64)
        place = speed / rate * torch.stack([angle.sin(), 1 - angle.cos(), 0 * angle])
        return pose_matrix(turned, place)

    def on_it(frame):  # type: ignore[no-untyped-def]
        return replace(frame, T_world_rig_start=pose(frame.time_start), T_world_rig_end=pose(frame.time_end))

    tiny = tiny_capture()
    capture = replace(tiny, images=tuple(map(on_it, tiny.images)), sweeps=tuple(map(on_it, tiny.sweeps)))
    frame, calibration = capture.images[8], none_known(capture, 0.5, "cpu")
    for offset in (0.2, 0.4):
        calibration.camera_offsets[:] = offset
        found = corrected(camera_view(capture, frame, "cpu"), calibration).T_world_sensor_end.double()
        expected = pose(frame.time_end + offset) @ capture.camera(frame.sensor).T_rig_cam
        far.append(float((found - expected)[:3, 3].norm()))
    assert 3.6 < far[1] / far[0] < 4.4


def test_the_lidar_s_clock_is_the_rig_s_and_without_one_the_first_camera_s() -> None:
    capture = tiny_capture()
    sweep = capture.sweeps[2]
    assert lidar_view(capture, sweep, sweep.load(), "cpu").velocity is None
    alone = replace(capture, lidars=(), sweeps=())
    for brought, clocks in ((capture, [False, False]), (alone, [True, False])):
        views = [camera_view(brought, brought.images[k], "cpu") for k in (0, 1)]
        assert {v.camera.name for v in views} == {"camera_0", "camera_1"}
        views.sort(key=lambda view: view.camera.name)
        assert [view.velocity is None for view in views] == clocks
    calibration = none_known(capture, 0.5, "cpu")
    calibration.camera_offsets[:] = 0.02
    view = lidar_view(capture, sweep, sweep.load(), "cpu")
    found = corrected(view, calibration)
    torch.testing.assert_close(found.T_world_sensor_start, view.T_world_sensor_start)
    assert float(found.moment()) == view.time_mid


def learning(view: CameraView) -> Calibration:
    rows, none = torch.zeros(2, 3, dtype=F64), torch.zeros(1, 3, dtype=F64)
    knots = torch.tensor([view.time_start - 1, view.time_end + 1], dtype=F64)
    offsets = torch.zeros(1, dtype=F64, requires_grad=True)
    drift = torch.zeros(1, 2, 2, 3, dtype=F64)
    return Calibration(knots, (view.camera.name,), rows, rows.clone(), none, none.clone(), drift, none.clone(), offsets)


def moving(view: CameraView) -> CameraView:
    return replace(view, velocity=torch.tensor([0.1, -0.4, 0.2, 3.0, -1.0, 8.0], dtype=F64))


@pytest.mark.parametrize("motion", ["still", "moving"])
def test_what_an_offset_learns_is_how_the_loss_changes(motion: str) -> None:
    """The change is a central difference of a loss in float64, so near that no response crosses 1/255 between them; rays of a camera that
    moves while it exposes turn about the middle of its way."""
    rolling = ("top_to_bottom", CAMERA_MOTION) if motion == "moving" else ()
    view = moving(make_camera_view(17, 13, 16.0, *rolling))
    g = make_gaussians(in_frustum(view, 60, 3, 9), scales=(0.3, 0.9))
    g = replace(g, means=g.means.clone().requires_grad_(), sh=g.sh[:, :1], velocities=torch.zeros_like(g.velocities))
    lists, calibration = tile(project(g, view), view), learning(view)
    weights = torch.randn(13, 17, 3, generator=torch.Generator().manual_seed(4), dtype=F64)

    def loss(seen: CameraView) -> Tensor:
        return (weights * render_camera(g, seen, lists, SKY).colour).sum()

    (found,) = torch.autograd.grad(loss(corrected(view, calibration)), calibration.camera_offsets)
    ends = []
    for seconds in (-1e-8, 1e-8):
        calibration.camera_offsets = torch.tensor([seconds], dtype=F64)
        with torch.no_grad():
            ends.append(loss(corrected(view, calibration)))
    expected = float(ends[1] - ends[0]) / 2e-8
    assert float(found) == pytest.approx(expected, rel=1e-4 if motion == "still" else 0.1)


def test_a_clock_that_is_off_is_found() -> None:
    """It is off by 20 ms: 60 steps of Adam find it to a tenth."""
    view = moving(make_camera_view(17, 13, 16.0))
    g, calibration = make_gaussians(in_frustum(view, 60, 3, 9), scales=(0.3, 0.9)), learning(view)
    calibration.camera_offsets = torch.tensor([0.02], dtype=F64)
    true = corrected(view, calibration)
    target = render_camera(g, true, tile(project(g, true), true), SKY).colour
    offsets = calibration.camera_offsets = torch.zeros(1, dtype=F64, requires_grad=True)
    adam = torch.optim.Adam([offsets], lr=1e-3)
    for _ in range(60):
        seen = corrected(view, calibration)
        loss = (render_camera(g, seen, tile(project(g, seen), seen), SKY).colour - target).square().mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
    assert offsets.item() == pytest.approx(0.02, rel=0.1)
