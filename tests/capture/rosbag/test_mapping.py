# SPDX-License-Identifier: Apache-2.0
"""The YAML that maps topics to sensors: its values, the proposal of inspect, and choices that a recording leaves."""

import re
from pathlib import Path

import pytest
from tiny_bag import Recording, street
from tiny_capture import tiny_capture

from nurec_lite.capture.rosbag.bag import open_bag
from nurec_lite.capture.rosbag.library import IMAGE, typestore
from nurec_lite.capture.rosbag.mapping import read_mapping
from nurec_lite.capture.rosbag.propose import Proposal, names_of, proposed
from nurec_lite.capture.rosbag.read import read_rosbag
from nurec_lite.capture.types import CaptureError

CAPTURE = tiny_capture()
PAGE = Path(__file__).resolve().parents[3] / "docs/datasets.md"
FRONT = "cameras: {a: {images: /camera_0/image_raw/compressed, info: /camera_0/camera_info"
GOOD = FRONT + "}}\nposes: {topic: /odom}\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "m.yaml"
    path.write_text(text)
    return path


def proposal(recording: Recording, folder: Path) -> Proposal:
    return proposed(open_bag(recording.write(folder / "bag", "mcap")))


def test_the_mapping_of_the_page_is_read(tmp_path: Path) -> None:
    text = re.search(r"```yaml\n(rig: .*?)```", PAGE.read_text(), re.DOTALL)
    assert text is not None
    found = read_mapping(write(tmp_path, text[1]))
    assert [c.name for c in found.cameras] == ["front", "rear"] and found.seconds == (0.0, 30.0)
    assert found.cameras[1].intrinsics is not None and found.lidars[0].vehicle == (2.5, 1.6)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("cameras: [1]", r"cameras is .* must be a name and its keys for each sensor"),
        ("[]", r"the file holds no keys"),
        ("poses: {topic: /odom}", r"names no camera"),
        ("camera: {}", r"key camera is unknown; did you mean cameras\?"),
        (FRONT + ", dely: 1}}", r"key cameras\.a\.dely is unknown; did you mean delay\?"),
        (FRONT + ", delay: soon}}", r"cameras\.a\.delay is 'soon', but must be a finite number"),
        (FRONT + ", delay: .nan}}", r"cameras\.a\.delay is 'nan', but must be a finite number"),
        (FRONT + ", shutter: top}}", r"cameras\.a\.shutter is 'top', but must be one of global"),
        (FRONT + ", readout: 0.1}}", r"needs both shutter and readout, or neither"),
        (FRONT + ", T_rig_sensor: [[1, 0, 0, 0]]}}", r"must be 3 or 4 rows of 4 numbers"),
        (FRONT + ", T_rig_sensor: [[2, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]}}", r"must be a rotation and a translation"),
        (FRONT + ", intrinsics: {width: 3}}}", r"cameras\.a\.intrinsics lacks the key height"),
        ("cameras: {a: {info: /camera_info}}", r"cameras\.a lacks the key images"),
        (GOOD + "seconds: [3, 1]\n", r"seconds is .* must be two numbers that rise, from 0"),
        (GOOD + "lidars: {a: {points: /points, unit: h}}\n", r"lidars\.a\.unit is 'h', but must be one of s, ms, us, ns"),
        ("a: &x [1]\nb: *x\n", r"uses an alias"),
        ("a: [1", r"is no YAML"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_mapping_is_named(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=sentence):
        read_mapping(write(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (GOOD.replace("/odom", "/odometry"), r"poses\.topic is /odometry, but .* holds no message of it; topics that fit: /odom"),
        (GOOD.replace("/odom", "/points"), r"poses\.topic is /points, but its messages are sensor_msgs/msg/PointCloud2 and must be"),
        (GOOD.replace("/camera_0/camera_info", "/odom"), r"cameras\.a\.info is /odom, but its messages are"),
        (GOOD + "lidars: {l: {points: /points, ring: beam_id}}\n", r"has the fields x, y, z, .*, but lidars\.l\.ring is 'beam_id'"),
        (GOOD + "lidars: {l: {points: /points, unit: ms}}\n", r"span 9\.\d+e-05 s by their field of time, but sweeps follow .* 0\.1 s"),
        (GOOD + "lidars: {l: {points: /points, time: intensity}}\n", r"name the field by time and its unit by unit|The times"),
        (GOOD + "rig: car\n", r"no tf leads from frame 'base_link' to 'car'"),
        (GOOD + "lidars: {l: {points: /points, frame: top}}\n", r"lidars\.l: no tf leads from frame 'base_link' to 'top'"),
        (GOOD + "seconds: [100, 101]\n", r"holds no message of /camera_0/image_raw/compressed in the seconds that are read"),
        (FRONT.split(", info")[0] + "}}\nposes: {topic: /odom}\n", r"has no CameraInfo; name its topic by cameras\.a\.info"),
        (FRONT + "}, b: {images: /camera_0/image_raw/compressed}}\n", r"names /camera_0/image_raw/compressed for two sensors"),
        (GOOD + "lidars: {l: {points: /points, delay: 100}}\n", r"but poses from .*; correct the clocks by delay"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_recording_is_named(text: str, sentence: str, bag: Path, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=sentence):
        read_rosbag(bag, mapping=write(tmp_path, text))


@pytest.fixture(scope="module")
def bag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return street(CAPTURE).write(tmp_path_factory.mktemp("bag") / "bag", "mcap")


def test_a_part_of_the_recording_is_read(bag: Path, tmp_path: Path) -> None:
    text = GOOD + "lidars: {lidar: {points: /points}}\nseconds: [0.25, 0.75]\n"
    read = read_rosbag(bag, mapping=write(tmp_path, text))
    assert 4 <= len(read.sweeps) <= 5 and 4 <= len(read.images) <= 6


def test_the_proposal_reads_what_it_was_made_from(bag: Path, tmp_path: Path) -> None:
    found = proposed(open_bag(bag))
    assert not found.choices and found.only().source == str(bag)
    one, other = read_rosbag(bag), read_rosbag(bag, mapping=write(tmp_path, found.text()))
    assert [(f.sensor, f.time_start) for f in one.sweeps] == [(f.sensor, f.time_start) for f in other.sweeps]
    assert [c.name for c in other.cameras] == ["camera_0", "camera_1"] and [s.name for s in other.lidars] == ["lidar"]


def test_a_choice_is_left_to_the_user(tmp_path: Path) -> None:
    found = proposal(street(CAPTURE).odometry("/odom2"), tmp_path)
    assert "# to choose: holds several topics of poses, /odom, /odom2: choose one by poses.topic" in found.text()
    with pytest.raises(CaptureError, match=r"several topics of poses, .*; python -m nurec_lite\.inspect data=rosbag"):
        found.only()


def test_what_is_no_sensor_is_left_out_and_reported(tmp_path: Path) -> None:
    recording = street(CAPTURE).sweeps("plain", "/points_filtered")
    first = recording.capture.images[0]
    recording.image("/depth", 1_700_000_000_000_000_000, "depth", first.load().numpy(), None)
    recording.rows[-1][3].encoding = "16UC1"
    text = proposal(recording, tmp_path).text()
    assert "# left out: /depth/image_raw holds images of the encoding '16UC1'" in text
    assert "# left out: /points_filtered shows the same lidar as /points" in text and "filtered: " not in text


def test_one_camera_of_several_topics_is_one_camera(tmp_path: Path) -> None:
    recording = street(CAPTURE)
    frames = [f for f in CAPTURE.images if f.sensor == "camera_0"]
    for frame in frames:
        recording.image(
            "/camera_0", 1_700_000_000_000_000_000 + frame.index, "camera_0_optical", frame.load().numpy(), None
        )
    found = proposal(recording, tmp_path)
    assert found.values["cameras"]["camera_0"]["images"] == "/camera_0/image_raw" and len(found.values["cameras"]) == 2


@pytest.mark.parametrize(
    ("topics", "names"),
    [
        (["/sensors/front/image_raw/compressed", "/sensors/rear/image_raw/compressed"], ["front", "rear"]),
        (["/left/cam/image_raw", "/right/cam/image_raw"], ["left_cam", "right_cam"]),
        (["/image_raw"], ["camera"]),
        (["/cam_0001/image_raw", "/cam/image_raw"], ["camera_0", "camera_1"]),  # a name that files of frames would have
    ],
)
def test_names_come_from_topics(topics: list[str], names: list[str]) -> None:
    assert [names_of(topics, "camera")[topic] for topic in topics] == names


def test_a_topic_of_another_definition_is_named(tmp_path: Path) -> None:
    path = street(CAPTURE, ros1=True, compressed=None).write(tmp_path / "a.bag")
    data = path.read_bytes()
    digest = typestore(True).generate_msgdef(IMAGE)[1].encode()
    assert data.count(digest) >= 2
    path.write_bytes(data.replace(digest, b"0" * 32))
    with pytest.raises(CaptureError, match=r"another definition of sensor_msgs/msg/Image .*; convert it by rosbag fix"):
        read_rosbag(path)
