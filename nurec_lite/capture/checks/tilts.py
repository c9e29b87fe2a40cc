# SPDX-License-Identifier: Apache-2.0
"""A turn of the lidar on the rig, or of the whole rig, that the motions of its sweeps show: the rig drives where it looks, and turns about
the axes that it has. A straight way says nothing of the roll."""

import math

import torch
from torch import Tensor

from nurec_lite.capture.checks.motion import Motions
from nurec_lite.geometry.se3 import invert, matrix_to_quat, quat_to_rotvec

LEAST, MOST = 1.5, 60.0  # degrees
LEVER = 10.0  # metres of way that count as much as a radian of turn
CALM = 1e-3  # weight of no turn, where motions do not say
ONE = 0.9  # part of a turn about one axis that is named by this axis alone
WORDS = (("clockwise, seen from behind", "counter-clockwise, seen from behind"), ("down", "up"), ("left", "right"))


def turn_of(motions: Motions) -> Tensor | None:
    """Turn [3, 3] of the lidar's axes in the rig's that makes its motions those of the poses; None: none worth it."""
    X = motions.lidar.T_rig_lidar.double()
    said = motions.of_rig(motions.posed)
    rig, own = said[:, :3, 3] + said[:, :3, :3] @ X[:3, 3] - X[:3, 3], motions.measured[:, :3, 3] @ X[:3, :3].T
    turns = [LEVER * quat_to_rotvec(matrix_to_quat(T[:, :3, :3])) for T in (said, motions.measured)]
    a, b = torch.cat([own, turns[1] @ X[:3, :3].T]), torch.cat([rig, turns[0]])
    H = a.T @ b
    U, _, V = torch.linalg.svd(H + CALM * H.norm() * torch.eye(3, dtype=torch.float64))
    sign = torch.diag(torch.tensor([1.0, 1.0, float(torch.linalg.det(V.T @ U.T))], dtype=torch.float64))
    R = V.T @ sign @ U.T
    return R if LEAST <= degrees_of(R) <= MOST else None


def degrees_of(R: Tensor) -> float:  # [3, 3]
    return math.degrees(float(quat_to_rotvec(matrix_to_quat(R)).norm()))


def words_of(R: Tensor) -> str:  # [3, 3]
    """A turn in the rig's axes in words, such as `5.0° to the left`."""
    vector = torch.rad2deg(quat_to_rotvec(matrix_to_quat(R)))
    axis = int(vector.abs().argmax())
    if float(vector[axis].abs()) < ONE * float(vector.norm()):
        return f"{float(vector.norm()):.1f}° about the axis ({', '.join(f'{x:.2f}' for x in vector / vector.norm())})"
    way = WORDS[axis][int(float(vector[axis]) < 0)]
    return f"{float(vector[axis].abs()):.1f}° {'' if axis == 0 else 'to the ' if axis == 2 else 'farther '}{way}"


def turned(T: Tensor, R: Tensor) -> Tensor:  # [4, 4] mounting, [3, 3] -> [4, 4] at the same place
    result = T.double().clone()
    result[:3, :3] = R @ result[:3, :3]
    return result


def posed_with(motions: Motions, R: Tensor) -> Tensor:  # [m, 4, 4] T_a_b of the lidar that is turned on the rig
    X = turned(motions.lidar.T_rig_lidar, R)
    return invert(X) @ motions.of_rig(motions.posed) @ X
