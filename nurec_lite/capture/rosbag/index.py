# SPDX-License-Identifier: Apache-2.0
"""One pass over a recording: stamps and places of frames, and all small messages: calibrations, transforms, poses.

The content of images and sweeps is not kept: memory grows with the number of messages, not with their bytes.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.rosbag.bag import Bag, Stored, check_definition
from nurec_lite.capture.rosbag.clouds import find_fields, read_cloud
from nurec_lite.capture.rosbag.containers import Message, Topic
from nurec_lite.capture.rosbag.library import (
    CLOUD,
    COMPRESSED,
    FIX,
    IMAGE,
    IMU,
    INFO,
    LIVOX,
    ODOMETRY,
    POSE,
    POSE_COVARIANCE,
    TRANSFORMS,
)
from nurec_lite.capture.rosbag.mapping import LidarEntry, Mapping, Sensor, seconds_window
from nurec_lite.capture.rosbag.storage import ALWAYS
from nurec_lite.capture.rosbag.transforms import Transforms, frame_name, pose_of
from nurec_lite.capture.types import CaptureError

_FAR = 1.0  # seconds between stamps and times of receipt; the user learns of more
POSES = (ODOMETRY, POSE, POSE_COVARIANCE)
MOST_MESSAGES = 20_000_000


@dataclass
class Frames:
    """Messages of images or points of one topic."""

    entry: Sensor
    kind: str
    stamps: list[int] = field(default_factory=list)  # nanoseconds, of the headers
    received: list[int] = field(default_factory=list)  # nanoseconds
    stored: list[Stored] = field(default_factory=list)
    frame: str = ""  # of the headers
    first: Any = None  # an image's message; of points, the names of their fields
    spans: list[tuple[float, float]] = field(
        default_factory=list
    )  # first and last time of a sweep's points, as they say

    def add(self, stamp: int, received: int, stored: Stored) -> None:
        self.stamps.append(stamp)
        self.received.append(received)
        self.stored.append(stored)

    def order(self) -> list[int]:
        """Places of messages by stamp, each stamp once."""
        found: dict[int, int] = {}
        for k, stamp in enumerate(self.stamps):
            found.setdefault(stamp, k)
        return [found[stamp] for stamp in sorted(found)]


@dataclass
class Index:
    bag: Bag
    mapping: Mapping
    frames: dict[str, Frames] = field(default_factory=dict)  # by topic
    infos: dict[str, Any] = field(default_factory=dict)  # CameraInfo by topic
    transforms: Transforms = field(default_factory=Transforms)
    poses: dict[int, list[float]] = field(default_factory=dict)  # by nanoseconds, as of pose_of
    twists: dict[int, list[float]] = field(
        default_factory=dict
    )  # by nanoseconds: motion and turning in the frame's axes
    pose_frame: str = ""  # the frame that has the poses
    fixes: dict[int, list[float]] = field(default_factory=dict)  # latitude, longitude in degrees, altitude in metres
    fix_frame: str = ""
    imu: dict[int, list[float]] = field(default_factory=dict)  # rates, and a quaternion wxyz or zeros
    imu_frame: str = ""
    notes: list[str] = field(default_factory=list)

    def frames_of(self, entry: Sensor) -> Frames:
        return self.frames[entry.topic]


def read_index(bag: Bag, mapping: Mapping) -> Index:
    """Reads a recording once; CaptureError for a topic that is missing, empty or of another type than the mapping needs."""
    index = Index(bag, mapping)
    for topic, place, kinds in _needed(mapping):
        _check_topic(bag, mapping, topic, place, kinds)
    for entry in mapping.sensors:
        if entry.topic in index.frames:
            raise CaptureError(f"{mapping.source} names {entry.topic} for two sensors; take it out of one")
        index.frames[entry.topic] = Frames(entry, bag.topics[entry.topic].kind)
    _pass(index)
    for topic, frames in index.frames.items():
        if not frames.stamps:
            raise CaptureError(
                f"{bag.path} holds no message of {topic} in the seconds that are read; choose others by seconds"
            )
        _restamp(index, topic, frames)
    return index


def _needed(mapping: Mapping) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Topics, their places in the mapping, and the types that fit there."""
    for camera in mapping.cameras:
        yield camera.images, f"cameras.{camera.name}.images", (IMAGE, COMPRESSED)
        if camera.info:
            yield camera.info, f"cameras.{camera.name}.info", (INFO,)
    for lidar in mapping.lidars:
        yield lidar.points, f"lidars.{lidar.name}.points", (CLOUD, *LIVOX)
    poses, kinds = mapping.poses, {"topic": POSES, "fix": (FIX,), "imu": (IMU,)}
    yield from ((topic, f"poses.{key}", fit) for key, fit in kinds.items() if (topic := getattr(poses, key)))


def _check_topic(bag: Bag, mapping: Mapping, name: str, place: str, kinds: tuple[str, ...]) -> None:
    topic = bag.topics.get(name)
    if topic is None or not topic.count:
        fit = sorted(t.name for t in bag.topics.values() if t.kind in kinds and t.count)
        have = f"topics that fit: {', '.join(fit[:12])}" if fit else f"no topic of {' or '.join(kinds)} is there"
        raise CaptureError(f"{mapping.source}: {place} is {name}, but {bag.path} holds no message of it; {have}")
    if topic.kind not in kinds:
        raise CaptureError(
            f"{mapping.source}: {place} is {name}, but its messages are {topic.kind} and must be {' or '.join(kinds)}; name "
            "another topic"
        )
    check_definition(bag, topic)


def _pass(index: Index) -> None:
    bag, mapping = index.bag, index.mapping
    tf = [t.name for t in bag.topics.values() if t.kind in TRANSFORMS]
    window = seconds_window(mapping, bag.start)
    named = [topic for topic in mapping.topics if topic not in tf]
    if sum(bag.topics[topic].count for topic in (*named, *tf)) > MOST_MESSAGES:
        raise CaptureError(
            f"{bag.path} holds more than {MOST_MESSAGES} messages; read a part by seconds in data.mapping"
        )
    once = {t for t in named if bag.topics[t].kind == INFO} | {t for t in tf if "static" in t}
    for message, value in bag.messages(sorted(once), ALWAYS):  # calibrations hold for all of the recording
        _take(index, bag.topics[message.topic], message, value)
    for message, value in bag.messages([t for t in (*named, *tf) if t not in once], window):
        _take(index, bag.topics[message.topic], message, value)


def _take(index: Index, topic: Topic, message: Message, value: Any) -> None:
    """Keeps the parts of a message that the capture needs."""
    if topic.kind in TRANSFORMS:
        index.transforms.add(value, static="static" in topic.name)
        return
    stamp = value.header.stamp.sec * 10**9 + value.header.stamp.nanosec
    keep: dict[str, Callable[[], None]] = {
        INFO: lambda: _info(index, topic, value),
        FIX: lambda: _fix(index, stamp or message.received, value),
        IMU: lambda: _imu(index, stamp or message.received, value),
    }
    keep |= dict.fromkeys(POSES, lambda: _pose(index, topic.kind, stamp or message.received, value))
    keep |= dict.fromkeys((IMAGE, COMPRESSED, CLOUD, *LIVOX), lambda: _frame(index, stamp, message, value))
    keep[topic.kind]()


def _info(index: Index, topic: Topic, value: Any) -> None:
    index.infos.setdefault(topic.name, value)


def _frame(index: Index, stamp: int, message: Message, value: Any) -> None:
    frames = index.frames[message.topic]
    frames.frame = frames.frame or frame_name(value.header.frame_id)
    if isinstance(frames.entry, LidarEntry):
        where = f"{index.bag.path}: {message.topic}"
        if frames.first is None:
            frames.first = find_fields(value, frames.kind, frames.entry, where)
        cloud = read_cloud(value, frames.kind, frames.first, where)
        if not len(cloud):
            return
        times = cloud.times
        frames.spans.append((float(times.min()), float(times.max())) if times is not None else (0.0, 0.0))
    elif frames.first is None:
        frames.first = value
    frames.add(stamp, message.received, index.bag.stored(message))


def _pose(index: Index, kind: str, stamp: int, value: Any) -> None:
    pose = value.pose if kind == POSE else value.pose.pose
    found = pose_of(pose.position, pose.orientation)
    if found is None:
        return
    index.poses[stamp] = found
    if kind == ODOMETRY:
        index.pose_frame = index.pose_frame or frame_name(value.child_frame_id)
        way, turn = value.twist.twist.linear, value.twist.twist.angular
        index.twists[stamp] = [way.x, way.y, way.z, turn.x, turn.y, turn.z]


def _fix(index: Index, stamp: int, value: Any) -> None:
    level = value.altitude if math.isfinite(value.altitude) else 0.0  # some receivers know none
    place = [value.latitude, value.longitude, level]
    if value.status.status < 0 or not (abs(place[0]) <= 90 and abs(place[1]) <= 180 and abs(place[2]) < 1e5):
        return
    index.fixes[stamp] = place
    index.fix_frame = index.fix_frame or frame_name(value.header.frame_id)


def _imu(index: Index, stamp: int, value: Any) -> None:
    rates, q = value.angular_velocity, value.orientation
    turn = [q.w, q.x, q.y, q.z]
    known = value.orientation_covariance[0] != -1 and sum(v * v for v in turn) > 0.5  # -1: the unit has no attitude
    index.imu[stamp] = [rates.x, rates.y, rates.z, *(turn if known else [0.0] * 4)]
    index.imu_frame = index.imu_frame or frame_name(value.header.frame_id)


def _restamp(index: Index, topic: str, frames: Frames) -> None:
    """Gives headers without a stamp the time of receipt."""
    stamps, received = np.array(frames.stamps), np.array(frames.received)
    if not stamps.any():
        index.notes.append(f"Headers of {topic} have no stamps: the times when the bag received them are used.")
        frames.stamps = frames.received
        return
    lag = float(np.median(received - stamps)) * 1e-9
    if abs(lag) > _FAR:
        index.notes.append(
            f"Stamps of {topic} lie {abs(lag):.1f} s {'before' if lag > 0 else 'after'} the times when the bag received them: the "
            "stamps are used."
        )
    kept = [k for k, stamp in enumerate(frames.stamps) if stamp]
    for name in ("stamps", "received", "stored", "spans") if len(kept) < len(stamps) else ():
        values = getattr(frames, name)
        setattr(frames, name, [values[k] for k in kept] if values else [])


def seconds(stamps: Any, start: int) -> Tensor:  # [n] float64, from the start
    return torch.tensor([int(stamp) - start for stamp in stamps], dtype=torch.float64) * 1e-9
