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
)
from nurec_lite.geometry.tracks import Tracks

SCALES = (2.0, 0.5, 1.5)  # guessed factors of sizes that are too large
FRAMES, MOVING = 5, 2  # largest shift of labels that is tried, and number of times of objects that move
MADE = "where the capture was made"


@dataclass(frozen=True)
class BoxGuess:
    meaning: str  # completes "they do if"
    remedy: str
    tracks: Callable[[], Tracks]
    moving: bool = False  # only objects that move tell it apart


def guesses(capture: Capture, path: Trajectory, period: float) -> Iterator[BoxGuess]:
    """Other readings of boxes; those of the reader come first, since their remedies are keys."""
    tracks = capture.tracks
    for known in capture.labels:
        yield BoxGuess(known.meaning, known.remedy, partial(_about_origin, capture, known))
    other = "width, length, height, or they are turned by 90 degrees"  # which holds the same returns
    for order, name in (((1, 0, 2), other), ((2, 1, 0), "height, width, length")):
        sized = replace(tracks, sizes=tracks.sizes[:, list(order)])
        turn = ", or turn them by 90 degrees" if name == other else ""
        yield _guess(f"the sizes are {name}", f"give sizes as length, width, height{turn} {MADE}", sized)
    for k in SCALES:
        scaled = replace(tracks, sizes=tracks.sizes / k)
        times = f"{max(k, 1 / k):g} times too {'large' if k > 1 else 'small'}"
        yield _guess(
            f"the sizes are {times}",
            f"{f'divide sizes by {k:g}' if k > 1 else f'multiply sizes by {1 / k:g}'} {MADE}",
            scaled,
        )
    yield _guess("they are turned by 90 degrees", f"turn them {MADE}", _turned(tracks, math.pi / 2))
    yield _guess(
        "their places are the middle of the bottom", f"raise them by half of the height {MADE}", _raised(tracks, 0.5)
    )
    yield _guess("their places are half of the height too high", f"lower them {MADE}", _raised(tracks, -0.5))
    yield _guess(
        "left and right are exchanged",
        f"turn the sign of their places {MADE}",
        _mirrored(tracks, path, capture.lidars[0].T_rig_lidar),
    )
    for n in (sign * k for k in range(1, FRAMES + 1) for sign in (-1, 1)):
        side, count = "late" if n > 0 else "early", f"{abs(n)} frame{'s' if abs(n) > 1 else ''}"
        remedy = f"count the frames of the labels from {'one less' if n > 0 else 'one more'} {MADE}"
        if abs(n) > 1:
            remedy = f"correct the frames of the labels {MADE}"
        yield _guess(f"the labels are {count} {side}", remedy, of_another_frame(tracks, path, -n * period))
        if abs(n) > MOVING:
            continue
        moved = replace(tracks, times=tracks.times - n * period)
        yield _guess(f"their times are {count} {side}", f"correct their times {MADE}", moved, moving=True)


def _guess(meaning: str, remedy: str, tracks: Tracks, moving: bool = False) -> BoxGuess:
    return BoxGuess(meaning, remedy, lambda: tracks, moving)


def _about_origin(capture: Capture, known: Labels) -> Tracks:
    """The reader's tracks, about the origin of the capture."""
    tracks = known.tracks()
    return replace(tracks, translations=tracks.translations - torch.tensor(capture.origin, dtype=torch.float64))


def _turned(tracks: Tracks, angle: float) -> Tracks:
    turn = torch.tensor([math.cos(angle / 2), 0, 0, math.sin(angle / 2)]).to(tracks.quaternions)
    return replace(tracks, quaternions=quat_multiply(tracks.quaternions, turn.expand_as(tracks.quaternions)))


def _raised(tracks: Tracks, heights: float) -> Tracks:
    height = torch.repeat_interleave(tracks.sizes[:, 2], torch.tensor(tracks.offsets).diff())
    places = tracks.translations.clone()
    places[:, 2] += heights * height
    return replace(tracks, translations=places)


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
