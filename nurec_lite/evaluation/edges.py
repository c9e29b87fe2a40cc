# SPDX-License-Identifier: Apache-2.0
"""Whether edges that the lidar sees lie on edges of the images: by how much a camera is turned, or its clock late, before anything is
learned.

Where a sweep's range jumps from one ray to the next a surface ends, and an image often shows an edge there. How strong the images' edges
are where those of the sweeps fall, in the mean, is asked for many turns of a camera about its vertical axis and offsets of its clock; it
is most where both agree. Source: Levinson and Thrun, Automatic Online Calibration of Cameras and Lasers (RSS 2013), whose edges these are.
Letters: P points, T turns, K offsets.
"""

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.base.pool import in_threads
from nurec_lite.capture.deskew import poses_at, project_world_points, world_points
from nurec_lite.capture.trajectory import nearest, velocities
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.geometry.camera import Camera, project_points, shutter_fraction
from nurec_lite.geometry.lidar import Lidar, Sweep, azimuth_elevation
from nurec_lite.geometry.se3 import invert

IMAGES = 24  # of a camera, evenly over the drive
JUMP = 0.5  # metres, and
RATIO = 0.1  # of the nearer range: less is a slanted surface
GAP = 3  # steps of azimuth between two rays that are neighbours
APART = 0.06  # seconds between an image and a sweep of one moment
FEWEST = 10  # points of an image that tell anything
FASTEST = 1.0  # metres a second: of a slower vehicle nothing tells the time
GROUPS = 8  # of images: what one of them left out changes says how sure a figure is
TURNED = 0.1  # degrees, and
LATE = (
    0.012  # seconds: what a capture without mistakes may have; of rays a degree apart a surface's end is known so well
)
OUTSIDE = 2.0  # of the image, which reaches from -1 to 1
DEGREES = torch.arange(-8, 9) * 0.1
SECONDS = torch.arange(-6, 7) * 0.01


@dataclass(frozen=True)
class Agreement:
    """Where edges agree best."""

    degrees: float  # by which the camera looks farther left than the capture says
    degrees_error: float  # standard error
    seconds: float  # by which its clock is behind the lidar's
    seconds_error: float  # infinite where too few images are of a moving vehicle


def agreement(
    capture: Capture,
    camera: Camera,
) -> Agreement | None:  # None: too little to tell
    """Of the capture as it says it is; on the host."""
    images = [frame for frame in capture.images if frame.sensor == camera.name] if capture.sweeps else []
    some = images[:: -(-len(images) // IMAGES)] if images else []
    found = [scores for scores in in_threads(partial(_scores, capture, camera), some) if scores is not None]
    if len(found) < GROUPS:
        return None
    scores = _of_one_size(found)
    groups = [scores[torch.arange(len(scores)) % GROUPS != g].mean(0) for g in range(GROUPS)]
    peaks = [_peak(group) for group in (scores.mean(0), *groups)]
    if any(peak is None for peak in peaks):
        return None
    turns, offsets = torch.tensor(peaks, dtype=torch.float64).T
    (degrees, degrees_error), (seconds, seconds_error) = (_with_error(values) for values in (turns, offsets))
    return Agreement(degrees, degrees_error, seconds, seconds_error if scores.shape[2] > 1 else math.inf)


def _of_one_size(
    found: list[Tensor],  # [T, K], or [T, 1] of an image whose vehicle stands
) -> Tensor:  # [images, T, K], or [images, T, 1] where too few images tell the time
    """What a standing camera sees is the same at every offset of its clock: such an image tells turns alone. Images of a moving vehicle
    come first, so that each group has as many of them."""
    moving = [scores for scores in found if scores.shape[1] > 1]
    standing = [scores for scores in found if scores.shape[1] == 1]
    if len(moving) >= GROUPS:
        return torch.stack([*moving, *(scores.expand(-1, len(SECONDS)) for scores in standing)])
    now = int(SECONDS.abs().argmin())
    return torch.stack([*(scores[:, now : now + 1] for scores in moving), *standing])


def _with_error(values: Tensor) -> tuple[float, float]:
    """The first, of all; and from the others, each with a group left out, its standard error (jackknife)."""
    left = values[1:]
    spread = (left - left.mean()).square().sum() * (len(left) - 1) / len(left)
    return float(values[0]), float(spread.sqrt())


def _peak(scores: Tensor) -> tuple[float, float] | None:  # [T, K] -> degrees and seconds
    """The highest, and between the cells by a parabola along each axis; None: it lies at the border of what was tried."""
    row, column = divmod(int(scores.argmax()), scores.shape[1])
    degrees = _vertex(scores[:, column], row, DEGREES)
    seconds = 0.0 if scores.shape[1] == 1 else _vertex(scores[row], column, SECONDS)
    return None if degrees is None or seconds is None else (degrees, seconds)


def _vertex(values: Tensor, i: int, at: Tensor) -> float | None:
    if i in (0, len(values) - 1):
        return None
    before, top, after = values[i - 1 : i + 2].tolist()
    bend = before - 2 * top + after
    return float(at[i]) + (0.5 * (before - after) / bend if bend < 0 else 0.0) * float(at[1] - at[0])


def _scores(capture: Capture, camera: Camera, frame: ImageFrame) -> Tensor | None:  # [T, K]
    """How strong the image's edges are, 1 in its mean, where those of the sweep of its moment fall; None: there are too few."""
    sweep = nearest(capture.sweeps, frame.time_mid)
    if abs(sweep.time_mid - frame.time_mid) > APART:
        return None
    world = edge_points(sweep, sweep.load(), capture.lidar(sweep.sensor))
    points = _in_camera(camera, frame, world)
    if len(points) < FEWEST:
        return None
    moved = _moved(points, velocities(capture, camera.name).at(frame.time_mid))
    pixels, depth = project_points(camera, moved)
    places = 2 * pixels / torch.tensor([camera.width, camera.height]) - 1
    places = torch.where(depth[..., None] > 0, places, OUTSIDE)  # a camera that was farther ahead has passed the point
    edges = image_edges(frame.load())[None, None]
    return F.grid_sample(edges, places.flatten(0, 1)[None], align_corners=False).view(*moved.shape[:3]).mean(-1)


def edge_points(
    frame: SweepFrame,
    sweep: Sweep,
    lidar: Lidar,
) -> Tensor:  # [P, 3] metres, world: between two rays of a beam, at the nearer one's range
    azimuth = azimuth_elevation(sweep.directions)[:, 0].double()
    order = torch.argsort(sweep.rings * (4 * math.pi) + azimuth)
    a, b = sweep.select(order[:-1]), sweep.select(order[1:])
    nearer, jump = torch.minimum(a.ranges, b.ranges), (a.ranges - b.ranges).abs()
    close = azimuth[order].diff() < GAP * 2 * math.pi / lidar.azimuth_steps
    edge = (a.rings == b.rings) & close & a.returned & b.returned & (jump > JUMP) & (jump > RATIO * nearer)
    middle = Sweep(
        F.normalize(a.directions + b.directions, dim=1), nearer, a.intensities, 0.5 * (a.times + b.times), a.rings, edge
    )
    return world_points(frame, middle.select(edge), lidar)


def _in_camera(camera: Camera, frame: ImageFrame, world: Tensor) -> Tensor:  # [P, 3] float32
    """Those within the image, in the camera's axes when they are read."""
    pixels, depth = project_world_points(camera, frame, world)
    inside = ((pixels > 0) & (pixels < torch.tensor([camera.width, camera.height]))).all(1) & (depth > 1)
    T = invert(poses_at(frame, shutter_fraction(camera, pixels[inside])) @ camera.T_rig_cam)
    return ((T[:, :3, :3] @ world[inside, :, None])[..., 0] + T[:, :3, 3]).float()


def _moved(
    points: Tensor,  # [P, 3] in the camera's axes
    velocity: Tensor,  # [6] of the camera
) -> Tensor:  # [T, K, P, 3] to first order, as a camera sees them that looks farther left, and later
    turn, way = velocity.split(3)
    seconds = SECONDS if way.norm() > FASTEST else torch.zeros(1)
    later = -way - torch.linalg.cross(turn.expand_as(points), points)
    lefter = torch.stack([points[:, 2], torch.zeros(len(points)), -points[:, 0]], dim=1)
    return points + torch.deg2rad(DEGREES)[:, None, None, None] * lefter + seconds[:, None, None] * later


def image_edges(
    image: Tensor,  # [H, W, 3] uint8
) -> Tensor:  # [H, W] how much it changes from left to right, a little blurred, 1 in the mean
    grey = image.float().mean(-1)
    change = (grey[:, 2:] - grey[:, :-2]).abs()
    change = F.pad(change, (1, grey.shape[1] - 1 - change.shape[1]))
    blurred = F.avg_pool2d(change[None], 3, stride=1, padding=1)[0]
    return blurred / blurred.mean().clamp(min=1e-6)


def disagreements(capture: Capture) -> tuple[list[str], list[str]]:
    """A sentence for each camera that is turned against the lidar, and for each whose clock is another, by what is surely more than
    chance."""
    turned, late = [], []
    for camera in capture.cameras if capture.sweeps else ():
        found = agreement(capture, camera)
        if found is not None and abs(found.degrees) > max(TURNED, 3 * found.degrees_error):
            side = "left" if found.degrees > 0 else "right"
            turned.append(
                f"Against the lidar, {camera.name} looks about {abs(found.degrees):.2f}° farther {side} than it says."
            )
        if found is not None and abs(found.seconds) > max(LATE, 3 * found.seconds_error):
            way = "behind" if found.seconds > 0 else "ahead of"
            late.append(f"The clock of {camera.name} is about {abs(1000 * found.seconds):.0f} ms {way} the lidar's.")
    return turned, late
