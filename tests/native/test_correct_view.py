# SPDX-License-Identifier: Apache-2.0
"""The operators correct_view and pose_gradient against nurec_lite.splat.corrected and .pose_delta, in float64."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from operators import check_schema
from splat_scenes import CAMERA_MOTION, LIDAR_MOTION, make_camera_view, make_lidar, make_lidar_view
from splat_scenes import view_float32 as in_float32
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.native import ops
from nurec_lite.native.operators.correct_view import CalibrationArgs, correct, pose_vjp
from nurec_lite.scene.calibration import OFFSETS, POSES, TRAINED, Calibration
from nurec_lite.splat.corrected import corrected
from nurec_lite.splat.pose_delta import pose_vjp_by_torch
from nurec_lite.splat.view_row import view_row
from nurec_lite.splat.views import CameraView, LidarView

View = CameraView | LidarView
F64 = torch.float64
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SENSORS = ["still camera", "moving camera", "lidar", "camera unknown"]
LEARNED = (*TRAINED, OFFSETS)
SIZES = (0, 1, 31, 33, 255, 257, 70_001)


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


def view_of(sensor: str) -> View:
    if sensor == "lidar":
        view: View = in_float32(make_lidar_view(make_lidar(8, 48), LIDAR_MOTION))
    else:
        view = in_float32(
            make_camera_view(17, 13, 16.0, *(("top_to_bottom", CAMERA_MOTION) if "moving" in sensor else ()))
        )
    velocity = torch.randn(6, generator=torch.Generator().manual_seed(5))
    return replace(view, row=view_row(view), velocity=None if sensor == "lidar" else velocity)


def calibration_for(view: View, known: bool, knots: int = 5, dtype: torch.dtype = torch.float32) -> Calibration:
    """Calibration of two cameras; the second one is the view's if it is known. Corrections are some degrees and decimetres."""
    generator = torch.Generator().manual_seed(7)
    shapes = (knots, 3), (knots, 3), (2, 3), (2, 3), (2, knots, 2, 3), (2, 3), (2,)
    values = [(0.05 * torch.randn(shape, generator=generator)).to(dtype) for shape in shapes]
    times = view.time_mid - 0.37 + 0.25 * torch.arange(knots, dtype=F64)
    return Calibration(times, ("another", view.sensor.name if known else "a third"), *values)


def on(thing: Any, device: str) -> Any:
    """The view or calibration with its tensors there."""
    tensors = {f.name: getattr(thing, f.name) for f in fields(thing)}
    return replace(thing, **{k: v.to(device) for k, v in tensors.items() if isinstance(v, Tensor)})


def in_float64(view: View) -> View:
    names = ("T_world_sensor_start", "T_world_sensor_end", "row", "velocity")
    return replace(view, **{name: getattr(view, name).double() for name in names if getattr(view, name) is not None})


def learning(calibration: Calibration) -> list[Tensor]:
    for name in LEARNED:
        setattr(calibration, name, getattr(calibration, name).requires_grad_())
    return [getattr(calibration, name) for name in LEARNED]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("knots", [2, 5])
@pytest.mark.parametrize("sensor", SENSORS)
def test_a_view_and_its_gradients_are_those_of_the_reference(sensor: str, knots: int, device: str) -> None:
    view, known = view_of(sensor), sensor.endswith("camera")
    single, double = (calibration_for(view, known, knots, dtype) for dtype in (torch.float32, F64))
    single = on(single, device)
    leaves, expected_leaves = learning(single), learning(double)
    found, expected = correct(on(view, device), single), corrected(in_float64(view), double)
    close = {"atol": 2e-6, "rtol": 2e-6}  # some roundings of float32 of coordinates within a few metres
    for name in ("T_world_sensor_start", "T_world_sensor_end", "row", "pose_delta", "drift", "middle"):
        a, b = getattr(found, name), getattr(expected, name)
        assert (a is None) == (b is None), name
        if a is not None:
            torch.testing.assert_close(a.detach().cpu().double(), b.detach(), msg=name, **close)
    assert (found.drift is not None) == known

    def grads(view: View, leaves: list[Tensor]) -> list[Tensor]:
        generator = torch.Generator().manual_seed(3)
        parts = [part for part in (view.pose_delta, view.drift) if part is not None]
        loss = sum((torch.randn(p.shape, generator=generator).to(p) * p).sum() for p in parts)
        assert isinstance(loss, Tensor)
        found = torch.autograd.grad(loss, leaves, allow_unused=True)
        return [torch.zeros_like(x) if d is None else d for d, x in zip(found, leaves, strict=True)]

    for name, a, b in zip(LEARNED, grads(found, leaves), grads(expected, expected_leaves), strict=True):
        torch.testing.assert_close(a.cpu().double(), b, msg=name, **close)


@pytest.mark.parametrize("device", DEVICES)
def test_only_one_output_may_be_used(device: str) -> None:
    view = view_of("still camera")
    for name, some in (("pose_delta", "rig_rotations"), ("drift", "exposure_drift")):
        calibration = on(calibration_for(view, True), device)
        learning(calibration)
        getattr(correct(on(view, device), calibration), name).sum().backward()
        gradient = getattr(calibration, some).grad
        assert gradient is not None and bool(gradient.isfinite().all()) and bool((gradient != 0).any())


def test_what_has_no_row_or_learns_its_poses_is_left_to_torch() -> None:
    view = view_of("still camera")
    calibration = calibration_for(view, True)
    assert correct(view, None) is view
    found = correct(replace(view, row=None), calibration)
    assert found.row is None and found.pose_delta is not None
    learned = replace(view, T_world_sensor_start=view.T_world_sensor_start.clone().requires_grad_())
    assert correct(learned, calibration).pose_delta is not None


def placed(n: int, device: str) -> list[Tensor]:
    """Means and quaternions, and their gradients. Most of these are exactly 0, as those of Gaussians that a view does not see."""
    generator = torch.Generator().manual_seed(n)
    means, quats = 30 * torch.randn(n, 3, generator=generator), torch.randn(n, 4, generator=generator)
    d = [torch.randn(n, k, generator=generator) * (torch.rand(n, 1, generator=generator) < 0.2) for k in (3, 4)]
    return [t.to(device) for t in (means, F.normalize(quats, dim=-1), *d)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sets", [(n,) for n in SIZES] + [(0, 0), (70_001, 33), (5, 0), (0, 5)], ids=str)
def test_the_gradient_of_a_pose_delta(sets: tuple[int, ...], device: str) -> None:
    centre = torch.tensor([3.0, -2.0, 0.5], device=device)
    parts = [placed(n, device) for n in sets]
    given = [t for part in parts for t in part[:2]], [t for part in parts for t in part[2:]]
    found = pose_vjp(centre, *given).cpu().double()
    doubles = [[t.cpu().double() for t in half] for half in given]
    expected = pose_vjp_by_torch(centre.cpu().double(), *doubles)
    size = pose_vjp_by_torch(centre.cpu().double(), doubles[0], [d.abs() for d in doubles[1]]).abs()
    # sums of float32 in some hundred thousand threads and then by halves, of products as large as means times gradients
    limit = 1e-6 * (1 + 40 * size.amax() if size.numel() else 1)
    assert float((found - expected).abs().amax()) <= float(limit)
    assert torch.equal(found, pose_vjp(centre, *given).cpu().double())  # in the same order each time


def known_of(device: str = "cpu", **changes: Any) -> tuple[Tensor, Tensor, Tensor, CalibrationArgs, int]:
    view = view_of("still camera")
    c = calibration_for(view, True)
    assert view.row is not None and view.velocity is not None
    learned = (getattr(c, name) for name in (*POSES, "exposure_drift", OFFSETS))
    known = CalibrationArgs(c.knots, view.moment(), c.mount(view.sensor), view.velocity, *learned)._replace(**changes)
    ends = view.T_world_sensor_start, view.T_world_sensor_end
    return (*(t.to(device) for t in (view.row, *ends)), CalibrationArgs(*(t.to(device) for t in known)), 1)  # type: ignore[return-value]


@pytest.mark.parametrize("device", DEVICES)
def test_torch_s_own_checks(device: str) -> None:
    row, start, end, known, camera = known_of(device)
    for t in known[4:]:
        t.requires_grad_()
    check_schema(torch.ops.nurec_lite.correct_view.default, (row, start, end, list(known), camera))
    grads = torch.randn(6, device=device), torch.randn(2, 3, device=device)
    detached = [t.detach() for t in known]
    check_schema(torch.ops.nurec_lite.correct_view_backward.default, (row, detached, camera, *grads))
    part = placed(9, device)
    check_schema(torch.ops.nurec_lite.pose_gradient.default, (torch.zeros(3, device=device), part[:2], part[2:]))


WRONG = {
    "knots, but must have at least 2": {"times": torch.zeros(1, dtype=F64)},
    "times is Float": {"times": torch.zeros(5)},
    "rig_rotations has shape": {"rig_rotations": torch.zeros(4, 3)},
    "camera_translations has shape": {"camera_translations": torch.zeros(3, 3)},
    "exposure_drift is Double": {"exposure_drift": torch.zeros(2, 5, 2, 3, dtype=F64)},
    "velocity has shape": {"velocity": torch.zeros(3)},
    "camera_offsets has shape": {"camera_offsets": torch.zeros(3)},
    "mount has shape": {"mount": torch.zeros(4, 4)},
    "moment has shape": {"moment": torch.zeros(1, dtype=F64)},
    "not contiguous": {"rig_translations": torch.zeros(3, 5).T},
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_arrays_are_refused(words: str) -> None:
    row, start, end, known, camera = known_of(**WRONG[words])
    with pytest.raises((ValueError, TypeError), match=words):
        torch.ops.nurec_lite.correct_view(row, start, end, list(known), camera)


def test_wrong_arguments_are_refused() -> None:
    row, start, end, known, _ = known_of()
    correct = torch.ops.nurec_lite.correct_view
    for camera in (-2, 2):
        with pytest.raises(ValueError, match=f"camera is {camera}, but must be -1"):
            correct(row, start, end, list(known), camera)
    with pytest.raises(ValueError, match="known has 7 tensors"):
        correct(row, start, end, list(known)[:7], 0)
    with pytest.raises(ValueError, match="view has shape"):
        correct(row[:60], start, end, list(known), 0)
    with pytest.raises(ValueError, match="start has shape"):
        correct(row, start[:3], end, list(known), 0)
    part, centre = placed(4, "cpu"), torch.zeros(3)
    for given, words in (
        ((centre, part[:2], part[2:3]), "placed has 2 tensors and grads 1"),
        ((centre[:2], part[:2], part[2:]), "centre has shape"),
        ((centre, part[:2], [part[2], part[3][:3]]), "d_quats has shape"),
        ((centre, part[:2] * 3, part[2:] * 3), "2 or 4"),
    ):
        with pytest.raises(ValueError, match=words):
            torch.ops.nurec_lite.pose_gradient(*given)
