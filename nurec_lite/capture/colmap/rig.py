# SPDX-License-Identifier: Apache-2.0
"""One rig for cameras that a reconstruction poses one image at a time, in a world with z up."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.capture.trajectory import MERGED_SECONDS, Trajectory
from nurec_lite.geometry.se3 import invert, matrix_to_quat, pose_matrix

# a rig here looks along x, with y to the left and z up; a camera along z, with x to the right and y down
T_RIG_CAM = torch.tensor([[0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]], dtype=torch.float64)
AHEAD = 0.5  # least cosine between view and motion of a camera that looks ahead
NEAR = 0.5  # seconds beyond the path of the leading camera; nearer images of another one tell how it sits


@dataclass(frozen=True)
class Posed:
    """Images of one camera, in time order."""

    times: Tensor  # [n] seconds, rising
    T_world_cam: Tensor  # [n, 4, 4]


def upright(cameras: Mapping[str, Posed]) -> Tensor:  # [4, 4] from the reconstruction's world to one with z up
    """Transform to a world with z up, since images stand upright on the whole; x looks ahead from the leading camera's first place, the
    origin."""
    first = cameras[leading(cameras)].T_world_cam[0]
    up = -torch.cat([posed.T_world_cam[:, :3, 1] for posed in cameras.values()]).mean(dim=0)
    z = up / up.norm() if float(up.norm()) > 1e-3 else -first[:3, 1]
    ahead = first[:3, 2] if float((first[:3, 2] @ z).abs()) < 0.99 else first[:3, 0]
    x = ahead - (ahead @ z) * z
    x = x / x.norm()
    T = torch.eye(4, dtype=torch.float64)
    T[:3, :3] = torch.stack([x, torch.linalg.cross(z, x), z])
    T[:3, 3] = -T[:3, :3] @ first[:3, 3]
    return T


def leading(cameras: Mapping[str, Posed]) -> str:
    """The camera that looks most where it goes; the first one where none does, or none goes anywhere."""
    shares = {name: _ahead(posed) for name, posed in cameras.items()}
    best = max(shares, key=shares.__getitem__)
    return best if shares[best] > AHEAD else next(iter(cameras))


def _ahead(posed: Posed) -> float:
    ways = posed.T_world_cam[1:, :3, 3] - posed.T_world_cam[:-1, :3, 3]
    far = ways.norm(dim=1)
    if not float(far.sum()) > 0:
        return 0.0
    return float((ways * posed.T_world_cam[:-1, :3, 2]).sum() / far.sum())


def mountings(cameras: Mapping[str, Posed]) -> dict[str, Tensor]:  # T_rig_cam [4, 4] of each camera
    """Mountings of the cameras. The rig is that of the leading camera; the others sit at their mean pose relative to it.

    A camera with all images at other times is taken to look as the leading one does."""
    lead = leading(cameras)
    posed = cameras[lead]
    new = torch.cat([torch.ones(1, dtype=torch.bool), posed.times.diff() > MERGED_SECONDS])
    path = Trajectory(posed.times[new], posed.T_world_cam[new] @ invert(T_RIG_CAM))
    return {name: T_RIG_CAM if name == lead else _mean_mounting(path, own) for name, own in cameras.items()}


def _mean_mounting(path: Trajectory, posed: Posed) -> Tensor:  # [4, 4]
    first, last = path.span
    within = (posed.times > first - NEAR) & (posed.times < last + NEAR)
    if not bool(within.any()):
        return T_RIG_CAM
    T = invert(path.at(posed.times[within])) @ posed.T_world_cam[within]
    q = matrix_to_quat(T[:, :3, :3])
    q = torch.where((q @ q[0] < 0)[:, None], -q, q)
    middle = q.median(dim=0).values
    return pose_matrix(middle / middle.norm(), T[:, :3, 3].median(dim=0).values)
