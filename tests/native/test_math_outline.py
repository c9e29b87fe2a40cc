# SPDX-License-Identifier: Apache-2.0
"""kernels/math/outline.cuh and conic.cuh in double precision. They are bounds: they must never leave out a Gaussian that a ray sees,
and must leave out most of the others."""

from functools import cache

import pytest
import torch
from kernel_math import F64, call, close
from splat_scenes import (
    CAMERA_MOTION,
    STILL,
    OracleRays,
    changed,
    contributing,
    in_frustum,
    make_camera_view,
    make_gaussians,
    oracle_rays,
    uniform,
)
from test_math_views import LENS, camera_numbers, camera_view, make_camera, motion_numbers, points_before
from torch import Tensor

from nurec_lite.geometry import camera as cameras
from nurec_lite.geometry.camera import SHUTTERS
from nurec_lite.scene.gaussians import WorldGaussians
from nurec_lite.splat.view_row import FIELDS, view_row
from nurec_lite.splat.views import CameraView

WIDTH, HEIGHT, ROWS = 96, 64, 4  # pixels of the image, and of rows that are asked for together
SHAPES = {"any": None, "disk": (1e-3, 1, 1), "needle": (1e-2, 1e-2, 1)}


def view_of(shutter: str, lens: tuple[float, ...] = ()) -> CameraView:
    motion = STILL if shutter == "global" else CAMERA_MOTION
    return make_camera_view(WIDTH, HEIGHT, 60.0, shutter, motion, distortion=lens)


def gaussians(view: CameraView, n: int, near: bool, shape: str) -> WorldGaussians:
    """Gaussians in front of the camera, or all about it."""
    about = torch.randn(n, 3, dtype=F64) * torch.tensor([1.5, 1, 1]) + torch.tensor([0, 0, 0.3])
    g = make_gaussians(about if near else in_frustum(view, n, 1, 12, 0.3), speed=2.0)
    fixed = SHAPES[shape]
    shapes = torch.exp(uniform(-2, 1, n, 3)) if fixed is None else torch.tensor([fixed], dtype=F64).expand(n, 3)
    return changed(g, scales=torch.exp(uniform(-4, 0, n, 1)) * shapes)


def arguments(view: CameraView, g: WorldGaussians) -> list[Tensor]:
    """The first arguments of outline_of and conic_of."""
    row = view_row(view).double()
    reach = torch.sqrt(2 * torch.log(g.opacities * 255).clamp(min=0))[:, None]
    numbers = row[None, : FIELDS["path.q"].start].expand(len(g), -1)
    return [numbers, g.means - row[FIELDS["centre"]], g.quats, g.scales, g.velocities, reach]


def within(columns: Tensor) -> Tensor:  # [n, 2] -> [WIDTH, n]
    centres = torch.arange(WIDTH, dtype=F64)[:, None]
    return (centres >= columns[:, 0]) & (centres <= columns[:, 1])


@cache  # they are made one by one
def rays_of(shutter: str, lens: tuple[float, ...] = ()) -> OracleRays:
    return oracle_rays(view_of(shutter, lens))


def seen_by_rows(rays: OracleRays, g: WorldGaussians) -> Tensor:  # [bands of rows, WIDTH, n]
    return contributing(g, rays).view(-1, ROWS, WIDTH, len(g)).any(1)


def by_outline(outlines: Tensor) -> Tensor:  # [bands of rows, WIDTH, n]
    moved = outlines.clone()
    moved[:, 0] -= 0.5  # columns count from the first one's middle
    bands = [call("columns_of_outline", moved, r + 0.5, r + ROWS - 0.5) for r in range(0, HEIGHT, ROWS)]
    return torch.stack([within(columns) for columns in bands])


def by_conic(view: CameraView, g: WorldGaussians) -> Tensor:
    """Bounds by a conic of its own for each band of rows, as a band is read at a time of its own."""
    n, found = len(g), []
    for first in range(0, HEIGHT, ROWS):
        corner, size = torch.tensor([[0.5, first + 0.5], [WIDTH - 1, ROWS - 1]], dtype=F64)
        ends = [
            call("camera_fraction", camera_numbers(view.camera), *(corner + k * size).view(2, 1, 1))[0, 0]
            for k in (0, 1)
        ]
        when = torch.stack(ends).sort().values.clamp(0, 1)
        conics = call("conic_of", *arguments(view, g), *(x[None].expand(n, 2) for x in (corner, size, when)))
        found.append(within(call("columns_of_conic", conics, 0.0, ROWS - 1.0, WIDTH - 1.0)))
    return torch.stack(found)


# ---- its use


@pytest.mark.parametrize("lens", [(), LENS], ids=["straight", "bent"])
@pytest.mark.parametrize("near", [False, True], ids=["before it", "about it"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shutter", SHUTTERS)
def test_an_outline_holds_all_rays_that_see_it(shutter: str, shape: str, near: bool, lens: tuple[float, ...]) -> None:
    view = view_of(shutter, lens)
    g = gaussians(view, 150, near, shape)
    outlines = call("outline_of", *arguments(view, g))
    known = outlines[:, 7] > 0
    seen, said = seen_by_rows(rays_of(shutter, lens), g), by_outline(outlines)
    assert int(known.sum()) > (0 if near else 75) and not (seen & ~said)[..., known].any()


@pytest.mark.parametrize("shape", SHAPES)
def test_an_outline_holds_little_else(shape: str) -> None:
    view = view_of("global")
    g = gaussians(view, 300, False, shape)
    outlines = call("outline_of", *arguments(view, g))
    seen, said = seen_by_rows(rays_of("global"), g), by_outline(outlines)
    known = outlines[:, 7] > 0
    beside = int((said & ~seen)[..., known].sum())  # pixels that a needle, thinner than a pixel, passes between
    assert int(known.sum()) > 250 and beside < (0.05 if shape != "needle" else 1.5) * int(seen[..., known].sum())


@pytest.mark.parametrize("near", [False, True], ids=["before it", "about it"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shutter", SHUTTERS)
def test_a_conic_holds_all_rays_that_see_it(shutter: str, shape: str, near: bool) -> None:
    view = view_of(shutter)
    g = gaussians(view, 150, near, shape)
    assert not (seen_by_rows(rays_of(shutter), g) & ~by_conic(view, g)).any()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_conic_holds_little_else(shape: str) -> None:
    """Gaussians have no outline; rows of a hyperbola may have a gap that is not left out."""
    view = view_of("global")
    g = gaussians(view, 300, True, shape)
    near = call("outline_of", *arguments(view, g))[:, 7] == 0
    seen, said = seen_by_rows(rays_of("global"), g), by_conic(view, g)
    beside = int((said & ~seen)[..., near].sum())
    assert int(near.sum()) > 100 and beside < (0.5 if shape != "needle" else 4) * int(seen[..., near].sum()) + 300


# ---- its parts


def test_products_of_two() -> None:
    a, b = torch.randn(2, 9, 2, dtype=F64)
    J, S = torch.randn(2, 9, 3, dtype=F64)
    full = [torch.stack([m[:, :2], m[:, 1:]], dim=1) for m in (J, S)]
    close(call("dot_of_two", a, b), (a * b).sum(1))
    close(call("symmetric_times", S, a), (full[1] @ a[:, :, None])[:, :, 0])
    product = full[0] @ full[1] @ full[0]
    close(call("stretched", J, S), torch.stack([product[:, 0, 0], product[:, 0, 1], product[:, 1, 1]], dim=1))


def test_how_a_lens_stretches() -> None:
    camera, at = make_camera(), 0.5 * torch.randn(40, 2, dtype=F64)
    slopes = torch.stack([torch.autograd.functional.jacobian(lambda p: cameras.distort(camera, p), p) for p in at])
    numbers = camera_numbers(camera).expand(40, -1)
    close(call("lens_slope", numbers, at), torch.stack([slopes[:, 0, 0], slopes[:, 0, 1], slopes[:, 1, 1]], dim=1))
    straight = camera_numbers(make_camera(distortion=())).expand(40, -1)
    close(call("lens_slope", straight, at), torch.tensor([[1.0, 0, 1]], dtype=F64).expand(40, 3))
    # how fast that changes, at most, along any line
    step = 1e-4 * torch.nn.functional.normalize(torch.randn(40, 2, dtype=F64), dim=1)
    change = call("lens_slope", numbers, at + step) - call("lens_slope", numbers, at)
    most = call("bending", numbers, at.norm(dim=1, keepdim=True) + 1e-4)
    assert (change.abs() <= 1e-4 * 1.001 * most).all()


@pytest.mark.parametrize("shutter", SHUTTERS)
def test_how_rows_are_read(shutter: str) -> None:
    numbers, at = camera_numbers(make_camera(shutter)).expand(9, -1), 30 * torch.rand(9, 2, dtype=F64)
    slope = call("reading", numbers)
    one, two = (call("camera_fraction", numbers, x[:, :1], x[:, 1:]) for x in (at, at + 1))
    close(two - one, slope.sum(1))
    assert bool((slope != 0).any()) == (shutter != "global")
    rows, on = shutter in ("top_to_bottom", "bottom_to_top"), shutter in ("top_to_bottom", "left_to_right")
    assert call("how_it_reads", numbers)[0].tolist() == [rows, on, 46 if rows else 60]


def test_how_fast_it_moves() -> None:
    view = camera_view()
    motion, p, v = motion_numbers(view), points_before(view)[:20], torch.randn(20, 3, dtype=F64)
    f, h = torch.rand(20, 1, dtype=F64), 1e-6
    at = [call("moving_at", motion, p, v, f + k * h) for k in (-1, 1)]
    close(call("rate", motion, p, v, f), (at[1] - at[0]) / (2 * h), 1e-8)
    way = view.T_world_sensor_end[:3, 3] - view.T_world_sensor_start[:3, 3]
    past = call("direction_at", motion, (view.time_end - view.time_start) * v - way, f)
    close(call("moves_past", motion, v, f), past)


@pytest.mark.parametrize("shutter", ["global", "top_to_bottom"])
def test_a_gaussian_in_the_sensor_s_frame(shutter: str) -> None:
    view = camera_view(shutter, ())
    n, p = 20, points_before(view)[:20]
    q, v = torch.nn.functional.normalize(torch.randn(n, 4, dtype=F64), dim=1), torch.randn(n, 3, dtype=F64)
    numbers, motion = camera_numbers(view.camera), motion_numbers(view)
    in_sensor = call("gaussian_in_sensor", numbers, motion, p, q, v)
    assert call("gaussian_in_sensor_at", motion, p, v, q, in_sensor[:, 15:]).equal(in_sensor)
    c, change, axes, f = in_sensor[:, :3], in_sensor[:, 3:6], in_sensor[:, 6:15].view(n, 3, 3), in_sensor[:, 15:]
    close(c, call("moving_at", motion, p, v, f))
    close(change, call("rate", motion, p, v, f))
    turned = call("quat_to_matrix", q).view(n, 3, 3).transpose(1, 2)
    for k in range(3):
        close(axes[:, k], call("direction_at", motion, turned[:, k], f))
    assert bool((f == 0.5).all()) == (shutter == "global")
    s = torch.rand(n, 3, dtype=F64) + 0.1
    close(call("deviations_away", in_sensor, s), ((axes @ c[:, :, None])[:, :, 0] / s).norm(dim=1))


def seats(n: int) -> tuple[Tensor, Tensor]:
    """Spheres and other ellipsoids 5 to 9 m in front of a sensor, and their scales."""
    axes = torch.linalg.qr(torch.randn(n, 3, 3, dtype=F64)).Q
    c = torch.cat([uniform(-3, 3, n, 2), uniform(5, 9, n, 1)], dim=1)
    in_sensor = torch.cat([c, torch.randn(n, 3, dtype=F64), axes.flatten(1), torch.full((n, 1), 0.5)], dim=1)
    return in_sensor, torch.exp(uniform(-2, 0, n, 3))


def test_rays_on_the_rim_touch_it() -> None:
    """All about the ellipse of x / z and y / z the least distance is `reach` standard deviations."""
    n, reach = 50, 1.7
    in_sensor, s = seats(n)
    spot = call("project_ellipse", in_sensor, s, reach)
    assert (spot[:, 8] == 1).all()
    half = torch.linalg.cholesky(torch.stack([spot[:, 4:6], spot[:, 5:7]], dim=1))
    c, axes = in_sensor[:, :3], in_sensor[:, 6:15].view(n, 3, 3)
    for angle in torch.linspace(0, 6, 9, dtype=F64):
        rim = spot[:, :2] + (half @ torch.stack([angle.cos(), angle.sin()])[:, None])[:, :, 0]
        d = torch.cat([rim, torch.ones(n, 1, dtype=F64)], dim=1)
        g, e = (-(axes @ c[:, :, None])[:, :, 0] / s), (axes @ d[:, :, None])[:, :, 0] / s
        close(torch.linalg.cross(g, e).norm(dim=1, keepdim=True), reach * e.norm(dim=1, keepdim=True), 1e-9)
    depth = c[:, 2] - (reach * s * axes[:, :, 2]).norm(dim=1)
    close(spot[:, 7:8], depth[:, None])
    moved = (in_sensor[:, 3:5] - c[:, :2] / c[:, 2:] * in_sensor[:, 5:6]) / c[:, 2:]
    close(spot[:, 2:4], moved)


def test_an_ellipse_in_pixels() -> None:
    spot = call("project_ellipse", *seats(30), 1e-3)
    camera = make_camera()
    numbers = camera_numbers(camera).expand(30, -1)
    found = call("in_pixels", numbers, spot)
    focal = torch.tensor([camera.fx, camera.fy], dtype=F64)
    close(found[:, :2], cameras.distort(camera, spot[:, :2]) * focal + torch.tensor([camera.cx, camera.cy], dtype=F64))
    J = call("lens_slope", numbers, spot[:, :2])
    close(found[:, 2:4], call("symmetric_times", J, spot[:, 2:4]) * focal)
    S = call("stretched", J, spot[:, 4:7])
    close(found[:, 4:7], S * torch.stack([focal[0] ** 2, focal.prod(), focal[1] ** 2]))
    close(found[:, 7:], spot[:, 7:])


@pytest.mark.parametrize("shutter", [s for s in SHUTTERS if s != "global"])
def test_an_ellipse_that_is_read_by_rows(shutter: str) -> None:
    """Its rim, each point of it as its own row sees it, is the ellipse's of one time."""
    n = 30
    numbers = camera_numbers(make_camera(shutter, ())).expand(n, -1)
    spot = call("in_pixels", numbers, call("project_ellipse", *seats(n), 1.5))
    f = torch.rand(n, 1, dtype=F64)
    found = call("with_rolling_shutter", numbers, f, spot)
    half, then = (torch.linalg.cholesky(torch.stack([x[:, 4:6], x[:, 5:7]], dim=1)) for x in (spot, found))
    for angle in torch.linspace(0, 6, 7, dtype=F64):
        rim = found[:, :2] + (then @ torch.stack([angle.cos(), angle.sin()])[:, None])[:, :, 0]
        later = call("camera_fraction", numbers, rim[:, :1], rim[:, 1:]) - f
        off = rim - later * spot[:, 2:4] - spot[:, :2]
        inside = torch.linalg.solve_triangular(half, off[:, :, None], upper=False)[:, :, 0]
        keeps = found[:, 8] == 1  # not those that nearly keep pace with the rows
        close(inside.norm(dim=1, keepdim=True)[keeps], torch.ones(int(keeps.sum()), 1, dtype=F64), 1e-9)
        assert (later.abs()[:, 0] <= found[:, 9] + 1e-9)[keeps & (found[:, 9] < 1)].all()


def test_columns_of_an_ellipse() -> None:
    """Against points within it."""
    n = 60
    spot = call(
        "in_pixels", camera_numbers(make_camera(distortion=())).expand(n, -1), call("project_ellipse", *seats(n), 1.5)
    )
    outline = call("upright", spot, 0.0)
    half = torch.linalg.cholesky(torch.stack([spot[:, 4:6], spot[:, 5:7]], dim=1))
    angle, r = torch.meshgrid(
        torch.linspace(0, 6.2832, 400, dtype=F64), torch.linspace(0, 1, 60, dtype=F64), indexing="ij"
    )
    disk = torch.stack([(r * angle.cos()).flatten(), (r * angle.sin()).flatten()])
    points = spot[:, :2, None] + half @ disk  # [n, 2, samples]
    for top, bottom in ((0.5, 3.5), (20.0, 20.5), (24.5, 27.5), (60.0, 61.0)):
        columns = call("columns_of_outline", outline, top, bottom)
        there = (points[:, 1] >= top) & (points[:, 1] <= bottom)
        u = points[:, 0]
        low, high = u.masked_fill(~there, torch.inf).amin(1), u.masked_fill(~there, -torch.inf).amax(1)
        some = there.any(1)
        assert (columns[some, 0] <= low[some] + 1e-9).all() and (columns[some, 1] >= high[some] - 1e-9).all()
        size = half.flatten(1).norm(dim=1)
        many = there.sum(1) > 200
        assert ((low - columns[:, 0])[many] < 0.1 * size[many]).all()


# ---- conics


def test_roots() -> None:
    a, b = torch.randn(2, 50, 1, dtype=F64)
    x = torch.randn(50, 2, dtype=F64)
    close(call("roots", a, -a * x.sum(1, True) / 2, a * x.prod(1, True)), x.sort(1).values, 1e-9)
    none = call("roots", a.abs(), b, (b.square() + 1) / a.abs())
    assert (none[:, 0] > none[:, 1]).all()
    # of two that are far apart neither is a difference
    close(call("roots", torch.ones(1, 1, dtype=F64), -0.5e8, 1.0)[:, :1] * 1e8, torch.ones(1, 1, dtype=F64), 1e-7)


def test_joined() -> None:
    none, one, two = (torch.tensor([x], dtype=F64) for x in ([1.0, -1], [0.0, 2], [5.0, 6]))
    assert call("joined", none, one).equal(one) and call("joined", one, none).equal(one)
    assert call("joined", one, two).tolist() == [[0.0, 6.0]]


def conics(n: int) -> Tensor:  # [n, 9]
    """Quadratic forms of all kinds; nothing lies behind."""
    return torch.cat([torch.randn(n, 6, dtype=F64), torch.tensor([[1.0, 0, 0]], dtype=F64).expand(n, 3)], dim=1)


def values(q: Tensor, x: Tensor, y: Tensor) -> Tensor:  # [n, X, Y]
    xx, xy, yy, a, b, one = (k[:, None, None] for k in q[:, :6].unbind(1))
    x, y = x[:, None], y[None]
    return xx * x * x + 2 * xy * x * y + yy * y * y + 2 * a * x + 2 * b * y + one


def test_rows_of_any_conic() -> None:
    """Rows that are left out have no point of the band at or below 0, and they are most of those that could be left out."""
    n, end = 3000, 8.0
    q, x, y = conics(n), torch.linspace(0, end, 161, dtype=F64), torch.linspace(-0.7, 0.9, 33, dtype=F64)
    shifted = q.clone()  # so that their middles lie in the columns
    shifted[:, 3] -= 4 * q[:, 0]
    shifted[:, 4] -= 4 * q[:, 1]
    shifted[:, 5] += 16 * q[:, 0] - 8 * q[:, 3]
    reached = (values(shifted, x, y) <= 0).any(2)
    columns = call("columns_of_conic", shifted, -0.7, 0.9, end)
    said = (x >= columns[:, :1]) & (x <= columns[:, 1:])
    assert not (reached & ~said).any()
    hull = reached.cumsum(1).bool() & reached.flip(1).cumsum(1).flip(1).bool()
    assert int((said & ~hull).sum()) < 0.03 * int((~hull).sum())


def test_parts_of_a_band() -> None:
    """`farthest` and `least_within`, `inside` and `gap_of` by one another: circles, and a band of rows beside a cone."""
    circle = torch.tensor([[1.0, 0, 1, 0, 0, -4, 1, 0, 0]], dtype=F64)
    assert call("farthest", circle).tolist() == [[-2.0, 2.0]]
    assert (
        call("least_within", circle, -1.0, 1.0)[0, 1] > 1e29
        and (call("least_within", circle, 1.0, 2.0) == torch.tensor([1, -1])).all()
    )
    leaning = torch.tensor([[1.0, 0.5, 1, 0, 0, -3, 1, 0, 0]], dtype=F64)
    close(call("least_within", leaning, -1.0, 1.0), torch.tensor([[-2.0, 2.0]], dtype=F64), 1e-2)
    rows = torch.tensor([[-1.0, 1.0]], dtype=F64)
    assert call("inside", circle, rows, rows, -1.0, 1.0).tolist() == [[-2.0, 2.0]]
    assert call("inside", circle, rows, rows, 1.0, 1.5).tolist() == [[-1.0, 1.0]]
    beyond = torch.tensor([[-1.0, 0, 1, 0, 0, 1, 1, 0, 0]], dtype=F64)  # |x| >= sqrt(1 + y^2)
    edges = torch.tensor([[-1.4, 1.4]], dtype=F64)
    assert call("gap_of", beyond, edges, edges, -1.0, 1.0).tolist() == [[-1.0, 1.0]]
    assert call("gap_of", beyond, edges, edges, 1.0, 1.2).tolist() == [[-1.4, 1.4]]
