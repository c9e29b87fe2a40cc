# SPDX-License-Identifier: Apache-2.0
"""A scene whose actors are turned, the PLY files of it, and pictures of both."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import torch
from tiny_capture import tiny_capture, tiny_scene
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.geometry.tracks import Tracks
from nurec_lite.scene.gaussians import BACKGROUND, Gaussians, WorldGaussians
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.project import project
from nurec_lite.splat.render import render_camera
from nurec_lite.splat.tiles import tile
from nurec_lite.splat.views import CameraView, camera_view

# ---- scenes


def still_view() -> CameraView:
    """A camera of the middle of the drive, its shutter open for an instant."""
    capture = tiny_capture()
    view = camera_view(capture, capture.images[len(capture.images) // 2], "cpu")
    return replace(view, T_world_sensor_end=view.T_world_sensor_start, time_end=view.time_start, row=None)


def turned_scene(degree: int = 1) -> Scene:
    """A third of the Gaussians belongs to actors before the camera of `still_view`, all turned in ways of their own, with colours that
    depend on the direction."""
    scene, view = tiny_scene(), still_view()
    n, t = len(scene.gaussians), scene.tracks
    track = torch.repeat_interleave(torch.arange(len(t)), torch.tensor(t.offsets).diff())  # of each keyframe
    ahead = (
        view.T_world_sensor_start[:3, 3] + view.T_world_sensor_start[:3, 2] * (6 + 2 * torch.arange(len(t)))[:, None]
    )
    drift = (t.times - view.time_mid).float()[:, None] * torch.randn(len(t), 3)[track]
    quats = F.normalize(scene.track_quaternions + torch.randn(len(t), 4)[track], dim=-1)
    g, i = scene.gaussians, torch.arange(1, n, 3)
    g.node[i], g.means[i], g.opacity_logits[i] = 1 + i % len(t), torch.randn(len(i), 3), 2.0
    g.log_scales[i] = -1.5 + 0.5 * torch.randn(len(i), 3)
    g.sh_rest = 0.3 * torch.randn(n, (degree + 1) ** 2 - 1, 3)
    scene = rows(scene, torch.argsort(g.node, stable=True))  # in the order of their nodes, as every scene
    return replace(scene, track_translations=ahead[track] + drift, track_quaternions=quats)


def rows(scene: Scene, keep: Tensor) -> Scene:
    g = scene.gaussians
    return replace(scene, gaussians=Gaussians(**{f.name: getattr(g, f.name)[keep] for f in fields(g)}))


def without_tracks(scene: Scene) -> Scene:
    return replace(
        rows(scene, scene.gaussians.node == BACKGROUND),
        tracks=Tracks.empty().to("cpu"), track_translations=torch.zeros(0, 3), track_quaternions=torch.zeros(0, 4),
    )  # fmt: skip


def parted_in_time(scene: Scene) -> Scene:
    """The first track ends a second before the others begin."""
    t = scene.tracks
    late = torch.arange(len(t.times)) >= t.offsets[1]
    return replace(scene, tracks=replace(t, times=t.times + (1 + t.times.max() - t.times.min()) * late))


# ---- reading


def read_ply(path: Path) -> dict[str, np.ndarray]:
    """Columns of a PLY file of floats, in the file's order."""
    header, _, body = path.read_bytes().partition(b"end_header\n")
    lines = [line for line in header.decode("ascii").splitlines() if not line.startswith("comment ")]
    assert lines[:2] == ["ply", "format binary_little_endian 1.0"] and lines[2].startswith("element vertex ")
    assert all(line.startswith("property float ") for line in lines[3:])
    names, n = [line.split()[2] for line in lines[3:]], int(lines[2].split()[2])
    values = np.frombuffer(body, "<f4")
    assert len(values) == n * len(names)
    return dict(zip(names, values.reshape(n, len(names)).T, strict=True))


def columns(ply: dict[str, np.ndarray], *names: str) -> Tensor:
    return torch.tensor(np.stack([ply[name] for name in names], axis=-1))


def numbered(ply: dict[str, np.ndarray], prefix: str) -> Tensor:
    n = sum(name.startswith(prefix) for name in ply)
    return columns(ply, *(f"{prefix}{i}" for i in range(n))) if n else torch.zeros(len(ply["x"]), 0)


def harmonics(ply: dict[str, np.ndarray]) -> Tensor:
    """[N, S, 3]: viewers take the first third of f_rest for red."""
    rest = numbered(ply, "f_rest_")
    return torch.cat([numbered(ply, "f_dc_")[:, None], rest.unflatten(1, (3, -1)).transpose(1, 2)], dim=1)


def world_of(ply: dict[str, np.ndarray]) -> WorldGaussians:
    opacities = torch.from_numpy(ply["opacity"].copy()).sigmoid()
    place, scales = columns(ply, "x", "y", "z"), numbered(ply, "scale_").exp()
    return world_from(place, numbered(ply, "rot_"), scales, opacities, harmonics(ply))


def photograph(gaussians: WorldGaussians, view: CameraView) -> Tensor:
    return render_camera(gaussians, view, tile(project(gaussians, view), view), torch.zeros(3, 2, 4)).colour


def world_from(
    means: Tensor,  # [N, 3]
    quats: Tensor,  # [N, 4]
    scales: Tensor,  # [N, 3] metres
    opacities: Tensor,  # [N] 0 to 1
    sh: Tensor,  # [N, S, 3]
) -> WorldGaussians:
    """Gaussians in the world as a viewer takes the file's content: everything belongs to the background."""
    n = len(means)
    return WorldGaussians(
        means=means,
        quats=F.normalize(quats, dim=-1),
        scales=scales,
        opacities=opacities,
        sh=sh,
        frames=torch.tensor([1.0, 0, 0, 0]).expand(n, 4),
        lidar=torch.zeros(n, 2),
        velocities=torch.zeros(n, 3),
    )


def psnr(a: Tensor, b: Tensor) -> float:
    return float(-10 * torch.log10((a - b).square().mean()))
