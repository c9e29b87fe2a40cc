# SPDX-License-Identifier: Apache-2.0
"""Frames and lidar rays a second of a served scene, over the wire.

    python benchmarks/render/bench_service.py --run runs/mine --out benchmarks/results/NAME.json

Starts python -m nurec_lite.serve and calls it from this process, by gRPC on the loopback device, along the driven path:

one camera     a JPEG of --size at a time, quality 95, as AlpaSim asks for it; each call waits for the one before it
clients        the same from --clients clients at once
six cameras    the six in one batch_render_rgb: three views ahead and three behind, 60 degrees apart, each exposed at one moment
lidar          render_lidar, a revolution of each built-in pattern

A frame is counted when its reply is read. Times are those of this process's clock, from before a request is made until its reply is read:
medians of --rounds after --warmup. `rendered` is how long the service's own figures say that rendering and copying to the host took.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import json
import math
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import torch

from benchmarks.step.bench_step import positive, spread
from nurec_lite.base.environment import choose_device, environment
from nurec_lite.base.errors import UserError
from nurec_lite.base.files import write_text
from nurec_lite.base.program import Parser
from nurec_lite.cli.command import mended
from nurec_lite.geometry.se3 import pose_matrix
from nurec_lite.output.mounting import turned
from nurec_lite.service.cameras import pose_of
from nurec_lite.service.client import Sensorsim
from nurec_lite.service.messages import message, number_of

SCRIPT = "benchmarks/render/bench_service.py"
PUBLISHED_MS = [22.0, 42.0]  # a frame of NuRec, as NVIDIA has published it
CAMERAS = 6
LIDARS = {"PANDAR128": 0, "AT128": 1}


class Drive:
    """Requests along the path of a scene, one after another."""

    def __init__(self, client: Sensorsim, scene: str, width: int, height: int) -> None:
        self.client, self.scene = client, scene
        self.camera = client.get_available_cameras(scene_id=scene).available_cameras[0]
        self.path = client.get_available_trajectories(scene_id=scene).available_trajectories[0].trajectory.poses
        self.size, self._steps = (width, height), count()

    def place(self) -> Any:
        """The next pose of the rig with its time; after the last one the first."""
        return self.path[next(self._steps) % len(self.path)]

    def image(self, place: Any, turn: float = 0.0) -> Any:
        """A request for the first camera, turned to the left by so many degrees on the rig."""
        T = _matrix(place.pose) @ turned(math.radians(turn), 0, 0) @ _matrix(self.camera.rig_to_camera)
        return message("RGBRenderRequest")(
            scene_id=self.scene, resolution_h=self.size[1], resolution_w=self.size[0], camera_intrinsics=self._spec(turn),
            frame_start_us=place.timestamp_us, frame_end_us=place.timestamp_us, sensor_pose={"start_pose": pose_of(T)},
            image_format=number_of("ImageFormat", "JPEG"), image_quality=95,
        )  # fmt: skip

    def sweep(self, place: Any, lidar_type: int) -> Any:
        up = pose_matrix(torch.tensor([1.0, 0, 0, 0]).double(), torch.tensor([0, 0, 1.8]).double())
        return message("LidarRenderRequest")(
            scene_id=self.scene, lidar_config={"lidar_type": lidar_type}, frame_start_us=place.timestamp_us,
            frame_end_us=place.timestamp_us + 100_000, sensor_pose={"start_pose": pose_of(_matrix(place.pose) @ up)},
        )  # fmt: skip

    def _spec(self, turn: float) -> Any:
        """The camera's own angle across, square pixels, no distortion."""
        width, height = self.size
        own = self.camera.intrinsics
        focal = own.opencv_pinhole_param.focal_length_x * width / own.resolution_w
        lens = {
            "principal_point_x": width / 2,
            "principal_point_y": height / 2,
            "focal_length_x": focal,
            "focal_length_y": focal,
        }
        name = self.camera.logical_id if turn == 0 else f"turned {turn:g}"
        return message("CameraSpec")(
            opencv_pinhole_param=lens, logical_id=name, resolution_h=height, resolution_w=width,
            shutter_type=number_of("ShutterType", "GLOBAL"),
        )  # fmt: skip


def _matrix(pose: Any) -> torch.Tensor:  # [4, 4]
    q = torch.tensor([pose.quat.w, pose.quat.x, pose.quat.y, pose.quat.z], dtype=torch.float64)
    return pose_matrix(q / q.norm(), torch.tensor([pose.vec.x, pose.vec.y, pose.vec.z], dtype=torch.float64))


# ---- measurements


def one_camera(drive: Drive) -> Any:
    return drive.client.render_rgb(drive.image(drive.place()))


def six_cameras(drive: Drive) -> Any:
    place = drive.place()
    items = [{"camera_name": str(k), "request": drive.image(place, 60.0 * k)} for k in range(CAMERAS)]
    found = drive.client.batch_render_rgb(items=items)
    failed = [one.error_message for one in found.items if not one.success]
    if failed:
        raise UserError(f"the service does not render a camera: {failed[0]}")
    return found


def one_sweep(drive: Drive, lidar_type: int) -> Any:
    return drive.client.render_lidar(drive.sweep(drive.place(), lidar_type))


def timed(call: Callable[[], Any], args: argparse.Namespace, figures: Callable[[], float]) -> dict[str, Any]:
    """Milliseconds of a call, and those that the service rendered for it in the mean."""
    for _ in range(args.warmup):
        call()
    ms, before = [], figures()
    for _ in range(args.rounds):
        start = time.perf_counter()
        call()
        ms.append(1e3 * (time.perf_counter() - start))
    return {"ms": spread(ms), "rendered_ms": 1e3 * (figures() - before) / args.rounds, "single_ms": ms}


def together(drives: list[Drive], rounds: int) -> float:
    """Frames a second of all clients."""
    with ThreadPoolExecutor(len(drives)) as pool:
        start = time.perf_counter()
        for done in [pool.submit(lambda one: [one_camera(one) for _ in range(rounds)], drive) for drive in drives]:
            done.result()
        return len(drives) * rounds / (time.perf_counter() - start)


@contextmanager
def served(args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Address of the service, and that of its figures, while it runs."""
    keys = ["port=0", "metrics_port=0", f"device={args.device}", *args.arguments]
    line = [sys.executable, "-m", "nurec_lite.serve", str(args.run), *keys]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            addresses: list[str] = []
            for text in process.stdout:
                addresses += re.findall(r"^(?:serving|figures) on ([^\s,]+)", text)
                if len(addresses) == 2:
                    break
            else:
                raise UserError(f"the service of {args.run} did not start; its message stands above")
            yield addresses[0], addresses[1]
        finally:
            process.terminate()


def counted(figures: str, name: str) -> float:
    """The service's own count of its renders: seconds or rays."""
    text = urlopen(figures).read().decode()
    return float(re.findall(rf"^nurec_lite_rendered_{name}_total (\S+)$", text, re.M)[0])


def bench(args: argparse.Namespace, address: str, figures: str) -> dict[str, Any]:
    with Sensorsim(address) as client:
        scene = client.get_available_scenes().scene_ids[0]
        drive, rows = Drive(client, scene, *args.size), {}
        seconds = partial(counted, figures, "seconds")
        rows["one camera"] = _frames(timed(partial(one_camera, drive), args, seconds), 1)
        rows["six cameras"] = _frames(timed(partial(six_cameras, drive), args, seconds), CAMERAS)
        for name in args.lidars:
            call = partial(one_sweep, drive, LIDARS[name] if name in LIDARS else int(name))
            found, before = timed(call, args, seconds), counted(figures, "rays")
            points, rays = call().num_points, counted(figures, "rays") - before
            rows[name] = found | {"rays": rays, "points": points, "rays_per_s": 1e3 * rays / found["ms"]["median"]}
        clients = [Sensorsim(address) for _ in range(args.clients)]
        drives = [Drive(one, scene, *args.size) for one in clients]
        together(drives, 2)
        rows["clients"] = {"clients": args.clients, "frames_per_s": together(drives, args.rounds)}
        for one in clients:
            one.channel.close()
        size = len(one_camera(drive).image_bytes)
    return {"rows": rows, "jpeg_bytes": size}


def _frames(found: dict[str, Any], each: int) -> dict[str, Any]:
    ms = found["ms"]["median"]
    return found | {"ms_per_frame": ms / each, "frames_per_s": 1e3 * each / ms}


def main(given: list[str]) -> None:
    parser = Parser(__doc__)
    parser.add_argument("--run", required=True, help="folder of a trained run")
    parser.add_argument("--size", default="1920x1080", help="WIDTHxHEIGHT of images")
    parser.add_argument("--rounds", type=positive, default=50, help="calls that are timed")
    parser.add_argument("--warmup", type=positive, default=10, help="calls before them")
    parser.add_argument("--clients", type=positive, default=4, help="clients at once")
    parser.add_argument("--lidars", nargs="+", default=list(LIDARS), help="PANDAR128, AT128, or numbers of lidar_type")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--out", type=Path, help="JSON file of the results")
    parser.add_argument("arguments", nargs="*", help="KEY=VALUE of nurec_lite.serve")
    args = parser.parse_args(given)
    match = re.fullmatch(r"(\d{1,5})x(\d{1,5})", args.size)
    if match is None:
        parser.error(f"--size is {args.size}, but takes WIDTHxHEIGHT, such as 1920x1080")
    text, args.size = args.size, tuple(map(int, match.groups()))
    with mended("serve"), served(args) as (address, figures):
        result = {
            "command": shlex.join(["python", SCRIPT, *given]), "environment": environment(choose_device(args.device)),
            "size": text, "rounds": args.rounds, "warmup": args.warmup, "published_ms_per_frame": PUBLISHED_MS,
            **bench(args, address, figures),
        }  # fmt: skip
    for name, row in result["rows"].items():
        print(name, {key: value for key, value in row.items() if key != "single_ms"})
    if args.out is not None:
        write_text(args.out, json.dumps(result, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
