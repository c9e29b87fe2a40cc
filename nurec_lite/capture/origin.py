# SPDX-License-Identifier: Apache-2.0
"""Captures that lie far from the origin, such as those in UTM coordinates, are moved near it: in single precision a metre at 5 000 km
has two steps. Exports go back to the user's own origin."""

from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from nurec_lite.capture.types import Capture, Frame, Origin

NEAR = 1000.0  # metres: a nearer start stays where it is, with steps of 0.06 mm there
AnyFrame = TypeVar("AnyFrame", bound=Frame)


def recentred(
    capture: Capture,
    origin: Origin | None = None,  # None: whole metres, at the capture's first pose if that is not near
) -> Capture:
    """The capture about another origin, which it then has."""
    return _moved(capture, _begin(capture) if origin is None else origin)


def in_users_world(capture: Capture) -> Capture:
    """The capture in the world of its files."""
    return _moved(capture, (0.0, 0.0, 0.0))


def to_users_world(
    points: Tensor,  # [..., 3] metres, about the origin
    origin: Origin,
) -> Tensor:  # [..., 3] float64
    return points.double() + torch.tensor(origin, dtype=torch.float64, device=points.device)


def _begin(capture: Capture) -> Origin:
    frames = (*capture.images, *capture.sweeps)
    if not frames:
        return (0.0, 0.0, 0.0)
    place = min(frames, key=lambda frame: frame.time_start).T_world_rig_start[:3, 3].double()
    x, y, z = place.round().tolist() if float(place.norm()) > NEAR else (0.0, 0.0, 0.0)
    return (x, y, z)


def _moved(capture: Capture, origin: Origin) -> Capture:
    if origin == capture.origin:
        return capture
    step = torch.tensor(origin, dtype=torch.float64) - torch.tensor(capture.origin, dtype=torch.float64)
    tracks = replace(capture.tracks, translations=capture.tracks.translations - step)
    images = tuple(_moved_frame(frame, step) for frame in capture.images)
    sweeps = tuple(_moved_frame(frame, step) for frame in capture.sweeps)
    points = None if capture.points is None else capture.points - step
    return replace(capture, images=images, sweeps=sweeps, tracks=tracks, points=points, origin=origin)


def _moved_frame(frame: AnyFrame, step: Tensor) -> AnyFrame:
    start, end = frame.T_world_rig_start.double().clone(), frame.T_world_rig_end.double().clone()
    start[:3, 3] -= step
    end[:3, 3] -= step
    return replace(frame, T_world_rig_start=start, T_world_rig_end=end)
