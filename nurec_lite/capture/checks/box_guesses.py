# SPDX-License-Identifier: Apache-2.0
"""Other ways to read boxes of moving objects: conventions of axes, sizes, heights and frames that are easily exchanged."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from nurec_lite.capture.trajectory import Trajectory
from nurec_lite.capture.types import Capture, Labels
from nurec_lite.geometry.se3 import (
    interpolate_trajectory,
    invert,
    matrix_to_quat,
    pose_matrix,
    quat_multiply,
    quat_rotate,
)
from nurec_lite.geometry.tracks import Tracks

SCALES = (2.0, 0.5, 1.5)  # guessed factors of sizes that are too large
WHOLE = 0.62  # share of boxes, at least, by readings that hold much of most boxes: larger ones, and many other places
FRAMES, MOVING = 5, 2  # largest shift of labels that is tried, and number of times of objects that move
MADE = "where the capture was made"


@dataclass(frozen=True)
class BoxGuess:
    meaning: str  # completes "they do if"
    remedy: str
    tracks: Callable[[], Tracks]
    least: float = 0.0  # share of boxes that it demands
    late: float | None = None  # seconds that the times of tracks are late: only objects that move tell it apart


def guesses(capture: Capture, path: Trajectory, period: float) -> Iterator[BoxGuess]:
    """Other readings of boxes; those of the reader come first, since their remedies are keys."""
    tracks = capture.tracks
    for known in capture.labels:
        yield BoxGuess(known.meaning, known.remedy, partial(_about_origin, capture, known))
    other = "width, length, height, or they are turned by 90 degrees"  # which holds the same returns
    for order, name in (((1, 0, 2), other), ((2, 1, 0), "height, width, length")):
        sized = replace(tracks, sizes=tracks.sizes[:, list(order)])
        turn = ", or turn them by 90 degrees" if name == other else ""
        remedy = f"give sizes as length, width, height{turn} {MADE}"
        yield BoxGuess(f"the sizes are {name}", remedy, partial(_same, sized))
    for k in SCALES:
        scaled = replace(tracks, sizes=tracks.sizes / k)
        times = f"{max(k, 1 / k):g} times too {'large' if k > 1 else 'small'}"
        remedy = f"{f'divide sizes by {k:g}' if k > 1 else f'multiply sizes by {1 / k:g}'} {MADE}"
        yield BoxGuess(f"the sizes are {times}", remedy, partial(_same, scaled), least=WHOLE if k < 1 else 0.0)
    yield BoxGuess("they are turned by 90 degrees", f"turn them {MADE}", partial(turned, tracks, math.pi / 2))
    remedy = f"raise them by half of the height {MADE}"
    yield BoxGuess("their places are the middle of the bottom", remedy, partial(raised, tracks, 0.5))
    remedy = f"lower them {MADE}"
    yield BoxGuess("their places are half of the height too high", remedy, partial(raised, tracks, -0.5))
    for axis, side, name in ((0, 1, "rear"), (0, -1, "front"), (1, 1, "right side"), (1, -1, "left side")):
        mended = f"move them by half of the {('length', 'width')[axis]} {MADE}"
        placed = partial(_moved, tracks, axis, 0.5 * side)
        yield BoxGuess(f"their places are the middle of the {name}", mended, placed, least=WHOLE)
    yield from _on_sensors(capture, path)
    other_side = partial(_mirrored, tracks, path, capture.lidars[0].T_rig_lidar)
    yield BoxGuess("left and right are exchanged", f"turn the sign of their places {MADE}", other_side)
    for n in (sign * k for k in range(1, FRAMES + 1) for sign in (-1, 1)):
        when, count = "late" if n > 0 else "early", f"{abs(n)} frame{'s' if abs(n) > 1 else ''}"
        remedy = f"count the frames of the labels from {'one less' if n > 0 else 'one more'} {MADE}"
        if abs(n) > 1:
            remedy = f"correct the frames of the labels {MADE}"
        other_frame = partial(of_another_frame, tracks, path, -n * period)
        yield BoxGuess(f"the labels are {count} {when}", remedy, other_frame)
        if abs(n) > MOVING:
            continue
        earlier = partial(at_other_times, tracks, n * period)
        yield BoxGuess(f"their times are {count} {when}", f"correct their times {MADE}", earlier, late=n * period)


def _same(tracks: Tracks) -> Tracks:
    return tracks


def _about_origin(capture: Capture, known: Labels) -> Tracks:
    """The reader's tracks, about the origin of the capture."""
    tracks = known.tracks()
    return replace(tracks, translations=tracks.translations - torch.tensor(capture.origin, dtype=torch.float64))


def at_other_times(tracks: Tracks, seconds: float) -> Tracks:  # seconds earlier
    return replace(tracks, times=tracks.times - seconds)


def turned(tracks: Tracks, angle: float) -> Tracks:
    turn = torch.tensor([math.cos(angle / 2), 0, 0, math.sin(angle / 2)]).to(tracks.quaternions)
    return replace(tracks, quaternions=quat_multiply(tracks.quaternions, turn.expand_as(tracks.quaternions)))


def raised(tracks: Tracks, heights: float) -> Tracks:
    height = torch.repeat_interleave(tracks.sizes[:, 2], torch.tensor(tracks.offsets).diff())
    places = tracks.translations.clone()
    places[:, 2] += heights * height
    return replace(tracks, translations=places)


def _moved(tracks: Tracks, axis: int, parts: float) -> Tracks:
    """Tracks that are moved along one of their own axes, by a part of their size."""
    size = torch.repeat_interleave(tracks.sizes[:, axis], torch.tensor(tracks.offsets).diff())
    ways = torch.zeros(len(size), 3, dtype=tracks.translations.dtype)
    ways[:, axis] = parts * size
    return replace(tracks, translations=tracks.translations + quat_rotate(tracks.quaternions.to(ways), ways))


def _on_sensors(capture: Capture, path: Trajectory) -> Iterator[BoxGuess]:
    """Guesses that a mounting was left out, or counted twice, where boxes were put into the world."""
    mountings = [(lidar.name, "T_rig_lidar", lidar.T_rig_lidar) for lidar in capture.lidars[:1]]
    mountings += [(camera.name, "T_rig_cam", camera.T_rig_cam) for camera in capture.cameras[:1]]
    for sensor, matrix, T in mountings:
        side = f"{matrix} of {sensor}"
        on, remedy = f"the boxes are on {sensor}, not on the rig", "multiply their poses on the vehicle by"
        yield BoxGuess(
            on, f"{remedy} {side} {MADE}", partial(_on_the_rig, capture.tracks, path, T.double()), least=WHOLE
        )
        twice, undone = f"{side} was applied twice", f"{remedy} the inverse of it {MADE}"
        yield BoxGuess(twice, undone, partial(_on_the_rig, capture.tracks, path, invert(T.double())), least=WHOLE)


def _on_the_rig(tracks: Tracks, path: Trajectory, T: Tensor) -> Tracks:
    """Tracks with poses on the vehicle that are multiplied by T [4, 4] from the left."""
    T_world_rig = _poses(path, tracks.times)
    on_rig = invert(T_world_rig) @ pose_matrix(tracks.quaternions, tracks.translations)
    return _placed(tracks, T_world_rig @ T @ on_rig, tracks.times)


def _poses(path: Trajectory, times: Tensor) -> Tensor:  # [n, 4, 4]
    return interpolate_trajectory(path.times, path.poses, times)


def _placed(tracks: Tracks, poses: Tensor, times: Tensor) -> Tracks:
    return replace(tracks, times=times, translations=poses[:, :3, 3], quaternions=matrix_to_quat(poses[:, :3, :3]))


def _mirrored(tracks: Tracks, path: Trajectory, T_rig_lidar: Tensor) -> Tracks:
    """Tracks on the other side of the lidar, with the same direction."""
    T_world_lidar = _poses(path, tracks.times) @ T_rig_lidar
    on_lidar = invert(T_world_lidar) @ pose_matrix(tracks.quaternions, tracks.translations)
    on_lidar[:, 1, 3] *= -1
    return _placed(tracks, T_world_lidar @ on_lidar, tracks.times)


def of_another_frame(tracks: Tracks, path: Trajectory, seconds: float) -> Tracks:
    """Tracks at the places on the vehicle, so many seconds later."""
    times = tracks.times + seconds
    moved = _poses(path, times) @ invert(_poses(path, tracks.times))
    return _placed(tracks, moved @ pose_matrix(tracks.quaternions, tracks.translations), times)
