# SPDX-License-Identifier: Apache-2.0
"""Small scenes that are served, in this process, and requests for them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from strangers import save
from tiny_capture import tiny_capture, tiny_state

from nurec_lite.capture.pack import write_pack
from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.config import DataConfig, ServeConfig
from nurec_lite.scene.scene import Scene
from nurec_lite.service.cameras import pose_of, spec_of
from nurec_lite.service.messages import message
from nurec_lite.service.service import Service
from nurec_lite.training.optim import make_optimizer

TIME = 0.43  # seconds of the capture
PNG, JPEG, PLANAR = 1, 2, 4
BEAMS = """
kind: lidar
name: few
beams: 4
elevation_deg: [-15, 5]
azimuth_steps: 32
mounting: {relative_to: rig}
"""


def tiny_run(folder: Path, scene: Scene | None = None) -> Path:
    """The folder of a run, as training leaves it: the scene untrained, its capture in a pack beside it."""
    folder.mkdir(parents=True)
    pack, state = folder.parent / "tiny.pack", tiny_state()
    if not pack.exists():
        write_pack(tiny_capture(), pack, image_format="png")
    state.config = replace(state.config, data=DataConfig(kind="pack", root=str(pack)), ops="reference")
    if scene is not None:
        state.scene = scene
        state.optimizer = make_optimizer(scene, state.config.lr)
    save(state, folder / "checkpoint.pt")
    return folder


def service_of(*runs: Path, **keys: Any) -> Service:
    """A service on a free port, of runs on the CPU."""
    config = ServeConfig(**{"runs": list(map(str, runs)), "port": 0, "metrics_port": 0, "device": "cpu", **keys})
    return Service(config, ["device=cpu"], "1.2.3")


def on_path(sensor: str, time: float) -> Any:
    """The Pose of a camera at a time of the driven path."""
    return pose_of(trajectory_of(tiny_capture()).at(time) @ tiny_capture().camera(sensor).T_rig_cam)


def image_request(camera: str = "camera_0", time: float = TIME, seconds: float = 0.0, **changes: Any) -> Any:
    """The image of a camera of the capture from its path, as PNG."""
    start, end = time - 0.5 * seconds, time + 0.5 * seconds
    own = tiny_capture().camera(camera)
    given = {
        "scene_id": "mine", "resolution_h": own.height, "resolution_w": own.width, "camera_intrinsics": spec_of(own),
        "frame_start_us": round(1e6 * start), "frame_end_us": round(1e6 * end), "image_format": PNG,
        "sensor_pose": {"start_pose": on_path(camera, start), "end_pose": on_path(camera, end)},
    }  # fmt: skip
    return message("RGBRenderRequest")(**(given | changes))
