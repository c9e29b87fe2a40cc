# SPDX-License-Identifier: Apache-2.0
"""Projection by compiled kernels against the plain torch reference in double precision: the same Gaussians, bounds and order.

Class `exact`: bounds agree to 1e-4 of a pixel or radian and of their own size (measured over eight seeds: 4e-5; about 12 roundings of
sigma points whose pixels may lie anywhere). Far outside the image, where distortion raises them to the seventh power, to 3e-4 (measured:
6e-5). Left out are Gaussians whose decision may differ in float32: those with a bounding sphere that changes the answer if it grows
or shrinks by 1e-4, with a sigma point within 1e-4 m of the near distance, or with bounds within 1e-5 turns of the azimuth where a sweep
begins.
"""

import math
from dataclasses import replace

import pytest
import torch
from lenses import LENSES, lens_view
from parity import DEVICES, EPS, cast_view, drivers_of, in_parts
from splat_scenes import (
    CAMERA_MOTION,
    F64,
    LIDAR_MOTION,
    NEAR,
    POSE,
    STILL,
    TENSORS,
    Motion,
    around,
    changed,
    in_frustum,
    make_camera_view,
    make_gaussians,
    make_lidar,
    make_lidar_view,
    make_pose,
    make_rosette_view,
    no_gaussians,
    rays_view,
    spherical,
    tensor,
    to_float32,
    uniform,
    view_float32,
)
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.geometry.camera import SHUTTERS
from nurec_lite.geometry.se3 import quat_to_matrix
from nurec_lite.native import ops
from nurec_lite.native import stages as native
from nurec_lite.native.operators.shared import Grid, gaussian_args, packed_view
from nurec_lite.scene.gaussians import WorldGaussians
from nurec_lite.splat import project as reference
from nurec_lite.splat.project import Projection
from nurec_lite.splat.view_row import view_row
from nurec_lite.splat.views import CameraView, LidarView

KITTI_LENS = (-0.3728755, 0.2037299, 0.0022191, 0.0007238, -0.0723)
FAST = Motion((2.0, 2.0, 2.0), (0.1, 0.1, 0.5))
View = CameraView | LidarView


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    ops.load()
    return torch.device(request.param)


def in_float32(g: WorldGaussians, view: View) -> tuple[WorldGaussians, View]:
    """Both rounded to float32, in double precision."""
    g, view = to_float32(g), view_float32(view)
    return replace(g, **{name: getattr(g, name).to(F64) for name in TENSORS}), cast_view(view, F64)


def by_kernels(g: WorldGaussians, view: View, device: torch.device) -> Projection:
    g = to_float32(g)
    on_device = replace(g, **{name: getattr(g, name).to(device) for name in TENSORS})
    found = native.project(on_device, cast_view(view, torch.float32, device))
    assert found.seen is not None and found.seen.nonzero().squeeze(-1).equal(found.index.sort().values)
    assert found.index.dtype == torch.int64 and found.low.dtype == found.high.dtype == torch.float32
    return Projection(found.index.cpu(), found.low.cpu().to(F64), found.high.cpu().to(F64))


def mask(index: Tensor, n: int) -> Tensor:
    out = torch.zeros(n, dtype=torch.bool)
    out[index] = True
    return out


# ---- certain cases


def surely_seen(g: WorldGaussians, view: View) -> tuple[Tensor, Tensor]:
    """[N] bool: seen with any rounding of float32, and seen if it rounds in favour."""
    reach = (2 * torch.log(255 * g.opacities).clamp(min=0)).sqrt()
    radii = reach * g.scales.amax(-1)
    sure, maybe = (
        mask(reference._in_front(g.means - view.centre(), radii * s + (s - 1), g.velocities, view), len(g))
        for s in (1 - 1e-4, 1 + 1e-4)
    )
    return sure & (255 * g.opacities > 1 + 1e-5), maybe & (255 * g.opacities > 1 - 1e-5)


def certain_bounds(g: WorldGaussians, view: View) -> Tensor:
    """[N] bool: no branch on the way to the bounds may go the other way."""
    means, motion = g.means - view.centre(), g.velocities
    steps = (math.sqrt(3) * quat_to_matrix(g.quats) * g.scales[:, None, :]).transpose(-1, -2)
    points = torch.cat([means[:, None], means[:, None] + steps, means[:, None] - steps], 1)
    places, depths = view.project(points, motion[:, None])
    depths = reference._ahead(points, depths, view)
    clear = ((depths - NEAR).abs() > 1e-4).all(1)
    if isinstance(view, CameraView):
        return clear
    reach = (2 * torch.log(255 * g.opacities).clamp(min=0)).sqrt()
    low, high = reference._bounds(places, reach)
    shifts = view.shifts(places[:, 0], means, motion)
    wide = torch.stack(
        [low[:, 0] + shifts[..., 0].amin(1).clamp(max=0), high[:, 0] + shifts[..., 0].amax(1).clamp(min=0)], 1
    )
    turns = (wide - view.lidar.azimuth_start) / (2 * math.pi)
    clear &= ((turns - turns.round()).abs() > 1e-5).all(1)
    behind = (places[..., 0] - places[:, :1, 0]).abs().amax(1)  # of the first point's azimuth: there it wraps
    return clear & (behind < math.pi - 1e-4) & (math.pi - places[:, 0, 0].abs() > 1e-5)


def check(g: WorldGaussians, view: View, device: torch.device, rtol: float = 1e-4) -> Projection:
    """The kernels' projection, when it is the reference's."""
    g, view = in_float32(g, view)
    found, expected, n = by_kernels(g, view, device), reference.project(g, view), len(g)
    seen, sure, maybe = mask(found.index, n), *surely_seen(g, view)
    assert len(found.index) == int(seen.sum())  # none twice
    assert not (sure & ~seen).any() and not (seen & ~maybe).any()
    assert (sure == maybe).double().mean() > 0.99 or n < 100
    both = torch.nonzero(seen & mask(expected.index, n) & certain_bounds(g, view)).squeeze(-1)
    assert len(both) >= 0.9 * int(seen.sum()) or n < 100
    a, b = (
        torch.cat([p.low, p.high], 1)[p.index.argsort()][torch.searchsorted(p.index.sort().values, both)]
        for p in (found, expected)
    )
    size = 1 + b.abs().amax(1, keepdim=True)
    off = ((a - b).abs() / size).amax(1) if len(b) else b.new_zeros(0)
    assert (off < rtol).all(), f"off by {off.max()} of their size: {a[off.argmax()]}, but {b[off.argmax()]}"
    depth = reference._depth(g.means - view.centre(), view)[found.index]
    assert (depth.diff() > -8 * EPS * (1 + depth.abs()[1:])).all()
    return found


# ---- cameras


@pytest.mark.parametrize("motion", [STILL, CAMERA_MOTION, FAST], ids=["still", "moving", "fast"])
@pytest.mark.parametrize("shutter", SHUTTERS)
def test_cameras(shutter: str, motion: Motion, device: torch.device) -> None:
    """Small and large, in front and behind, faint and opaque, moving; half of them outside the image."""
    view = make_camera_view(64, 48, 60.0, shutter, motion)
    g = make_gaussians(in_frustum(view, 1500, -5, 60, 0.7), scales=(0.01, 2), opacities=(0.001, 1), speed=5.0)
    found = check(g, view, device)
    assert 300 < len(found.index) < 1450


@pytest.mark.parametrize("shutter", ["global", "left_to_right", "bottom_to_top"])
def test_cameras_with_distortion(shutter: str, device: torch.device) -> None:
    view = make_camera_view(64, 48, 60.0, shutter, CAMERA_MOTION, distortion=KITTI_LENS)
    g = make_gaussians(in_frustum(view, 1500, -5, 60, 0.7), scales=(0.01, 2), opacities=(0.001, 1), speed=5.0)
    check(g, view, device)


@pytest.mark.parametrize("shutter", ["global", "right_to_left", "top_to_bottom"])
@pytest.mark.parametrize("kind", LENSES)
def test_cameras_with_other_lenses(kind: str, shutter: str, device: torch.device) -> None:
    """All around, half a metre to 60 m away."""
    view = lens_view(kind, 64, 48, shutter=shutter, motion=CAMERA_MOTION)
    local = uniform(0.5, 60, 1500, 1) * F.normalize(torch.randn(1500, 3, dtype=F64), dim=-1)
    check(make_gaussians(local, scales=(0.01, 2), opacities=(0.001, 1), speed=5.0), view, device)


@pytest.mark.parametrize("size", [(1, 1), (33, 31), (4, 5)], ids=str)
@pytest.mark.parametrize("n", [0, 1, 1023, 1024, 1025])
def test_numbers_of_gaussians(n: int, size: tuple[int, int], device: torch.device) -> None:
    view = make_camera_view(*size, 30.0, "top_to_bottom", CAMERA_MOTION)
    check(make_gaussians(in_frustum(view, n, 1, 30, 1.0), scales=(0.01, 0.5), speed=3.0), view, device)


@pytest.mark.parametrize("distortion", [(), KITTI_LENS], ids=["pinhole", "lens"])
def test_gaussians_anywhere_and_of_any_size(distortion: tuple[float, ...], device: torch.device) -> None:
    """From 0.1 to 80 m all around, of 1 mm to 100 m; bounds of the wide ones reach 1e13 pixels through the lens."""
    view = make_camera_view(64, 48, 60.0, "top_to_bottom", CAMERA_MOTION, distortion=distortion)
    local = uniform(0.1, 80, 2000, 1) * F.normalize(torch.randn(2000, 3, dtype=F64), dim=-1)
    check(make_gaussians(local, scales=(1e-3, 100), speed=5.0), view, device, rtol=3e-4 if distortion else 1e-4)


def whole(view: View) -> Tensor:
    if isinstance(view, LidarView):
        return tensor(-math.pi, -math.pi / 2, math.pi, math.pi / 2).float().to(F64)
    return tensor(0, 0, view.camera.width, view.camera.height)


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_what_reaches_the_sensor_gets_the_whole_plane(sensor: str, device: torch.device) -> None:
    view: View = make_camera_view(16, 12, 12.0) if sensor == "camera" else make_lidar_view(make_lidar(4, 32))
    local = in_frustum(view, 150, 0.3, 1.5) if isinstance(view, CameraView) else around(150, 0.1, 0.6)
    found = check(make_gaussians(local, scales=(0.05, 1.5)), view, device)
    whole_plane = (torch.cat([found.low, found.high], 1) == whole(view)).all(1)
    assert 10 < whole_plane.sum() < 150


# ---- lidars


@pytest.mark.parametrize("motion", [STILL, LIDAR_MOTION, FAST], ids=["still", "moving", "fast"])
@pytest.mark.parametrize("clockwise", [True, False])
def test_lidars(clockwise: bool, motion: Motion, device: torch.device) -> None:
    view = make_lidar_view(replace(make_lidar(8, 256), clockwise=clockwise), motion)
    g = make_gaussians(around(1500, 1, 60), scales=(0.01, 2), opacities=(0.001, 1), speed=5.0)
    assert len(check(g, view, device).index) > 1400


@pytest.mark.parametrize("motion", [STILL, FAST], ids=["still", "fast"])
def test_lidars_without_rows(motion: Motion, device: torch.device) -> None:
    view = make_rosette_view(2000, motion)
    local = uniform(1, 60, 1500, 1) * spherical(uniform(-0.7, 0.7, 1500), uniform(-0.7, 0.7, 1500))
    g = make_gaussians(local, scales=(0.01, 2), opacities=(0.001, 1), speed=5.0)
    assert len(check(g, view, device).index) > 1000


@pytest.mark.parametrize("start", [math.pi, 0.0, -1.0])
def test_gaussians_where_a_sweep_begins(start: float, device: torch.device) -> None:
    """Those that move across that azimuth get both places; where azimuths wrap, too."""
    view = make_lidar_view(replace(make_lidar(8, 256), azimuth_start=start), Motion((1.5, 0.2, 0), (0, 0.01, 0.04)))
    for azimuth in (start, math.pi):
        directions = spherical(azimuth + uniform(-0.3, 0.3, 800), uniform(-0.3, 0.1, 800))
        found = check(make_gaussians(uniform(3, 22, 800, 1) * directions, scales=(0.01, 0.5), speed=9.0), view, device)
        assert len(found.index) > 700


def test_gaussians_anywhere_and_of_any_size_about_a_lidar(device: torch.device) -> None:
    view = make_lidar_view(make_lidar(8, 256), LIDAR_MOTION)
    local = uniform(0.1, 80, 2000, 1) * F.normalize(torch.randn(2000, 3, dtype=F64), dim=-1)
    local = local[local[:, :2].norm(dim=1) > 0.02 * local.norm(dim=1)]  # at the poles azimuth is undetermined
    check(make_gaussians(local, scales=(1e-3, 100), speed=5.0), view, device)


@pytest.mark.parametrize("rays", ["none", "one", "few", "beam", "block", "zenith"])
def test_gaussians_far_from_all_rays_are_left_out(rays: str, device: torch.device) -> None:
    lidar = make_lidar(64, 2000, 0.1, -0.4)
    if rays == "zenith":
        lidar = make_lidar(64, 2000, 1.57, 1.2)
    directions = {
        "none": spherical(tensor(), tensor()),
        "one": spherical(tensor(-3.1), tensor(-0.05)),
        "few": spherical(uniform(-math.pi, math.pi, 30), uniform(-0.4, 0.1, 30)),
        "beam": spherical(uniform(-math.pi, math.pi, 300), tensor(-0.1).expand(300)),
        "block": spherical(uniform(3.0, 3.3, 200), uniform(-0.2, 0.0, 200)),
        "zenith": spherical(tensor(2.5), tensor(1.55)),
    }[rays]
    view = rays_view(lidar, directions, torch.rand(len(directions), dtype=F64), LIDAR_MOTION)
    elevations = uniform(1.2, 1.55, 1500) if rays == "zenith" else uniform(-0.4, 0.1, 1500)
    local = uniform(3, 40, 1500, 1) * spherical(uniform(-math.pi, math.pi, 1500), elevations)
    found = check(make_gaussians(local, scales=(0.02, 0.3), speed=3.0), view, device)
    assert len(found.index) < (1 if rays == "none" else 1500)


# ---- order


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_equal_depths_keep_the_order_of_the_index(sensor: str, device: torch.device) -> None:
    view: View = make_camera_view(32, 24, 30.0) if sensor == "camera" else make_lidar_view(make_lidar(8, 64))
    local = in_frustum(view, 7, 3, 9, -0.2) if isinstance(view, CameraView) else around(7, 3, 9)
    g = make_gaussians(local[torch.randint(7, (3000,))], scales=(0.2, 0.4))
    index = by_kernels(g, view, device).index
    depth = to_float32(g).means[index, 0]  # equal where the means are
    assert len(index) == 3000 and len(set(depth.tolist())) == 7
    same = depth[1:] == depth[:-1]
    assert same.sum() == 3000 - 7 and (index.diff()[same] > 0).all()


def test_depths_of_either_sign_are_in_order(device: torch.device) -> None:
    """Wide ones beside and behind the camera are seen, too; zero and minus zero are equal."""
    view = make_camera_view(16, 12, 12.0, T_world_cam=torch.eye(4, dtype=F64))
    depth = tensor(3.0, -0.0, 0.5, 0.0, -2.0, -0.0, 1e-30, -1e-30, 0.0, 10.0)
    local = torch.stack([-torch.ones(10, dtype=F64), -torch.ones(10, dtype=F64), depth], dim=1)
    g = changed(make_gaussians(local, torch.eye(4, dtype=F64)), scales=5.0, opacities=0.9)
    assert by_kernels(g, view, device).index.tolist() == [4, 7, 1, 3, 5, 8, 6, 2, 0, 9]


def test_two_runs_are_equal(device: torch.device) -> None:
    for view in (
        make_camera_view(64, 48, 60.0, "top_to_bottom", CAMERA_MOTION),
        make_lidar_view(make_lidar(), LIDAR_MOTION),
    ):
        g = make_gaussians(around(3000, 1, 30) if isinstance(view, LidarView) else in_frustum(view, 3000, 1, 30, 0.3))
        found, before = [], torch.get_num_threads()
        try:
            for threads in (1, 2, 3):
                torch.set_num_threads(threads)
                found.append(by_kernels(g, view, device))
        finally:
            torch.set_num_threads(before)
        for other in found[1:]:
            assert all(torch.equal(getattr(other, k), getattr(found[0], k)) for k in ("index", "low", "high"))


# ---- visibility


def test_what_can_never_reach_the_threshold_is_left_out(device: torch.device) -> None:
    view = make_camera_view()
    g = make_gaussians(in_frustum(view, 3, 4, 6))
    assert by_kernels(changed(g, opacities=tensor(0.99 / 255, 0.0, 1.01 / 255)), view, device).index.tolist() == [2]


def test_no_gaussians_no_bounds(device: torch.device) -> None:
    for view in (make_camera_view(), make_lidar_view(make_lidar())):
        found = by_kernels(no_gaussians(), view, device)
        assert found.index.shape == (0,) and found.low.shape == found.high.shape == (0, 2)


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_bounds_hold_far_from_the_origin_of_the_world(sensor: str, device: torch.device) -> None:
    """131 km away float32 counts in steps of 1/64 m: the sensor and the means stand on such steps, the rest must not."""
    near, far = torch.eye(4, dtype=F64), make_pose((0.0, 0.0, 0.0), (131072.0, -131072.0, 0.0))
    if sensor == "camera":
        views: list[View] = [make_camera_view(32, 24, 30.0, T_world_cam=T) for T in (near, far)]
        local = in_frustum(views[0], 60, 5, 20)
    else:
        views, local = [make_lidar_view(make_lidar(), T_world_lidar=T) for T in (near, far)], around(60, 5, 20)
    g = make_gaussians((64 * local).round() / 64, T=near)
    a, b = (by_kernels(x, v, device) for x, v in zip((g, changed(g, means=g.means + far[:3, 3])), views, strict=True))
    assert torch.equal(a.index, b.index)
    torch.testing.assert_close(a.low, b.low, atol=1e-5, rtol=0)
    torch.testing.assert_close(a.high, b.high, atol=1e-5, rtol=0)


def test_the_row_that_a_view_brings_is_what_the_kernels_see(device: torch.device) -> None:
    """It spares a wait for the device and changes nothing; the row's numbers count, not the poses."""
    view = cast_view(make_camera_view(32, 24, 30.0, "top_to_bottom", CAMERA_MOTION), torch.float32)
    other = cast_view(make_camera_view(32, 24, 30.0, "top_to_bottom"), torch.float32)
    g = make_gaussians(in_frustum(view, 50, 1, 30), POSE)
    known, swapped = (replace(view, row=view_row(v).to(device)) for v in (view, other))
    assert torch.equal(by_kernels(g, view, device).low, by_kernels(g, known, device).low)
    assert torch.equal(by_kernels(g, other, device).low, by_kernels(g, swapped, device).low)


@pytest.mark.parametrize("still", [0, 1, 130, 300])
@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_gaussians_that_stand_still_may_come_apart(sensor: str, still: int, device: torch.device) -> None:
    view: View = make_lidar_view(make_lidar(8, 64), LIDAR_MOTION)
    if sensor == "camera":
        view = make_camera_view(33, 31, 30.0, "top_to_bottom", CAMERA_MOTION)
    local = in_frustum(view, 300, 2, 20) if isinstance(view, CameraView) else around(300, 2, 20)
    g = to_float32(make_gaussians(local, scales=(0.01, 0.5), speed=3.0))
    g = replace(g, velocities=torch.where(torch.arange(300)[:, None] < still, 0.0, g.velocities))
    on_device = replace(g, **{name: getattr(g, name).to(device) for name in TENSORS})
    view = cast_view(view, torch.float32, device)
    found, expected = native.project(in_parts(on_device, still), view), native.project(on_device, view)
    assert len(found.index) > 100
    assert all(torch.equal(getattr(found, k), getattr(expected, k)) for k in ("index", "low", "high"))


def test_only_a_gpu_tells_shapes() -> None:
    if drivers_of(torch.device("cpu")) != "cpu":
        pytest.skip("over the emulation the CPU has the drivers of a GPU")
    ops.load()
    view = view_float32(make_camera_view(9, 7, 8.0))
    g = to_float32(make_gaussians(in_frustum(view, 5, 3, 8)))
    with pytest.raises(ValueError, match="only a GPU lists warp tiles"):
        native.project(g, view, plan=replace(native.CPU_PLAN, warp_tiles=True, tight_lists=True))


def test_only_a_gpu_passes_blocks_by() -> None:
    if drivers_of(torch.device("cpu")) != "cpu":
        pytest.skip("over the emulation the CPU has the drivers of a GPU")
    ops.load()
    view = view_float32(make_camera_view(9, 7, 8.0))
    g, none = to_float32(make_gaussians(in_frustum(view, 5, 3, 8))), torch.empty(0)
    blocks = torch.tensor([1, 0], dtype=torch.int32)
    arguments = gaussian_args(g), packed_view(view), 1, Grid(none, none), 1, []
    with pytest.raises(ValueError, match="only a GPU passes hidden ones by: leave them out"):
        torch.ops.nurec_lite.project(*arguments, blocks=blocks)
