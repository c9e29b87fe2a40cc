# SPDX-License-Identifier: Apache-2.0
"""Points of all training sweeps: de-skewed, coloured from the images of their moment, actors' points in their box frames."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from nurec_lite.base.pool import in_threads
from nurec_lite.capture.deskew import project_world_points, world_points
from nurec_lite.capture.types import Capture, SweepFrame
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.se3 import quat_conjugate, quat_rotate
from nurec_lite.geometry.tracks import Tracks, interpolate

BOX_MARGIN = 1.1  # a box is enlarged by this factor to catch all points of its object
SPEEDING = 2.0  # within a sweep an object may be so much faster than in its middle
GROUND_METRES = 0.05  # above the underside of a box points belong to the object, not to the ground that it stands on


@dataclass(frozen=True)
class Points:
    """n points with what the sensors say of them."""

    xyz: Tensor  # [n, 3] metres, float64, in the frame of their node
    node: Tensor  # [n] int64: 0 background, k + 1 track k
    colour: Tensor  # [n, 3] 0 to 1; mean grey where no image saw the point
    coloured: Tensor  # [n] bool
    intensity: Tensor  # [n] 0 to 1

    def __len__(self) -> int:
        return len(self.xyz)

    def select(
        self,
        which: Tensor,  # [n] bool, or numbers of points
    ) -> "Points":
        index = torch.nonzero(which).squeeze(-1) if which.dtype == torch.bool else which  # once for all fields
        return Points(*(getattr(self, f)[index] for f in self.__dataclass_fields__))

    @staticmethod
    def empty() -> "Points":
        none = torch.zeros(0)
        return Points(none.double().view(0, 3), none.long(), none.view(0, 3), none.bool(), none)

    @staticmethod
    def cat(parts: list["Points"]) -> "Points":
        return Points(*(torch.cat([getattr(p, f) for p in parts]) for f in Points.__dataclass_fields__))


def lidar_points(capture: Capture) -> Points:
    """All points of all training sweeps."""
    assert capture.split is not None
    frames = [capture.sweeps[i] for i in capture.split.train_sweeps]
    return Points.cat([Points.empty(), *in_threads(partial(_sweep_points, capture), frames)])


def _sweep_points(capture: Capture, frame: SweepFrame) -> Points:
    sweep = frame.load()
    sweep = sweep.select(sweep.returned)
    world = world_points(frame, sweep, capture.lidar(frame.sensor))
    colour, coloured = colours_at(capture, frame.index, world)
    node, xyz = assign_to_actors(capture.tracks, sweep, world)
    return Points(xyz, node, colour, coloured, sweep.intensities)


def colours_at(
    capture: Capture,
    index: int,  # of the moment
    world: Tensor,  # [n, 3] metres
) -> tuple[Tensor, Tensor]:  # colour [n, 3] 0 to 1, whether any image saw the point [n]
    """Mean over the training images of that moment in which the points lie; nothing is known of occlusion."""
    total, count = torch.zeros(len(world), 3), torch.zeros(len(world))
    assert capture.split is not None
    for frame in (capture.images[i] for i in capture.split.train_images):
        if frame.index != index:
            continue
        camera = capture.camera(frame.sensor)
        pixels, depth = project_world_points(camera, frame, world)
        u, v = torch.floor(pixels).long().unbind(-1)
        seen = torch.nonzero((depth > 0.1) & (u >= 0) & (v >= 0) & (u < camera.width) & (v < camera.height)).squeeze(-1)
        total[seen] += frame.load()[v[seen], u[seen]].float() / 255
        count[seen] += 1
    coloured = count > 0
    return torch.where(coloured[:, None], total / count.clamp(min=1)[:, None], torch.tensor(0.5)), coloured


def assign_to_actors(
    tracks: Tracks,
    sweep: Sweep,  # R rays that returned
    world: Tensor,  # [R, 3] metres
) -> tuple[Tensor, Tensor]:  # node [R], position in the node's frame [R, 3]
    """A point belongs to the box that holds it at the point's own time."""
    node, xyz = torch.zeros(len(world), dtype=torch.int64), world.clone()
    if len(tracks) == 0 or len(world) == 0:
        return node, xyz
    for k, near in _near(tracks, sweep.times, world):
        local = _in_box_frame(one_track(tracks, k), sweep.times[near], world[near])
        half = 0.5 * tracks.sizes[k]
        inside = (local.abs() <= BOX_MARGIN * half).all(-1) & (local[:, 2] > GROUND_METRES - half[2])
        node[near[inside]], xyz[near[inside]] = k + 1, local[inside]
    return node, xyz


def _near(tracks: Tracks, times: Tensor, world: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Tracks that are there in the middle of the times, each with the numbers of the points that may be in its box."""
    mean = times.mean()
    middle = interpolate(tracks, mean[None])
    there = torch.nonzero(middle.valid[0]).squeeze(-1)
    moved = SPEEDING * middle.velocities[0, there].norm(dim=-1) * (times - mean).abs().max()
    radius = 0.5 * BOX_MARGIN * tracks.sizes[there].norm(dim=-1) + moved + 2  # metres
    close = torch.cdist(middle.translations[0, there], world) < radius[:, None]
    for k, row in zip(there.tolist(), close, strict=True):
        yield k, torch.nonzero(row).squeeze(-1)


def one_track(tracks: Tracks, k: int) -> Tracks:
    rows = slice(tracks.offsets[k], tracks.offsets[k + 1])
    return Tracks(
        tracks.ids[k : k + 1], tracks.classes[k : k + 1], tracks.sizes[k : k + 1], (0, rows.stop - rows.start),
        tracks.times[rows], tracks.translations[rows], tracks.quaternions[rows], tracks.margin,
    )  # fmt: skip


def _in_box_frame(track: Tracks, times: Tensor, world: Tensor) -> Tensor:
    poses = interpolate(track, times)
    return quat_rotate(quat_conjugate(poses.quaternions[:, 0]), world - poses.translations[:, 0])
