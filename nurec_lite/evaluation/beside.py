# SPDX-License-Identifier: Apache-2.0
"""Figures of renders off the path, where no sensor was: against measured points, and against the actors' boxes.

The rig is moved to the left or to the right. Its lidar looks at the points that were measured from the path, and the range that it would
see is compared with their distance. Points on actors are left out, as they would be seen at another time, and so are points that a
nearer one hides from where the lidar is now. A box is counted where points within it can be seen by the moved camera, and is found
again if the camera's rendered depth lies within the box in most of the pixels that look through its middle.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nurec_lite.capture.deskew import project_world_points, rig_motion, world_points
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.evaluation.metrics import box_corners, middle
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar, Sweep, azimuth_elevation
from nurec_lite.geometry.se3 import invert, quat_conjugate, quat_rotate, transform
from nurec_lite.geometry.tracks import TrackPoses, Tracks, interpolate
from nurec_lite.splat.render import CameraImage
from nurec_lite.splat.views import CameraView

RAYS = 20_000  # of a sweep that look at measured points at most
DISTANCES = (0, 1, 2, 3)  # metres to the side; 0 is the path itself
CELLS = (
    150  # cells across an image; in each a return hides farther ones: a cell is higher than the distance of two beams
)
_HIDES = (1.05, 0.5)  # a return counts up to this factor and these metres beyond the nearest one of its cell
_ROUNDS = 4  # until rays meet their points at the time when the lidar looks there
_SEEN = 5  # returns within a box that can be seen, for the box to be counted
_MIDDLE = 0.7  # of a box's sides: rays that meet this part meet the body, not the air in the box's corners
_LOOKED = 16  # rays through the middle, for the box to be counted
_SLACK = 0.3  # metres that a box is larger than its label
_OPAQUE = 0.5  # least opacity of a pixel with a depth


@dataclass
class Beside:
    """Measurements at one distance."""

    errors: list[Tensor] = field(default_factory=list)  # [n] metres
    boxes: list[bool] = field(default_factory=list)  # whether each was found again


@dataclass(frozen=True)
class Measured:
    """Returns of one sweep."""

    points: Tensor  # [n, 3] metres, world, float64
    box: Tensor  # [n] row of the track with a point in its box; -1: none

    @staticmethod
    def of(
        capture: Capture,
        index: int,
        sweep: Sweep,  # of that index, on any device
    ) -> "Measured":
        frame = capture.sweeps[index]
        points = world_points(frame, sweep, capture.lidar(frame.sensor))[sweep.returned]
        return Measured(points, boxes_of(points, capture.tracks, frame.time_mid))


def boxes_of(
    points: Tensor,  # [n, 3] world
    tracks: Tracks,
    time: float,  # seconds
) -> Tensor:  # [n] row of a track with the point in its box, a little enlarged; -1: none
    row = torch.full((len(points),), -1, device=points.device)
    poses = _poses(tracks, time)
    for k in poses.valid[0].nonzero().flatten().tolist():
        half = 0.5 * tracks.sizes[k].double() + _SLACK
        near = (points - poses.translations[0, k].to(points)).square().sum(-1) <= float(half.square().sum())
        some = near.nonzero().flatten()
        inside = (_in_box(points[some], poses, k).abs() <= half.to(points)).all(-1)
        row[some[inside]] = k
    return row


def _poses(tracks: Tracks, time: float) -> TrackPoses:
    return interpolate(tracks, tracks.times.new_tensor([time]))


def _in_box(points: Tensor, poses: TrackPoses, k: int) -> Tensor:  # [..., 3] each, on the device of the points
    q, t = poses.quaternions[0, k].detach().to(points), poses.translations[0, k].detach().to(points)
    return quat_rotate(quat_conjugate(q), points - t)


def aimed(
    frame: SweepFrame,  # moved
    lidar: Lidar,
    points: Tensor,  # [n, 3] metres, world, float64
) -> Sweep:  # n rays, each to a point at the time when the lidar looks there
    fraction, T_lidar_rig = points.new_full((len(points),), 0.5), invert(lidar.T_rig_lidar).to(points)
    motion = rig_motion([frame], points.device)
    for _ in range(_ROUNDS):
        local = transform(T_lidar_rig, motion.to_rig(points, fraction))
        fraction = lidar.spin_fraction(azimuth_elevation(local)[:, 0])
    ranges = local.norm(dim=-1)
    times = frame.time_start + fraction * (frame.time_end - frame.time_start)
    directions, none = (local / ranges[:, None].clamp(min=1e-9)).float(), torch.zeros_like(ranges, dtype=torch.float32)
    return Sweep(directions, ranges.float(), none, times, none.long(), torch.ones_like(none, dtype=torch.bool))


def rays_beside(
    frame: SweepFrame,  # moved
    lidar: Lidar,
    measured: Measured,
) -> Sweep:
    """Rays to the points that the moved lidar can see, RAYS at most."""
    rays = aimed(frame, lidar, measured.points[measured.box < 0])
    seen = unhidden(lidar.cells(2).of(rays.directions), rays.ranges).nonzero().flatten()
    return rays.select(seen[:: max(1, math.ceil(len(seen) / RAYS))])


def unhidden(
    cell: Tensor,  # [n] int64
    distances: Tensor,  # [n] metres
) -> Tensor:  # [n] bool: about as far as the nearest point of the same cell
    if len(cell) == 0:
        return torch.zeros_like(distances, dtype=torch.bool)
    nearest = distances.new_full((int(cell.max()) + 1,), math.inf).scatter_reduce(0, cell, distances, "amin")
    factor, metres = _HIDES
    return distances <= factor * nearest[cell] + metres


def boxes_found(
    capture: Capture,
    frame: ImageFrame,  # moved
    view: CameraView,  # of it
    image: CameraImage,
    measured: Measured,
) -> list[bool]:  # of each box that can be seen
    camera = capture.camera(frame.sensor)
    seen = visible(camera, *project_world_points(camera, frame, measured.points))
    counts = torch.bincount(measured.box[seen & (measured.box >= 0)], minlength=len(capture.tracks))
    chosen = (counts >= _SEEN).nonzero().flatten().tolist()
    return list(_found(capture.tracks, camera, frame, view, image, chosen))


def visible(
    camera: Camera,
    places: Tensor,  # [n, 2] pixels
    depths: Tensor,  # [n] metres
) -> Tensor:  # [n] bool: inside the image, and not hidden by a nearer point of the same cell
    column, row = places.floor().long().unbind(-1)
    inside = (column >= 0) & (column < camera.width) & (row >= 0) & (row < camera.height) & (depths > _SLACK)
    size = max(1, math.ceil(camera.width / CELLS))
    cell = (row // size) * math.ceil(camera.width / size) + column // size
    found = inside.clone()
    found[inside] = unhidden(cell[inside], depths[inside])
    return found


def _found(
    tracks: Tracks, camera: Camera, frame: ImageFrame, view: CameraView, image: CameraImage, chosen: list[int]
) -> Iterator[bool]:
    """Returns for each chosen track with a large enough box in the image whether the render has it there."""
    if not chosen:
        return
    (corners,), _ = box_corners(tracks, [frame.time_mid])
    places, depths = project_world_points(camera, frame, corners[chosen].flatten(0, 1))
    rectangles = zip(chosen, places.view(-1, 8, 2), depths.view(-1, 8), strict=True)
    poses, rays = _poses(tracks, frame.time_mid), view.rays()
    shape = camera.height, camera.width, 3
    origins, directions, rendered = rays.origins.view(shape), rays.directions.view(shape), _distance(image)
    centre = view.centre().double()
    for k, *seen in ((k, *seen) for k, *seen in rectangles if poses.valid[0, k]):
        rows, columns = _rectangle(camera, *seen)
        starts, towards, ends = (values[rows, columns].double() for values in (origins, directions, rendered))
        look = (starts + centre).flatten(0, 1), towards.flatten(0, 1), ends.flatten(0, 1)
        share = _share_within(tracks, poses, k, *look)
        if share is not None:
            yield share >= 0.5


def _distance(image: CameraImage) -> Tensor:  # [H, W] metres along the ray; infinite where nothing is met
    opacity = image.opacity
    return torch.where(opacity >= _OPAQUE, image.distance.double() / opacity, math.inf)


def _rectangle(
    camera: Camera,
    places: Tensor,  # [8, 2] pixels
    depths: Tensor,  # [8] metres
) -> tuple[slice, slice]:  # rows and columns around the corners; none if some corner is not in front of the camera
    if bool((depths <= _SLACK).any()):
        return slice(0, 0), slice(0, 0)
    low, high = places.min(0).values.floor(), places.max(0).values.ceil()
    size = torch.tensor([camera.width, camera.height], dtype=low.dtype)
    (left, top), (right, bottom) = (torch.minimum(edge.clamp(min=0), size).long().tolist() for edge in (low, high))
    return slice(top, bottom), slice(left, right)


def _share_within(
    tracks: Tracks,
    poses: TrackPoses,
    k: int,  # the track
    origins: Tensor,  # [n, 3] world
    directions: Tensor,  # [n, 3]
    rendered: Tensor,  # [n] metres
) -> float | None:  # None if fewer than _LOOKED rays meet the middle of the box
    local = _in_box(origins, poses, k)
    along = quat_rotate(quat_conjugate(poses.quaternions[0, k].detach().to(directions)), directions)
    half = 0.5 * tracks.sizes[k].to(directions)
    first, last = _crossed(local, along, _MIDDLE * half)
    middle = (first <= last) & (last > 0)
    if int(middle.sum()) < _LOOKED:
        return None
    first, last = _crossed(local[middle], along[middle], half + _SLACK)
    return float(((rendered[middle] >= first) & (rendered[middle] <= last)).double().mean())


def _crossed(
    origins: Tensor,  # [n, 3] in the box's axes
    directions: Tensor,  # [n, 3]
    half: Tensor,  # [3] metres
) -> tuple[Tensor, Tensor]:  # [n] each: metres where a ray enters and leaves; the first is larger if it misses
    inverse = 1 / torch.where(directions.abs() < 1e-12, 1e-12, directions)
    a, b = (-half - origins) * inverse, (half - origins) * inverse
    return torch.minimum(a, b).amax(-1), torch.maximum(a, b).amin(-1)


def summary(found: dict[int, Beside]) -> dict[str, float]:
    """`lidar_beside_Nm`: median absolute error of ranges in metres; `boxes_beside_Nm`: share of the boxes that are found again. A figure
    of nothing is left out."""
    metrics: dict[str, float] = {}
    for distance, beside in found.items():
        errors = torch.cat(beside.errors) if beside.errors else torch.zeros(0)
        metrics |= {f"lidar_beside_{distance}m": float(middle(errors).mean())} if len(errors) else {}
    for distance, beside in found.items():
        metrics |= {f"boxes_beside_{distance}m": sum(beside.boxes) / len(beside.boxes)} if beside.boxes else {}
    return metrics
