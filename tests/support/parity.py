# SPDX-License-Identifier: Apache-2.0
"""The compiled stages against the plain torch ones in double precision, through the whole chain and on equal pair lists.

A case is a scene and a view, both in float32. Its parameters become leaves twice, as they are for the kernels and in double precision
for the reference, so that both start from the same numbers. Gradients are compared where a trainer takes them, at the parameters:
along an un-normalised quaternion the two differ by construction, and the normalisation projects that out.

A decision at a threshold (1/255, 0.2 m, 1e-4, one half) may fall one way in float32 and the other way in float64. `rounding` finds
the rays without one that near; the others weigh nothing in the comparison, forward and backward.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
import torch
from emulation import EMULATED
from splat_scenes import (
    ALPHA_MAX,
    ALPHA_MIN,
    F64,
    NEAR,
    T_MIN,
    OracleRays,
    all_responses,
    listed,
    make_sky,
    tensor,
    uniform,
)
from torch import Tensor

from nurec_lite.geometry.se3 import quat_conjugate, quat_multiply, quat_rotate, quat_to_matrix, rotvec_to_quat
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.native import stages as native
from nurec_lite.native.plan import CPU_PLAN, CUDA_PLAN, BackwardPlan, RenderPlan
from nurec_lite.scene.collect import collect_gaussian_parameters
from nurec_lite.scene.gaussians import AnyGaussians, Gaussians, SplitGaussians, WorldGaussians, log_odds
from nurec_lite.scene.scene import Scene
from nurec_lite.splat import render
from nurec_lite.splat.project import Projection
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.views import CameraView, LidarView

DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))
SHARED = BackwardPlan(split=False, launch_bounds=False, half_staging=False)
INSTANCES = {  # of the backward kernels
    SHARED: "shared",
    BackwardPlan(True, False, False): "split",
    BackwardPlan(True, True, False): "split-bounds",
    BackwardPlan(True, False, True): "split-staging",
    BackwardPlan(True, True, True): "split-bounds-staging",
}
EPS = 2.0**-24  # half a unit in the last place of float32, relative
POSES = ("T_world_sensor_start", "T_world_sensor_end")
MIDDLE = 3.05  # seconds: of the scenes and, unless a test says otherwise, of the views
OUTPUTS = {
    CameraView: ("colour", "distance", "opacity"),
    LidarView: ("distance", "intensity", "drop", "opacity"),
}  # with gradients
ALONE: dict[type, tuple[str, ...]] = {CameraView: (), LidarView: ("median",)}  # without


def drivers_of(device: torch.device) -> str:
    """Drivers that run: `cuda` on the CPU, too, where they are emulated."""
    return "cuda" if EMULATED else device.type


def plan_of(device: torch.device) -> RenderPlan:
    return CUDA_PLAN if drivers_of(device) == "cuda" else CPU_PLAN


def targets() -> list[Any]:
    """Devices, and for CUDA drivers each instance of the backward kernels; fixtures take them apart with `aim`."""
    emulated = [pytest.param(("cpu", n), id=f"cpu-{name}") for n, name in INSTANCES.items()]
    cuda = [pytest.param(("cuda", n), id=f"cuda-{name}", marks=pytest.mark.gpu) for n, name in INSTANCES.items()]
    return [*(emulated if EMULATED else [pytest.param(("cpu", SHARED), id="cpu")]), *cuda]


def aim(target: tuple[str, BackwardPlan], monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """The device; from now on every plan picks the target's instance."""
    monkeypatch.setattr(RenderPlan, "backward", target[1])
    return torch.device(target[0])


# ---- scenes


def moving_tracks(speeds: tuple[float, float] = (9.0, -4.0)) -> Tracks:
    """Two objects in the middle of a curve, in double precision; their keyframes lie about `MIDDLE`."""
    times, quats, places = [], [], []
    for speed, spin, height in ((speeds[0], 0.6, 1.0), (speeds[1], -1.1, 2.0)):
        for dt in (-0.25, 0.35):
            times.append(MIDDLE + dt)
            quats.append(rotvec_to_quat(tensor(0.02, -0.05, 0.4 + spin * dt)))
            places.append(tensor(14.0 + speed * dt, -6.0 + 0.3 * speed * dt, height))
    keys = torch.tensor(times, dtype=F64), torch.stack(places), 1.3 * torch.stack(quats)
    return Tracks(("a", "b"), ("Car", "Van"), torch.ones(2, 3, dtype=F64), (0, 2, 4), *keys)


def scene_of(
    g: WorldGaussians,
    actors: float = 0.0,  # share of the Gaussians that belong to the two tracks
    speeds: tuple[float, float] = (9.0, -4.0),
    sky: Tensor | None = None,
) -> Scene:
    """The scene, in double precision, that looks like `g` at `MIDDLE`, with quaternions of any length."""
    n, tracks = len(g), moving_tracks(speeds)
    node = torch.where(torch.rand(n) < actors, torch.randint(1, 3, (n,)), 0)
    scene = Scene(
        gaussians=Gaussians(
            g.means, g.quats, g.scales.log(), log_odds(g.opacities), g.sh[:, :1], g.sh[:, 1:], log_odds(g.lidar), node
        ),
        sky=make_sky() if sky is None else sky,
        tracks=tracks,
        track_translations=tracks.translations,
        track_quaternions=tracks.quaternions,
        exposure=torch.zeros(1, 2, 3, dtype=F64),
    )
    if actors:
        scene.gaussians = _in_frames_of_nodes(scene, g)
    scene.gaussians.quats = scene.gaussians.quats * uniform(0.5, 2.0, n, 1)
    return scene


def _in_frames_of_nodes(scene: Scene, g: WorldGaussians) -> Gaussians:
    """Asks `collect` for the poses: of a Gaussian at each node's origin that is not turned."""
    zero = replace(scene.gaussians, means=torch.zeros_like(g.means), quats=tensor([1.0, 0, 0, 0]).expand(len(g), 4))
    pose = collect_gaussian_parameters(replace(scene, gaussians=zero), MIDDLE)
    back = quat_conjugate(pose.frames)
    means = quat_rotate(back, g.means - pose.means)
    return replace(scene.gaussians, means=means, quats=quat_multiply(back, g.quats))


def cast(scene: Scene, dtype: torch.dtype, device: torch.device | str = "cpu") -> Scene:
    to = {f.name: getattr(scene.gaussians, f.name) for f in fields(Gaussians)}
    to = {name: t.to(device, dtype if t.is_floating_point() else t.dtype) for name, t in to.items()}
    own = {
        k: getattr(scene, k).to(device, dtype) for k in ("sky", "track_translations", "track_quaternions", "exposure")
    }
    return replace(scene, gaussians=Gaussians(**to), tracks=scene.tracks.to(device, dtype), **own)


def cast_view(
    view: CameraView | LidarView, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> CameraView | LidarView:
    names = list(POSES)
    if isinstance(view, LidarView):
        names += ["directions", "fractions", *([] if view.targets is None else ["targets"])]
    moved = {name: t if (t := getattr(view, name)) is None else t.to(device) for name in ("row", "middle")}
    return replace(view, **moved, **{name: getattr(view, name).to(device, dtype) for name in names})


@dataclass(frozen=True)
class Case:
    """A scene and a view to render, in float32 on the CPU."""

    scene: Scene
    view: CameraView | LidarView
    still: int | None = None  # how many Gaussians the kernels get apart from those that move; None: all in one

    @staticmethod
    def of(scene: Scene, view: CameraView | LidarView) -> "Case":
        return Case(cast(scene, torch.float32), cast_view(view, torch.float32))

    @property
    def by_lidar(self) -> bool:
        return isinstance(self.view, LidarView)

    def world(self, dtype: torch.dtype = F64) -> WorldGaussians:
        with torch.no_grad():
            return collect_gaussian_parameters(cast(self.scene, dtype), self.view.time_mid, by_lidar=self.by_lidar)

    def pairs(self, device: torch.device) -> tuple[Projection, PairList]:
        """Projection and lists by the compiled stages of the device, on that device."""
        with torch.no_grad():
            scene = cast(self.scene, torch.float32, device)
            g = collect_gaussian_parameters(scene, self.view.time_mid, by_lidar=self.by_lidar)
            view = cast_view(self.view, torch.float32, device)
            projection = native.project(self.parted(g), view)
            return projection, native.tile(projection, view, plan=plan_of(device))

    def parted(self, g: WorldGaussians) -> AnyGaussians:
        return g if self.still is None else in_parts(g, self.still)

    def farthest(self, projection: Projection) -> float:
        """Metres to the farthest mean that may be seen, 1 at least."""
        g = self.world().select(projection.index.cpu())
        return max([1.0, *(g.means - self.view.centre()).norm(dim=-1).tolist()])


def in_parts(
    g: WorldGaussians,
    still: int,  # the first ones, which must be in the world's axes
) -> SplitGaussians:
    """The Gaussians as static and moving ones; static ones have no velocities."""
    moving = {k: getattr(g, k)[still:] for k in ("means", "quats", "velocities")}
    moving |= {"rotations": g.frames[still:], "nodes": torch.arange(len(g) - still, device=g.frames.device)}
    whole = {k: getattr(g, k) for k in ("scales", "opacities", "lidar")}
    whole |= {"sh0": g.sh[:, :1].contiguous(), "sh_rest": g.sh[:, 1:].contiguous()}
    return SplitGaussians(g.means[:still], g.quats[:still], **moving, **whole)


def background_first(case: Case) -> Case:
    """The Gaussians of the background, then those of each track."""
    g = case.scene.gaussians
    order = torch.argsort(g.node, stable=True)
    g = Gaussians(**{f.name: getattr(g, f.name)[order] for f in fields(Gaussians)})
    return replace(case, scene=replace(case.scene, gaussians=g))


def aimed(view: CameraView | LidarView) -> LidarView:
    """Some rays end before all Gaussians, some among them, some behind; every fifth did not return and misses nothing."""
    assert isinstance(view, LidarView)
    n, generator = len(view.fractions), torch.Generator().manual_seed(5)
    draw = torch.rand(n, 2, generator=generator, dtype=F64)
    targets = torch.tensor([2.0, 0.5], dtype=F64) + draw * torch.tensor([23.0, 3.5], dtype=F64)
    targets[::5, 1] = 0
    return replace(view, targets=targets.to(view.fractions.dtype))


def lists_on(pairs: PairList, device: torch.device | str) -> PairList:
    return PairList(*(t.to(device) for t in (pairs.rays, pairs.offsets, pairs.gaussians)))


# ---- the chain


@dataclass(frozen=True)
class Result:
    """Values [R, ...] a ray by the names of the outputs, and gradients by the names of the parameters."""

    values: dict[str, Tensor]
    gradients: dict[str, Tensor]


def n_rays(view: CameraView | LidarView) -> int:
    return view.camera.width * view.camera.height if isinstance(view, CameraView) else len(view.fractions)


def random_weights(view: CameraView | LidarView, distance: float, seed: int = 11) -> dict[str, Tensor]:
    """[R, ...] one of each output; those of the distance are such that all outputs matter alike."""
    generator = torch.Generator().manual_seed(seed)
    shape = {"colour": (n_rays(view), 3)}
    weights = {
        name: torch.randn(shape.get(name, (n_rays(view),)), generator=generator, dtype=F64)
        for name in OUTPUTS[type(view)]
    }
    return weights | {"distance": weights["distance"] / distance}


def run(
    stages: Any,  # a module with render_camera and render_lidar
    case: Case,
    pairs: PairList,
    weights: dict[str, Tensor],  # no gradients if it is empty
    dtype: torch.dtype,
    device: torch.device,
    learn_poses: bool = True,
) -> Result:
    """Parameters -> activate, collect -> render -> weighted sum -> backward."""
    scene, view = cast(case.scene, dtype, device), cast_view(case.view, dtype, device)
    ends = {k: getattr(view, k).clone().requires_grad_() for k in POSES} if learn_poses else {}
    leaves = {k: v.clone().requires_grad_() for k, v in scene.parameters().items() if k != "exposure"}
    scene = replace(
        scene,
        gaussians=replace(scene.gaussians, **{k: leaves[k] for k in Gaussians.trained()}),
        **{k: leaves[k] for k in ("sky", "track_translations", "track_quaternions")},
    )
    view, pairs = replace(view, **ends), lists_on(pairs, device)
    world = collect_gaussian_parameters(scene, view.time_mid, by_lidar=case.by_lidar)
    if not world.velocities.requires_grad:  # without actors
        world.velocities.requires_grad_()
    if isinstance(view, CameraView):
        out = stages.render_camera(case.parted(world), view, pairs, scene.sky)
    else:
        out = stages.render_lidar(case.parted(world), view, pairs)
    values = {name: getattr(out, name) for name in (*OUTPUTS[type(view)], *ALONE[type(view)])}
    if isinstance(view, CameraView):
        values = {k: v.flatten(0, 1) for k, v in values.items()}
    if not weights:
        return Result({k: v.detach().cpu() for k, v in values.items()}, {})
    loss = torch.stack([(w.to(device, dtype) * values[k]).sum() for k, w in weights.items()]).sum()
    loss = loss + 0 * sum(leaf.sum() for leaf in leaves.values())  # an empty scene gives no gradient at all
    wanted = {**leaves, **ends, "velocities": world.velocities}
    found = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True)
    gradients = {
        k: torch.zeros_like(leaf).cpu() if v is None else v.cpu()
        for (k, leaf), v in zip(wanted.items(), found, strict=True)
    }
    return Result({k: v.detach().cpu() for k, v in values.items()}, gradients)


# ---- errors of float32


@dataclass(frozen=True)
class Rounding:
    """Bounds of float32's error, from the scene in double precision."""

    clear: Tensor  # [R] bool: no decision along the ray may fall the other way
    value: Tensor  # [R] absolute, of blended features between 0 and 1
    slope: float  # relative, of gradients: root mean square over the blended Gaussians, each as steep as it is


@torch.no_grad()
def rounding(case: Case, projection: Projection, pairs: PairList) -> Rounding:
    """Means and rays at a distance r are good to a few EPS r, and so is their passing of one another. With A, which takes an
    offset across the ray to standard deviations, the D of alpha = o exp(-D^2 / 2) is then good to a few EPS r |A|, and alpha to D <= 3.4
    times as much of itself: in all 16 EPS r |A|. Transmittances add up the errors of all alphas before them. The sky behind is
    interpolated between texels whose place is good to 1e-6."""
    g, view = case.world(), cast_view(case.view, F64)
    rays = view.rays()
    order = projection.index.cpu()
    there = listed(pairs, len(rays.delays), len(g))[:, order]
    g = g.select(order)
    alpha, t = all_responses(g, OracleRays(rays.origins + view.centre(), rays.directions, rays.delays))
    distance = (g.means - view.centre()).norm(dim=-1) + 1
    stretch = _stretch(g, rays.directions)
    slack = 1e-6 + 16 * EPS * distance * stretch  # of alpha, relative
    blended = there & (alpha >= ALPHA_MIN) & (t >= NEAR)
    a = torch.where(blended, alpha.clamp(max=ALPHA_MAX), 0)
    T = torch.cumprod(1 - a, dim=1)
    T_slack = (slack * a / (1 - a)).cumsum(1)  # relative
    ended = (T_MIN * (1 - T_slack) > T).long()
    reached = there & (ended.cumsum(1) - ended == 0)
    doubt = ((alpha / ALPHA_MIN).log().abs() < slack) & (t > 0)
    doubt |= ((t - NEAR).abs() < 1e-4) & (alpha > 0.9 * ALPHA_MIN)
    doubt |= blended & ((alpha / ALPHA_MAX).log().abs() < slack)
    if rays.targets is not None:  # |t - target| has a slope of either sign, and none from `most` on
        target, most = (column[:, None] for column in rays.targets.unbind(-1))
        off = (t - target).abs()
        doubt |= blended & ((off < 1e-4) | ((off - most).abs() < 1e-4))
    doubt |= blended & (((T / T_MIN).log().abs() < T_slack) | ((2 * T).log().abs() < T_slack))
    weight = a * T / (1 - a) * reached * (ended == 0)
    value = (weight * (slack + T_slack)).sum(1) + 3e-6
    steep = weight * stretch
    slope = float((steep * slack).norm() / steep.norm().clamp(min=1e-9))
    return Rounding(~(doubt & reached).any(1), value, slope)


def _stretch(
    g: WorldGaussians,
    directions: Tensor,  # [R, 3]
) -> (
    Tensor
):  # [R, N] standard deviations a metre across the ray: |A| with A = (1 - e e^T / |e|^2) M, M = S^-1 R^T and e = M d
    M = quat_to_matrix(g.quats).transpose(1, 2) / g.scales[:, :, None]
    e = torch.einsum("nij,rj->rni", M, directions)
    along = torch.einsum("nij,rni->rnj", M, e / e.norm(dim=-1, keepdim=True))
    return (M.square().sum((1, 2)) - along.square().sum(-1)).clamp(min=0).sqrt()


# ---- comparison


@dataclass(frozen=True)
class Errors:
    values: dict[str, float]  # largest difference on clear rays, as a share of the possible rounding there
    largest: dict[str, float]  # the same in absolute terms, distances as a share of the farthest Gaussian's
    gradients: dict[str, float]  # relative in the Euclidean norm
    rounding: Rounding


def compare(case: Case, device: torch.device, learn_poses: bool = True) -> Errors:
    """The device's kernels against the reference in double precision on the CPU, which takes all Gaussians in one."""
    projection, pairs = case.pairs(device)
    scale = case.farthest(projection)
    on_host = lists_on(pairs, "cpu")
    limits = rounding(case, projection, on_host)
    clear = limits.clear
    weights = {k: w * clear.view(-1, *[1] * (w.dim() - 1)) for k, w in random_weights(case.view, scale).items()}
    found = run(native, case, pairs, weights, torch.float32, device, learn_poses)
    expected = run(render, replace(case, still=None), on_host, weights, F64, torch.device("cpu"), learn_poses)
    for gradients in (found.gradients, expected.gradients):  # static Gaussians have no velocity to learn
        gradients["velocities"] = gradients["velocities"][case.still or 0 :]
    assert found.values.keys() == expected.values.keys() and found.gradients.keys() == expected.gradients.keys()
    off = {
        k: (v - expected.values[k]).abs() / (scale if k in ("distance", "median") else 1)
        for k, v in found.values.items()
    }
    return Errors(
        {k: _largest((v / limits.value.view(-1, *[1] * (v.dim() - 1)))[clear]) for k, v in off.items()},
        {k: _largest(v[clear]) for k, v in off.items()},
        {k: relative(v, expected.gradients[k]) for k, v in found.gradients.items()},
        limits,
    )


def _largest(a: Tensor) -> float:
    return float(a.abs().max()) if a.numel() else 0.0


def relative(found: Tensor, expected: Tensor) -> float:
    """Euclidean distance by the norm of the expected tensor; 0 if both vanish."""
    assert found.shape == expected.shape and bool(found.isfinite().all())
    difference = float((found.double() - expected).norm())
    return difference / float(expected.norm()) if difference else 0.0
