# SPDX-License-Identifier: Apache-2.0
"""Meanings of the rows of a poses file: poses of the lidar, of camera 0 or of the oxts unit, inverted, or relative to their neighbours."""

from collections.abc import Iterator
from itertools import accumulate

import torch
from torch import Tensor

from nurec_lite.bounds import POSE_CONVENTIONS
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.se3 import invert

LIDAR = "lidar"  # the usual convention: T_world_velo
SENSORS = {LIDAR: "the lidar", "camera": "camera 0 (as KITTI odometry has them)", "rig": "the oxts unit"}
WAYS = {"": "", "inverse": "inverted", "relative": "relative, each from its frame to the next one"}


def meaning(convention: str) -> str:
    """The meaning of the rows, to complete the sentence `the poses fit if`."""
    sensor, _, way = convention.partition("_")
    return f"they are those of {SENSORS[sensor]}{', ' if way else ''}{WAYS[way]}"


def others(convention: str) -> Iterator[str]:
    yield from (other for other in POSE_CONVENTIONS if other != convention)


def rig_poses(
    rows: Tensor,  # [n, 4, 4]
    convention: str,
    T_rig_lidar: Tensor,  # [4, 4]
    T_rig_rect: Tensor,  # [4, 4], rect = camera 0 after rectification
) -> Tensor:  # [n, 4, 4] T_world_rig, in a world of their own
    if convention not in POSE_CONVENTIONS:
        raise CaptureError(f"data.poses.convention is '{convention}', but must be one of {', '.join(POSE_CONVENTIONS)}")
    sensor, _, way = convention.partition("_")
    T_rig_sensor = {LIDAR: T_rig_lidar, "camera": T_rig_rect, "rig": torch.eye(4, dtype=torch.float64)}[sensor]
    if way == "inverse":
        rows = invert(rows)
    elif way == "relative":
        start = torch.eye(4, dtype=torch.float64)
        rows = torch.stack(list(accumulate((start, *rows[:-1]), torch.matmul)))
    return rows @ invert(T_rig_sensor.double())
