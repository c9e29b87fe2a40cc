# SPDX-License-Identifier: Apache-2.0
"""A recording: one bag file, the folder of a ROS 2 bag, or a folder of files that follow one another."""

import os
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from nurec_lite.capture.rosbag.containers import Container, Message, Topic, open_container
from nurec_lite.capture.rosbag.library import check_installed, damaged, decode, other_definition
from nurec_lite.capture.rosbag.storage import ALWAYS, COPY, Location, Window
from nurec_lite.capture.types import CaptureError
from nurec_lite.capture.yaml_files import read_yaml

SUFFIXES = (".bag", ".mcap", ".db3")
METADATA = "metadata.yaml"
MOST_FILES = 10_000
_RESTORE = f"restore it, or remove {METADATA}: the files are then read without it"


@dataclass(frozen=True)
class Stored:
    """A message that can be read again. Plain data, so that it pickles."""

    location: Location
    topic: Topic
    name: str  # of the recording, for messages
    size: int  # bytes

    def mark(self, thorough: bool) -> tuple[int, int]:
        """Bytes of the message and a checksum, -1 where it would have to be read."""
        return self.size, zlib.crc32(self.location.read()) if thorough else -1

    def message(self) -> Any:
        return decoded(self.location.read(), self.topic, self.name)


@dataclass(frozen=True)
class Bag:
    path: Path
    containers: tuple[Container, ...]
    topics: dict[str, Topic]  # by name
    start: int  # nanoseconds: time of the first message

    def messages(self, topics: Collection[str], window: Window) -> Iterator[tuple[Message, Any]]:
        """Each message of the topics with its content; those of one topic need not be in order of time."""
        for container in self.containers:
            for message in container.messages(topics, window):
                yield message, decoded(message.data, self.topics[message.topic], str(self.path))

    def first(self, topic: str) -> Any | None:
        """A message of the topic; None if there is none."""
        return next((value for _, value in self.messages([topic], ALWAYS)), None)

    def stored(self, message: Message) -> Stored:
        return Stored(message.location, self.topics[message.topic], str(self.path), len(message.data))


def decoded(data: bytes, topic: Topic, name: str) -> Any:
    with damaged(f"{name}: a message of {topic.name} ({topic.kind})", COPY):
        return decode(data, topic.kind, topic.ros1)


def open_bag(path: Path) -> Bag:
    check_installed(path)
    files, compression = _files(path)
    containers = tuple(open_container(file, compression) for file in files)
    topics: dict[str, Topic] = {}
    for topic in (topic for container in containers for topic in container.topics):
        topics[topic.name] = _added(path, topics.get(topic.name), topic)
    filled = [c.start for c in containers if any(topic.count for topic in c.topics)]
    if not filled:
        raise CaptureError(f"{path} holds no message; choose another recording")
    return Bag(path, containers, topics, min(filled))


def _added(path: Path, known: Topic | None, topic: Topic) -> Topic:
    if known is None:
        return topic
    if known.kind != topic.kind:
        raise CaptureError(
            f"{path}: {topic.name} holds messages of {known.kind} and of {topic.kind}; write one of them to another topic"
        )
    return Topic(topic.name, topic.kind, known.count + topic.count, topic.ros1, topic.digest)


def check_definition(bag: Bag, topic: Topic) -> None:
    """Raises CaptureError if the topic was recorded by another definition of its message than ROS has."""
    if topic.ros1 and other_definition(topic.kind, topic.digest):
        raise CaptureError(
            f"{bag.path}: {topic.name} was recorded with another definition of {topic.kind} than ROS 1 Noetic has; "
            "convert it by rosbag fix"
        )


def _files(path: Path) -> tuple[list[Path], str]:  # and how each message is compressed
    if not os.path.isdir(path):
        if not os.path.isfile(path):
            problem = "is no file" if os.path.lexists(path) else "does not exist"
            raise CaptureError(f"{path} {problem}; data.root must be a bag: a file, or the folder of a ROS 2 bag")
        return [path], ""
    if os.path.lexists(path / METADATA):
        return _listed(path)
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    if not files or len(files) > MOST_FILES:
        raise CaptureError(
            f"{path} holds {len(files)} files {', '.join(f'*{s}' for s in SUFFIXES)}; data.root must be a bag: a file, or the "
            "folder of a ROS 2 bag"
        )
    return files, ""


def _listed(path: Path) -> tuple[list[Path], str]:
    """Files that the metadata of a ROS 2 bag name."""
    where, found = path / METADATA, read_yaml(path / METADATA, _RESTORE)
    about = found.get("rosbag2_bagfile_information") if isinstance(found, dict) else None
    names = about.get("relative_file_paths") if isinstance(about, dict) else None
    if not isinstance(about, dict) or not isinstance(names, list) or not 0 < len(names) <= MOST_FILES:
        raise CaptureError(f"{where} names no files (relative_file_paths); {_RESTORE}")
    files = [path / PurePosixPath(str(name)).name for name in names]
    missing = [file for file in files if not file.is_file()]
    if missing:
        raise CaptureError(f"{missing[0]}, which {METADATA} names, does not exist; restore it, or take it out there")
    form, mode = (str(about.get(f"compression_{key}") or "").lower() for key in ("format", "mode"))
    if mode not in ("", "none", "file", "message") or (mode == "message" and form != "zstd"):
        raise CaptureError(f"{where}: compression {form} by {mode} is none of zstd by file or message; convert the bag")
    return files, form if mode == "message" else ""
