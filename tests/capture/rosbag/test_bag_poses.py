# SPDX-License-Identifier: Apache-2.0
"""Sources of a recording's poses and mountings: topics, tf, satellites; and measured motion."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_bag import START, Recording, street
from tiny_capture import tiny_capture
from torch import Tensor

from nurec_lite.capture.rosbag.library import COMPRESSED
from nurec_lite.capture.rosbag.poses import local_metres
from nurec_lite.capture.rosbag.read import read_rosbag
from nurec_lite.capture.types import GIVEN, POSITIONED, UNKNOWN, Capture, CaptureError
from nurec_lite.geometry.se3 import invert

CAPTURE = tiny_capture()


def sensors() -> Recording:
    return Recording(CAPTURE).images().sweeps()


def relative(capture: Capture) -> Tensor:  # [n, 4, 4] T_first_rig at the ends of the sweeps
    poses = torch.stack([T for f in capture.sweeps for T in (f.T_world_rig_start, f.T_world_rig_end)])
    return invert(poses[0]) @ poses


def off(read: Capture) -> tuple[float, float]:
    """Metres and radians, at most, between the motion that was read and the capture's own."""
    apart = invert(relative(CAPTURE)) @ relative(read)
    R = apart[:, :3, :3]
    return float(apart[:, :3, 3].norm(dim=1).max()), float(
        (R - torch.eye(3)).flatten(1).norm(dim=1).max() / math.sqrt(2)
    )


def lidar_frame(recording: Recording) -> Recording:
    return recording.stamped(T_rig_frame=CAPTURE.lidars[0].T_rig_lidar)


@pytest.mark.parametrize(
    ("add", "text", "source"),
    [
        (Recording.odometry, "poses: {topic: /odom}", GIVEN),
        (Recording.stamped, "poses: {topic: /pose}", GIVEN),
        (lidar_frame, "poses: {topic: /pose, frame: lidar}", GIVEN),
        (Recording.tf, "poses: {world: odom}", GIVEN),
        (Recording.tf, "poses: {world: map}", GIVEN),
        (Recording.satellites, "poses: {fix: /gps/fix, imu: /imu/data}", POSITIONED),
    ],
)
def test_every_source_gives_the_motion(
    add: Callable[[Recording], Recording], text: str, source: str, tmp_path: Path
) -> None:
    path = add(sensors().mountings()).write(tmp_path / "bag", "mcap")
    (tmp_path / "m.yaml").write_text("cameras: {a: {images: /camera_0/image_raw/compressed, info: /camera_0/camera_info}}\n"
                                     f"lidars: {{lidar: {{points: /points}}}}\n{text}\n")  # fmt: skip
    read = read_rosbag(path, mapping=tmp_path / "m.yaml")
    metres, radians = off(read)
    assert (
        metres < 0.03 and radians < 2e-3 and read.poses_from == source
    )  # times of sweeps end half a step of azimuth early
    T = read.cameras[0].T_rig_cam
    assert float((T - CAPTURE.cameras[0].T_rig_cam).abs().max()) < 1e-6


def test_without_an_inertial_unit_the_heading_is_the_way_driven(tmp_path: Path) -> None:
    read = read_rosbag(sensors().mountings().satellites(imu=False).write(tmp_path / "bag", "mcap"))
    assert off(read)[0] < 0.1 and any("heading" in doubt.sentence for doubt in read.doubts)


def test_a_recording_without_poses_says_that_they_are_unknown(tmp_path: Path) -> None:
    read = read_rosbag(sensors().mountings().write(tmp_path / "bag", "mcap"))
    assert read.poses_from == UNKNOWN and len(read.images) == len(CAPTURE.images)
    assert torch.equal(read.sweeps[-1].T_world_rig_end, torch.eye(4, dtype=torch.float64))


@pytest.mark.parametrize("count", [0, 1])
def test_a_receiver_without_places_leaves_the_poses_to_the_sweeps(count: int, tmp_path: Path) -> None:
    recording = sensors().mountings().satellites()
    for fix in [message for _, topic, _, message in recording.rows if topic == "/gps/fix"][count:]:
        fix.latitude = math.nan
    read = read_rosbag(recording.write(tmp_path / "bag", "mcap"))
    assert read.poses_from == UNKNOWN and len(read.sweeps) == len(CAPTURE.sweeps)
    assert any(f"holds {count} poses" in doubt.sentence for doubt in read.doubts)


def test_images_without_sweeps_beside_them_have_no_poses(tmp_path: Path) -> None:
    """Estimated poses end with the sweeps: a camera on another clock would get poses of nowhere."""
    late = sensors().mountings()
    for _, _, kind, message in late.rows:
        if kind == COMPRESSED:
            message.header.stamp.sec += 1000
    with pytest.raises(
        CaptureError, match=r"but sweeps from 0\.0 s to 1\.0 s; correct the clocks by delay in data\.mapping"
    ):
        read_rosbag(late.write(tmp_path / "late", "mcap"))
    short = sensors().mountings()
    short.rows = [row for row in short.rows if row[1] != "/points" or row[0] < START + 500_000_000]
    read = read_rosbag(short.write(tmp_path / "short", "mcap"))
    assert 0 < len(read.images) < len(CAPTURE.images) and max(f.time_end for f in read.images) < 0.8


def test_without_poses_and_without_a_lidar_nothing_is_read(tmp_path: Path) -> None:
    path = Recording(CAPTURE).images().mountings().write(tmp_path / "bag", "mcap")
    with pytest.raises(CaptureError, match=r"holds neither poses .* nor a lidar"):
        read_rosbag(path)


def test_mountings_that_are_published_again_and_again_are_read(tmp_path: Path) -> None:
    read = read_rosbag(sensors().mountings(moving=True).odometry().write(tmp_path / "bag", "mcap"))
    assert float((read.lidars[0].T_rig_lidar - CAPTURE.lidars[0].T_rig_lidar).abs().max()) < 1e-6


def test_without_tf_the_mapping_says_where_sensors_sit(tmp_path: Path) -> None:
    path = sensors().odometry().write(tmp_path / "bag", "mcap")
    with pytest.raises(CaptureError, match=r"no tf leads from frame 'base_link' to 'lidar'.*give T_rig_sensor there"):
        read_rosbag(path)
    camera = CAPTURE.cameras[1].T_rig_cam.tolist()
    (tmp_path / "m.yaml").write_text(
        "cameras: {a: {images: /camera_1/image_raw/compressed, info: /camera_1/camera_info, "
        f"T_rig_sensor: {camera}}}}}\nposes: {{topic: /odom}}\n"
    )
    read = read_rosbag(path, mapping=tmp_path / "m.yaml")
    assert float((read.cameras[0].T_rig_cam - CAPTURE.cameras[1].T_rig_cam).abs().max()) < 1e-9 and not read.lidars


def test_a_camera_in_the_axes_of_a_vehicle_is_turned(tmp_path: Path) -> None:
    """Many drivers name the camera's body, whose x looks ahead, in the headers."""
    body = CAPTURE.cameras[0].T_rig_cam @ invert(
        torch.tensor([[0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]], dtype=torch.float64)
    )
    path = sensors().mountings().odometry().write(tmp_path / "bag", "mcap")
    (tmp_path / "m.yaml").write_text(
        "cameras: {a: {images: /camera_0/image_raw/compressed, info: /camera_0/camera_info, "
        f"T_rig_sensor: {body.tolist()}}}}}\nposes: {{topic: /odom}}\n"
    )
    read = read_rosbag(path, mapping=tmp_path / "m.yaml")
    assert float((read.cameras[0].T_rig_cam - CAPTURE.cameras[0].T_rig_cam).abs().max()) < 1e-9


def test_frames_beyond_the_poses_are_left_out_and_reported(tmp_path: Path) -> None:
    recording = street(CAPTURE)
    last = START + round(0.75e9)
    recording.rows = [row for row in recording.rows if row[1] != "/odom" or row[0] < last]
    read = read_rosbag(recording.write(tmp_path / "bag", "mcap"))
    assert max(f.time_mid for f in read.images) < 0.95 and len(read.images) < len(CAPTURE.images)
    assert any("have no pose at their time and are left out" in doubt.sentence for doubt in read.doubts)


def test_velocities_of_odometry_are_those_of_the_rig(tmp_path: Path) -> None:
    """The unit sits 2 m left of the rig and turns with it; it moves forward faster in a turn to the right."""
    recording = sensors().mountings().odometry(child="unit")
    arm = torch.eye(4, dtype=torch.float64)
    arm[1, 3] = 2.0
    edge = recording.transform(START, "base_link", "unit", arm)
    recording.add(
        "/tf_static", "tf2_msgs/msg/TFMessage", START, recording.make("tf2_msgs/msg/TFMessage", transforms=[edge])
    )
    for _, topic, _, message in recording.rows:
        if topic == "/odom":
            message.twist.twist.linear.x, message.twist.twist.angular.z = 6.0, -0.5
    read = read_rosbag(recording.write(tmp_path / "bag", "mcap"))
    assert read.measured is not None and read.measured.velocities is not None and read.measured.rates is not None
    assert read.measured.velocities[3].tolist() == pytest.approx([5.0, 0.0, 0.0])
    assert read.measured.rates[3].tolist() == pytest.approx([0.0, 0.0, -0.5])


def test_degrees_become_metres() -> None:
    """A degree of latitude has 111 132 m at 45 degrees, one of longitude 78 847 m (WGS 84)."""
    places = torch.tensor([[45.0, 8, 100], [45.001, 8, 100], [45, 8.001, 100], [45, 8, 103]], dtype=torch.float64)
    east, north, up = local_metres(places).unbind(1)
    assert north[1] == pytest.approx(111.132, abs=0.01) and east[2] == pytest.approx(78.847, abs=0.01)
    assert up[3] == pytest.approx(3.0) and float(up[:3].abs().max()) < 2e-3
