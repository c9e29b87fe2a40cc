# SPDX-License-Identifier: Apache-2.0
"""Small random scenes and views, and an oracle: rendering straight from the formulas, one ray and one Gaussian after another.

The oracle shares no code with the renderer: it has its own rotations, poses, rays, harmonics, sky and blending. It works in double
precision and autograd passes through it, so that both values and gradients can be compared with it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.geometry.camera import Camera, undistort, unproject
from nurec_lite.geometry.free_lidar import free_lidar, rosette
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.scene.gaussians import WorldGaussians
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.views import CameraView, LidarView

F64 = torch.float64
ALPHA_MIN, ALPHA_MAX, T_MIN, NEAR = 1 / 255, 0.99, 1e-4, 0.2
MOST_PAIRS = 1 << 18  # of a ray and a Gaussian at a time: larger temporaries leave the cache
TENSORS = ("means", "quats", "scales", "opacities", "sh", "frames", "lidar", "velocities")

View = TypeVar("View", CameraView, LidarView)

# ---- builders


def tensor(*values: float | Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=F64)


def rotation_vector(
    v: Tensor,  # [..., 3] radians, axis times angle
) -> Tensor:  # [..., 3, 3]
    """I + sin a K + (1 - cos a) K^2 with the axis in K (Rodrigues)."""
    a = v.norm(dim=-1, keepdim=True)
    K, a = cross_matrix(v / (a + 1e-300)), a[..., None]
    return torch.eye(3, dtype=v.dtype) + a.sin() * K + 2 * (a / 2).sin() ** 2 * (K @ K)


def cross_matrix(
    a: Tensor,  # [..., 3]
) -> Tensor:  # [..., 3, 3], times b = a x b
    zero = torch.zeros_like(a[..., 0])
    rows = [zero, -a[..., 2], a[..., 1], a[..., 2], zero, -a[..., 0], -a[..., 1], a[..., 0], zero]
    return torch.stack(rows, dim=-1).unflatten(-1, (3, 3))


def make_pose(turn: Sequence[float], position: Sequence[float]) -> Tensor:
    """[4, 4] from a rotation vector in radians and a position in metres."""
    T = torch.eye(4, dtype=F64)
    T[:3, :3] = rotation_vector(tensor(*turn))
    T[:3, 3] = tensor(*position)
    return T


POSE = make_pose((0.4, -0.9, 0.6), (12.0, -5.0, 1.7))  # where sensors stand unless a test says otherwise


@dataclass(frozen=True)
class Motion:
    """Motion of a sensor from the start to the end of a view, in its own frame."""

    travel: tuple[float, float, float] = (0.0, 0.0, 0.0)  # metres
    turn: tuple[float, float, float] = (0.0, 0.0, 0.0)  # rotation vector in radians
    seconds: float = 0.1

    def ends(self, T: Tensor) -> tuple[Tensor, Tensor]:
        """Poses at the start and at the end of a motion whose middle is at T."""
        move, turn = tensor(*self.travel) / 2, tensor(*self.turn) / 2
        half = make_pose(turn.tolist(), move.tolist())
        back = make_pose((-turn).tolist(), (-move).tolist())
        return T @ back, T @ half


STILL = Motion()
CAMERA_MOTION = Motion((0.02, -0.01, 0.3), (0.01, 0.03, -0.02), 0.03)
LIDAR_MOTION = Motion((1.0, 0.1, -0.05), (0.005, -0.01, 0.06), 0.1)


def make_camera_view(
    width: int = 9,
    height: int = 7,
    focal: float = 8.0,
    shutter: str = "global",
    motion: Motion = STILL,
    T_world_cam: Tensor = POSE,
    distortion: tuple[float, ...] = (),
) -> CameraView:
    """A camera whose principal point is off the centre, with fx unlike fy."""
    centre = (0.52 * width, 0.45 * height)
    camera = Camera("c", width, height, focal, 1.1 * focal, *centre, torch.eye(4, dtype=F64), distortion, shutter)
    return CameraView(*motion.ends(T_world_cam), 3.0, 3.0 + motion.seconds, camera)


def make_lidar(beams: int = 8, steps: int = 64, top: float = 0.1, bottom: float = -0.3) -> Lidar:
    return Lidar("l", torch.eye(4, dtype=F64), torch.linspace(top, bottom, beams, dtype=F64), azimuth_steps=steps)


def make_lidar_view(
    lidar: Lidar,
    motion: Motion = STILL,
    T_world_lidar: Tensor = POSE,
    sector: tuple[float, float] = (-math.pi, math.pi),
) -> LidarView:
    """A revolution of all beams, or the part of it between two azimuths; each ray at the time when the lidar looks there."""
    azimuth = math.pi - (torch.arange(lidar.azimuth_steps, dtype=F64) + 0.5) * (2 * math.pi / lidar.azimuth_steps)
    azimuth = azimuth[(azimuth >= sector[0]) & (azimuth <= sector[1])]
    azimuth, elevation = torch.cartesian_prod(azimuth, lidar.elevations).unbind(-1)
    return rays_view(lidar, spherical(azimuth, elevation), (math.pi - azimuth) / (2 * math.pi), motion, T_world_lidar)


def rays_view(
    lidar: Lidar,
    directions: Tensor,
    fractions: Tensor,
    motion: Motion = STILL,
    T_world_lidar: Tensor = POSE,
) -> LidarView:
    return LidarView(*motion.ends(T_world_lidar), 3.0, 3.0 + motion.seconds, lidar, directions, fractions)


def make_rosette_view(
    rays: int, motion: Motion = STILL, field: float = 1.2, turns: tuple[float, float] = (7.0, -3.0)
) -> LidarView:
    """A lidar without rows and columns; azimuth does not follow time."""
    table = rosette(rays, field, turns)
    directions = F.normalize(table.directions.to(F64), dim=1)
    return rays_view(free_lidar("r", torch.eye(4, dtype=F64), directions), directions, table.fractions, motion)


def spherical(azimuth: Tensor, elevation: Tensor) -> Tensor:
    return torch.stack([elevation.cos() * azimuth.cos(), elevation.cos() * azimuth.sin(), elevation.sin()], dim=-1)


def uniform(low: float, high: float, *shape: int) -> Tensor:
    return low + (high - low) * torch.rand(*shape, dtype=F64)


def make_gaussians(
    local: Tensor,  # [N, 3] metres, in the frame of a sensor that stands at T
    T: Tensor = POSE,
    scales: tuple[float, float] = (0.1, 0.5),
    opacities: tuple[float, float] = (0.2, 0.9),
    speed: float = 0.0,  # metres a second, standard deviation
    coefficients: int = 9,
) -> WorldGaussians:
    n = len(local)
    return WorldGaussians(
        means=local @ T[:3, :3].T + T[:3, 3],
        quats=F.normalize(torch.randn(n, 4, dtype=F64), dim=-1),
        scales=torch.exp(uniform(math.log(scales[0]), math.log(scales[1]), n, 3)),
        opacities=uniform(*opacities, n),
        sh=0.3 * torch.randn(n, coefficients, 3, dtype=F64),
        frames=F.normalize(torch.randn(n, 4, dtype=F64), dim=-1),
        lidar=torch.rand(n, 2, dtype=F64),
        velocities=speed * torch.randn(n, 3, dtype=F64),
    )


def in_frustum(view: CameraView, n: int, low: float, high: float, margin: float = 0.0) -> Tensor:
    """[n, 3] points in the camera's frame whose images lie in the image, widened by a share of its size, at depths low to high."""
    c = view.camera
    u, v = (uniform(-margin, 1 + margin, n) * size for size in (c.width, c.height))
    z = uniform(low, high, n)
    return torch.stack([(u - c.cx) / c.fx * z, (v - c.cy) / c.fy * z, z], dim=-1)


def around(n: int, low: float, high: float, azimuths: tuple[float, float] = (-math.pi, math.pi)) -> Tensor:
    """[n, 3] points in the lidar's frame at ranges low to high, at elevations that `make_lidar` sees."""
    return uniform(low, high, n, 1) * spherical(uniform(*azimuths, n), uniform(-0.35, 0.15, n))


def make_sky(height: int = 4, width: int = 8) -> Tensor:
    return torch.randn(3, height, width, dtype=F64)


def no_gaussians(coefficients: int = 4) -> WorldGaussians:
    return make_gaussians(torch.zeros(0, 3, dtype=F64), coefficients=coefficients)


def changed(g: WorldGaussians, **tensors: Tensor | float) -> WorldGaussians:
    """Some tensors replaced; a number fills the tensor."""
    full = {k: v if isinstance(v, Tensor) else torch.full_like(getattr(g, k), v) for k, v in tensors.items()}
    return replace(g, **full)


def to_float32(g: WorldGaussians) -> WorldGaussians:
    return replace(g, **{name: getattr(g, name).float() for name in TENSORS})


def view_float32(view: View) -> View:
    ends = {k: getattr(view, k).float() for k in ("T_world_sensor_start", "T_world_sensor_end")}
    if isinstance(view, LidarView):
        ends |= {"directions": view.directions.float(), "fractions": view.fractions.float()}
        ends |= {} if view.targets is None else {"targets": view.targets.float()}
    return replace(view, **ends)


def leaves(g: WorldGaussians, *names: str) -> dict[str, Tensor]:
    return {name: getattr(g, name).clone().requires_grad_() for name in names}


# ---- the oracle: poses and rays


@dataclass(frozen=True)
class OracleRays:
    """R rays in world coordinates."""

    origins: Tensor  # [R, 3]
    directions: Tensor  # [R, 3]
    delays: Tensor  # [R] seconds after the middle


def pose_between(
    T0: Tensor,  # [4, 4]
    T1: Tensor,  # [4, 4]
    fraction: Tensor | float,  # [...]
) -> tuple[Tensor, Tensor]:  # [..., 3, 3] and [..., 3]
    """R0 exp(f log(R0^T R1)), and the position on the straight line."""
    f = torch.as_tensor(fraction, dtype=F64)[..., None]
    between = T0[:3, :3].T @ T1[:3, :3]
    skew = 0.5 * (between - between.T)
    axis = torch.stack([skew[2, 1], skew[0, 2], skew[1, 0]])  # times the sine of the angle
    sine = axis.norm() + 1e-300
    angle = torch.atan2(sine, 0.5 * (between.trace() - 1))
    R = T0[:3, :3] @ rotation_vector(f * angle / sine * axis)
    return R, (1 - f) * T0[:3, 3] + f * T1[:3, 3]


def oracle_rays(view: CameraView | LidarView) -> OracleRays:
    local, fractions = _camera_rays(view) if isinstance(view, CameraView) else _lidar_rays(view)
    R, positions = pose_between(view.T_world_sensor_start, view.T_world_sensor_end, fractions)
    delays = (fractions - 0.5) * (view.time_end - view.time_start)
    return OracleRays(positions, (R @ local[..., None]).squeeze(-1), delays)


def _camera_rays(view: CameraView) -> tuple[Tensor, Tensor]:  # [R, 3] local and unit, [R] when they are read
    c = view.camera
    v, u = (
        x.flatten() for x in torch.meshgrid(*(torch.arange(n, dtype=F64) for n in (c.height, c.width)), indexing="ij")
    )
    pixels = torch.stack([u, v], dim=1) + 0.5
    if c.is_plain:
        plane = undistort(c, (pixels - tensor(c.cx, c.cy)) / tensor(c.fx, c.fy))
        straight = torch.cat([plane, torch.ones_like(plane[:, :1])], dim=1)
    else:  # tests/geometry/test_lens.py holds these against NCore's
        straight = unproject(c, pixels)
    along = {
        "global": torch.full_like(v, 0.5),
        "top_to_bottom": v / max(c.height - 1, 1),
        "bottom_to_top": 1 - v / max(c.height - 1, 1),
        "left_to_right": u / max(c.width - 1, 1),
        "right_to_left": 1 - u / max(c.width - 1, 1),
    }
    return straight / straight.norm(dim=1, keepdim=True), along[c.shutter]


def _lidar_rays(view: LidarView) -> tuple[Tensor, Tensor]:  # [R, 3] local and unit, [R] when they are read
    return view.directions.to(F64), view.fractions.to(F64)


# ---- the oracle: responses


def turn(
    q: Tensor,  # [N, 4] unit
) -> Tensor:  # [N, 3, 3]
    """I + 2 w [u]x + 2 [u]x^2 (Rodrigues' formula of a quaternion)."""
    K = cross_matrix(q[:, 1:])
    return torch.eye(3, dtype=q.dtype) + 2 * q[:, :1, None] * K + 2 * K @ K


def responses(
    g: WorldGaussians,  # N
    origin: Tensor,  # [..., 1, 3] world
    direction: Tensor,  # [..., 1, 3]
    delay: Tensor,  # [..., 1]
) -> tuple[Tensor, Tensor]:  # alpha before the clamp and t, both [..., N]
    R = turn(g.quats)
    offset = origin - g.means - g.velocities * delay[..., None]
    gg = torch.einsum("nji,...nj->...ni", R, offset) / g.scales
    e = torch.einsum("nji,...nj->...ni", R, direction.expand(offset.shape)) / g.scales
    D2 = torch.linalg.cross(gg, e).square().sum(-1) / e.square().sum(-1)
    return g.opacities * torch.exp(-D2 / 2), -(gg * e).sum(-1) / e.square().sum(-1)


def all_responses(g: WorldGaussians, rays: OracleRays) -> tuple[Tensor, Tensor]:  # alpha and t [R, N]
    few = max(1, MOST_PAIRS // max(1, len(rays.delays)))
    parts = [
        responses(g.select(i), rays.origins[:, None], rays.directions[:, None], rays.delays[:, None])
        for i in torch.arange(len(g)).split(few)
    ]
    return torch.cat([a for a, _ in parts], dim=1), torch.cat([t for _, t in parts], dim=1)


@torch.no_grad()
def contributing(g: WorldGaussians, rays: OracleRays) -> Tensor:
    """[R, N] which pairs are blended as long as the ray has not ended."""
    alpha, t = all_responses(g, rays)
    return (alpha >= ALPHA_MIN) & (t >= NEAR)


@torch.no_grad()
def depth_order(g: WorldGaussians, view: CameraView | LidarView) -> list[int]:
    """Indices by camera z or lidar range of the mean in the middle of the view, ties by index."""
    R, position = pose_between(view.T_world_sensor_start, view.T_world_sensor_end, 0.5)
    local = (g.means - position) @ R
    depth = local[:, 2] if isinstance(view, CameraView) else local.norm(dim=-1)
    return sorted(range(len(g)), key=depth.tolist().__getitem__)


def depth_order_tensor(g: WorldGaussians, view: CameraView | LidarView) -> Tensor:
    return torch.tensor(depth_order(g, view), dtype=torch.int64)


# ---- the oracle: blending


@dataclass(frozen=True)
class OracleBlend:
    features: Tensor  # [R, C]
    distance: Tensor  # [R]
    transmittance: Tensor  # [R]
    median: Tensor  # [R]
    margin: float  # how near any decision was to falling the other way


def oracle_blend(g: WorldGaussians, features: Tensor, rays: OracleRays, order: list[int]) -> OracleBlend:
    out: list[tuple[Tensor, ...]] = []
    margin = math.inf
    for origin, direction, delay in zip(rays.origins, rays.directions, rays.delays, strict=True):
        alphas, ts = responses(g, origin[None], direction[None], delay[None])
        values = list(zip(alphas.tolist(), ts.tolist(), strict=True))
        T, median = torch.ones((), dtype=F64), torch.zeros((), dtype=F64)
        total, distance = torch.zeros(features.shape[1], dtype=F64), torch.zeros((), dtype=F64)
        for i in order:
            alpha, t = values[i]
            if alpha > 1e-6:  # a fainter one is far from the threshold in any case
                margin = min(margin, abs(alpha - ALPHA_MIN), abs(alpha - ALPHA_MAX), abs(t - NEAR))
            if alpha < ALPHA_MIN or t < NEAR:
                continue
            a = alphas[i] if alpha <= ALPHA_MAX else torch.tensor(ALPHA_MAX, dtype=F64)
            T_after = T * (1 - a)
            margin = min(margin, abs(T_after.item() - T_MIN), abs(T_after.item() - 0.5))
            if T_after.item() < T_MIN:
                break
            total, distance = total + T * a * features[i], distance + T * a * ts[i]
            if T.item() > 0.5 >= T_after.item():
                median = ts[i]
            T = T_after
        out.append((total, distance, T, median))
    return OracleBlend(*(torch.stack(column) for column in zip(*out, strict=True)), margin)


# ---- the oracle: colours and whole renderings


def oracle_harmonics(
    d: Tensor,  # [N, 3] unit
    n: int,
) -> Tensor:  # [N, n]
    """The polynomials and constants of 3D Gaussian Splatting (Kerbl et al. 2023), as published."""
    x, y, z = d.unbind(-1)
    xx, yy, zz, xy, yz, xz = x * x, y * y, z * z, x * y, y * z, x * z
    terms = [
        0.28209479177387814 * torch.ones_like(x),
        -0.4886025119029199 * y, 0.4886025119029199 * z, -0.4886025119029199 * x,
        1.0925484305920792 * xy, -1.0925484305920792 * yz, 0.31539156525252005 * (2 * zz - xx - yy),
        -1.0925484305920792 * xz, 0.5462742152960396 * (xx - yy),
        -0.5900435899266435 * y * (3 * xx - yy), 2.890611442640554 * xy * z, -0.4570457994644658 * y * (4 * zz - xx - yy),
        0.3731763325901154 * z * (2 * zz - 3 * xx - 3 * yy), -0.4570457994644658 * x * (4 * zz - xx - yy),
        1.445305721320277 * z * (xx - yy), -0.5900435899266435 * x * (xx - 3 * yy),
    ]  # fmt: skip
    return torch.stack(terms[:n], dim=-1)


def oracle_colour(g: WorldGaussians, view: CameraView) -> Tensor:  # [N, 3]
    eye = 0.5 * (view.T_world_sensor_start + view.T_world_sensor_end)[:3, 3]
    towards = g.means - eye
    towards = towards / towards.norm(dim=-1, keepdim=True)
    local = torch.einsum("nji,nj->ni", turn(g.frames), towards)
    basis = oracle_harmonics(local, g.sh.shape[1])
    return torch.relu(0.5 + torch.einsum("ns,nsc->nc", basis, g.sh))


def oracle_sky(sky: Tensor, directions: Tensor) -> Tensor:  # [R, 3]
    """Bilinear between the four nearest texels; columns wrap, rows end at the poles."""
    height, width = sky.shape[1:]
    colours = []
    for x, y, z in directions:
        column = (math.pi - torch.atan2(y, x)) / (2 * math.pi) * width - 0.5
        row = (math.pi / 2 - torch.asin(z)) / math.pi * height - 0.5
        i, j = math.floor(row.item()), math.floor(column.item())
        logits = torch.zeros(3, dtype=F64)
        for a in (0, 1):
            for b in (0, 1):
                weight = (1 - (row - (i + a)).abs()) * (1 - (column - (j + b)).abs())
                logits = logits + weight * sky[:, min(max(i + a, 0), height - 1), (j + b) % width]
        colours.append(1 / (1 + torch.exp(-logits)))
    return torch.stack(colours)


@dataclass(frozen=True)
class OracleImage:
    colour: Tensor  # [H, W, 3]
    distance: Tensor  # [H, W]
    opacity: Tensor  # [H, W]
    margin: float


@dataclass(frozen=True)
class OracleReturns:
    distance: Tensor  # [R]
    median: Tensor  # [R]
    intensity: Tensor  # [R]
    drop: Tensor  # [R]
    opacity: Tensor  # [R]
    margin: float


def oracle_camera(g: WorldGaussians, view: CameraView, sky: Tensor) -> OracleImage:
    rays = oracle_rays(view)
    out = oracle_blend(g, oracle_colour(g, view), rays, depth_order(g, view))
    colour = out.features + out.transmittance[:, None] * oracle_sky(sky, rays.directions)
    shape = (view.camera.height, view.camera.width)
    return OracleImage(
        colour.view(*shape, 3), out.distance.view(shape), (1 - out.transmittance).view(shape), out.margin
    )


def oracle_lidar(g: WorldGaussians, view: LidarView) -> OracleReturns:
    out = oracle_blend(g, g.lidar, oracle_rays(view), depth_order(g, view))
    intensity, drop = out.features.unbind(-1)
    T = out.transmittance
    return OracleReturns(out.distance, out.median, intensity, drop + T, 1 - T, out.margin)


# ---- pair lists


def listed(pairs: PairList, n_rays: int, n: int) -> Tensor:
    """[R, N] which pairs the list holds."""
    table = torch.zeros(n_rays + 1, n, dtype=torch.bool)  # the last row takes the rays that a tile lacks
    for i, rays in enumerate(pairs.rays):
        table[rays[:, None], pairs.gaussians[pairs.offsets[i] : pairs.offsets[i + 1]]] = True
    return table[:-1]
