# SPDX-License-Identifier: Apache-2.0
"""Drives through a served scene in a loop: a simulator's client of python -m nurec_lite.serve.

Each step renders all cameras from where the vehicle is, lets a driver choose speed and steering from the recorded path, and moves the
vehicle by them. A driver of your own takes the images in place of the path.

  python -m nurec_lite.serve runs/mine
  python scripts/drive_scene.py --scene mine --left 1 --out drive.mp4
"""

import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from nurec_lite.base.errors import UserError
from nurec_lite.base.program import Parser, ends_with_a_sentence, fail
from nurec_lite.geometry.se3 import interpolate_trajectory, invert, pose_matrix
from nurec_lite.output.films import KINDS, animation

try:
    import grpc

    from nurec_lite.service.cameras import pose_of
    from nurec_lite.service.client import Sensorsim
except ModuleNotFoundError as error:
    fail(f"drive_scene.py needs the packages of the extra serve ({error}); run pip install grpcio protobuf")

JPEG = 2
MOST_FPS, FARTHEST = 1000, 1000  # steps a second; metres
AHEAD_S = 0.5  # of the path, that the driver aims at


@dataclass
class Vehicle:
    """A vehicle that turns about its rear axle."""

    T: Tensor  # [4, 4] T_world_rig

    def drive(self, speed: float, turning: float, seconds: float) -> None:  # metres and radians a second
        half = torch.tensor(
            [math.cos(0.5 * turning * seconds), 0, 0, math.sin(0.5 * turning * seconds)], dtype=torch.float64
        )
        self.T = self.T @ pose_matrix(half, torch.tensor([speed * seconds, 0, 0], dtype=torch.float64))


class Driver:
    """Steers to a place off the recorded path, half a second ahead (pure pursuit, Coulter 1992)."""

    def __init__(self, times: Tensor, poses: Tensor, left: float) -> None:
        self.times, self.poses, self.left = times, poses, left

    def choose(self, time: float, vehicle: Vehicle) -> tuple[float, float]:
        """Speed in metres a second, and turning in radians a second."""
        goal = interpolate_trajectory(self.times, self.poses, torch.tensor(time + AHEAD_S, dtype=torch.float64)).clone()
        goal[:3, 3] += self.left * goal[:3, 1]
        x, y, _ = (invert(vehicle.T) @ goal)[:3, 3].tolist()
        distance = math.hypot(x, y)
        speed = distance / AHEAD_S if x > 0 else 0.0
        return speed, speed * 2 * y / max(distance, 1.0) ** 2


def matrix(pose: Any) -> Tensor:  # [4, 4]
    q = torch.tensor([pose.quat.w, pose.quat.x, pose.quat.y, pose.quat.z], dtype=torch.float64)
    return pose_matrix(q / q.norm(), torch.tensor([pose.vec.x, pose.vec.y, pose.vec.z], dtype=torch.float64))


def request(scene: str, camera: Any, T_world_rig: Tensor, time: float) -> dict[str, Any]:
    """The fields of an RGBRenderRequest; the camera stands still while it exposes."""
    own, us = camera.intrinsics, round(1e6 * time)
    return {
        "scene_id": scene, "camera_intrinsics": own, "resolution_h": own.resolution_h, "resolution_w": own.resolution_w,
        "frame_start_us": us, "frame_end_us": us, "image_format": JPEG,
        "sensor_pose": {"start_pose": pose_of(T_world_rig @ matrix(camera.rig_to_camera))},
    }  # fmt: skip


def drive(client: Sensorsim, scene: str, left: float, fps: float, out: Path) -> int:
    """Writes the film of the first camera; returns the number of steps."""
    cameras = client.get_available_cameras(scene_id=scene).available_cameras
    path = client.get_available_trajectories(scene_id=scene).available_trajectories[0].trajectory.poses
    times = torch.tensor([1e-6 * one.timestamp_us for one in path], dtype=torch.float64)
    driver = Driver(times, torch.stack([matrix(one.pose) for one in path]), left)
    vehicle, steps = Vehicle(driver.poses[0].clone()), max(1, int((times[-1] - times[0]) * fps))
    with animation(out, fps) as add:
        for k in range(steps):
            time = float(times[0]) + k / fps
            items = [
                {"camera_name": one.logical_id, "request": request(scene, one, vehicle.T, time)} for one in cameras
            ]
            seen = client.batch_render_rgb(items=items).items
            failed = [one.error_message for one in seen if not one.success]
            if failed:
                raise UserError(f"the service does not render a camera of {scene}: {failed[0]}")
            add(np.array(Image.open(io.BytesIO(seen[0].result.image_bytes))))
            vehicle.drive(*driver.choose(time, vehicle), 1 / fps)
    return steps


def trusted(file: Path | None) -> bytes | None:
    try:
        return None if file is None else file.read_bytes()
    except OSError as error:
        raise UserError(f"--certificate is {file}, which cannot be read ({error.strerror}); name a PEM file") from error


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--address", default="127.0.0.1:50051", help="HOST:PORT of the service")
    parser.add_argument("--scene", required=True, help="scene_id: the name of a run's folder")
    parser.add_argument("--left", type=float, default=0.0, help="metres to the left of the recorded path")
    parser.add_argument("--fps", type=float, default=10.0, help="steps a second")
    parser.add_argument(
        "--out", type=Path, default=Path("drive.mp4"), help="film of the first camera: .mp4, .gif or .apng"
    )
    parser.add_argument("--certificate", type=Path, help="PEM of the service, where it encrypts")
    args = parser.parse_args()
    if args.out.suffix.removeprefix(".") not in KINDS:
        parser.error(f"--out is {args.out}, but must end in one of {', '.join(KINDS)}")
    if not 0 < args.fps <= MOST_FPS or not abs(args.left) <= FARTHEST:
        found = f"--fps is {args.fps:g} and --left {args.left:g}"
        parser.error(f"{found}, but they must lie above 0 to {MOST_FPS} and within +-{FARTHEST}")
    with ends_with_a_sentence(), Sensorsim(args.address, certificate=trusted(args.certificate)) as client:
        try:
            steps = drive(client, args.scene, args.left, args.fps, args.out)
        except grpc.RpcError as error:
            lacking = error.code() is grpc.StatusCode.UNAVAILABLE
            remedy = (
                "; start python -m nurec_lite.serve, or give its --certificate" if lacking else ""
            )  # other answers say their own
            raise UserError(f"{args.address} answers {error.code().name}: {error.details()}{remedy}") from error
    print(f"{args.out}: {steps} steps")


if __name__ == "__main__":
    main()
