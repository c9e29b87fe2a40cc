# SPDX-License-Identifier: Apache-2.0
"""The mapping that a recording suggests: which topics are cameras, which are lidars, and where poses come from.

The proposal is a YAML, with a comment wherever something was left out or there is a choice; a reading without data.mapping takes it
where it leaves no choice.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import yaml

from nurec_lite.base.names import clashes, name_flaw
from nurec_lite.capture.rosbag.bag import Bag
from nurec_lite.capture.rosbag.clouds import RINGS, TIMES
from nurec_lite.capture.rosbag.containers import Topic
from nurec_lite.capture.rosbag.images import flaw_of
from nurec_lite.capture.rosbag.library import (
    CLOUD,
    COMPRESSED,
    FIX,
    IMAGE,
    IMU,
    INFO,
    KNOWN,
    LIVOX,
    ODOMETRY,
    POSE,
    POSE_COVARIANCE,
    TRANSFORMS,
)
from nurec_lite.capture.rosbag.mapping import Mapping, Reader
from nurec_lite.capture.rosbag.poses import WORLDS
from nurec_lite.capture.rosbag.storage import ALWAYS
from nurec_lite.capture.rosbag.transforms import Transforms, frame_name
from nurec_lite.capture.types import CaptureError

FILE = "mapping.yaml"
_PLAIN = ("compressed", "image_raw", "image_color", "image", "image_rect", "image_rect_color", "image_mono", "raw", "points", "points_raw",
          "pointcloud", "point_cloud", "velodyne_points", "lidar", "scan", "cloud", "packets")  # fmt: skip
# of one camera: images that show most come first
_RANKS = ("image_color", "image_raw", "image", "image_rect_color", "image_rect", "image_mono")
_MADE = ("map", "odom", "world", "earth")  # frames of clouds that other programs made
_FEWEST_POSES = 5  # a topic with fewer messages holds goals or first guesses
_OTHER = re.compile(r"Packet|Scan|Video|Image|Cloud|Lidar|Radar")  # types of sensors that are not read
_INSPECT = (
    "python -m nurec_lite.inspect data=rosbag data.root={root} writes a mapping; complete it and give data.mapping=FILE"
)


@dataclass
class Proposal:
    """The mapping that a recording suggests."""

    source: str
    values: dict[str, Any]  # as the YAML holds them
    notes: list[str] = field(default_factory=list)  # comments: topics that are left out, and why
    choices: list[str] = field(default_factory=list)  # sentences: choices that the user must make or add

    def text(self) -> str:
        """The YAML."""
        lines = [f"# The sensors of {self.source}: data=rosbag data.root={self.source} data.mapping=FILE"]
        lines += [f"# to choose: {sentence}" for sentence in self.choices] + [f"# {note}" for note in self.notes]
        body = yaml.safe_dump(self.values, sort_keys=False, allow_unicode=True, width=100)
        return "\n".join(line.replace("\n", " ") for line in lines) + "\n" + body

    def only(self) -> Mapping:
        """The mapping; CaptureError if the recording leaves a choice."""
        if self.choices:
            raise CaptureError(f"{self.source} {self.choices[0]}; {_INSPECT.format(root=self.source)}")
        return Reader(self.source).mapping(self.values)


def proposed(bag: Bag) -> Proposal:
    found = Proposal(str(bag.path), {"cameras": {}, "lidars": {}, "poses": {}})
    _cameras(bag, found)
    _lidars(bag, found)
    _poses(bag, found)
    for topic in bag.topics.values():
        if topic.kind not in KNOWN and _OTHER.search(topic.kind.split("/")[-1]) and topic.count:
            found.notes.append(f"left out: {topic.name} holds messages of {topic.kind}, which are not read")
    found.values = {key: value for key, value in found.values.items() if value}
    return found


def _of_kind(bag: Bag, *kinds: str) -> list[Topic]:
    return sorted((t for t in bag.topics.values() if t.kind in kinds and t.count), key=lambda t: t.name)


def names_of(topics: list[str], kind: str) -> dict[str, str]:
    """A short name of each topic: the parts of its path that not every driver writes."""
    parts = {t: [p for p in PurePosixPath(t).parts if p != "/" and p not in _PLAIN] or [kind] for t in topics}
    for length in range(1, max(map(len, parts.values()), default=1) + 1):
        names = {topic: "_".join(p[-length:]) for topic, p in parts.items()}
        if all(name_flaw(name) is None for name in names.values()) and not list(clashes([*names.values()])):
            return names
    return {topic: f"{kind}_{k}" for k, topic in enumerate(topics)}


# ---- cameras


def _cameras(bag: Bag, found: Proposal) -> None:
    usable: dict[str, Topic] = {}
    for topic in _of_kind(bag, IMAGE, COMPRESSED):
        first = bag.first(topic.name)
        flaw = "holds no message that can be read" if first is None else flaw_of(first, topic.kind)
        if flaw:
            found.notes.append(f"left out: {topic.name} {flaw}")
        else:
            usable[topic.name] = topic
    groups: dict[str, list[Topic]] = {}
    for topic in usable.values():
        groups.setdefault(_namespace(topic), []).append(topic)
    chosen = [min(topics, key=_rank) for topics in groups.values()]
    for topic in (t for topics in groups.values() for t in topics if t not in chosen):
        found.notes.append(f"left out: {topic.name} shows the same camera as another topic")
    names = names_of([topic.name for topic in chosen], "camera")
    infos = [topic.name for topic in _of_kind(bag, INFO)]
    for topic in chosen:
        found.values["cameras"][names[topic.name]] = _camera(topic, infos, len(chosen), found)
    if not chosen:
        found.choices.append("holds no images that can be read")


def _namespace(topic: Topic) -> str:
    path = PurePosixPath(topic.name)
    return str((path.parent if topic.kind == COMPRESSED and path.name == "compressed" else path).parent)


def _rank(topic: Topic) -> tuple[int, int, str]:
    path = PurePosixPath(topic.name)
    name = path.parent.name if path.name == "compressed" else path.name
    return (_RANKS.index(name) if name in _RANKS else len(_RANKS), topic.kind == COMPRESSED, topic.name)


def _camera(topic: Topic, infos: list[str], cameras: int, found: Proposal) -> dict[str, Any]:
    near = [
        str(PurePosixPath(_namespace(topic)) / "camera_info"),
        f"{topic.name}/camera_info",
        f"{_namespace(topic)}/image_raw/camera_info",
    ]
    info = next((name for name in near if name in infos), infos[0] if len(infos) == cameras == 1 else None)
    entry: dict[str, Any] = {"images": topic.name}
    if info is None:
        found.choices.append(f"has no CameraInfo near {topic.name}: name one by info, or give intrinsics")
    else:
        entry["info"] = info
    if "rect" in topic.name.lower().replace("direct", ""):
        entry["rectified"] = True
    return entry


# ---- lidars


def _lidars(bag: Bag, found: Proposal) -> None:
    by_frame: dict[str, list[tuple[tuple[int, ...], Topic]]] = {}
    for topic in _of_kind(bag, CLOUD, *LIVOX):
        first = bag.first(topic.name)
        if first is None:
            continue
        frame, fields = frame_name(first.header.frame_id), _field_names(first, topic)
        score = (bool(fields & set(RINGS)), bool(fields & set(TIMES)))
        if (
            frame in _MADE
            or (not any(score) and fields & {"rgb", "rgba", "velocity", "doppler"})
            or not {"x", "y", "z"} <= fields
        ):
            what = f"is in the frame '{frame}'" if frame in _MADE else "has the fields of another sensor"
            found.notes.append(f"left out: {topic.name} {what}, so it is no sweep of a lidar")
            continue
        size = int(first.point_num if topic.kind in LIVOX else first.width * first.height)
        by_frame.setdefault(frame, []).append(((*map(int, score), topic.count, size), topic))
    chosen = []
    for topics in by_frame.values():
        best = max(topics, key=lambda one: one[0])
        chosen.append(best[1])
        found.notes += [
            f"left out: {t.name} shows the same lidar as {best[1].name}" for _, t in topics if t is not best[1]
        ]
    names = names_of([topic.name for topic in chosen], "lidar")
    found.values["lidars"] = {names[topic.name]: {"points": topic.name} for topic in chosen}


def _field_names(first: Any, topic: Topic) -> set[str]:
    if topic.kind in LIVOX:
        return {"x", "y", "z", "line", "offset_time"}
    return {f.name.lower() for f in first.fields}


# ---- poses


def _poses(bag: Bag, found: Proposal) -> None:
    for kind in (ODOMETRY, POSE, POSE_COVARIANCE):
        topics = [topic.name for topic in _of_kind(bag, kind) if topic.count >= _FEWEST_POSES]
        if topics:
            found.values["poses"] = {"topic": topics[0]}
            if len(topics) > 1:
                found.choices.append(
                    f"holds several topics of poses, {', '.join(topics[:6])}: choose one by poses.topic"
                )
            return
    world = next(_moving_worlds(bag), None)
    fixes, units = ([topic.name for topic in _of_kind(bag, kind)] for kind in (FIX, IMU))
    if world is not None:
        found.values["poses"] = {"world": world}
    elif fixes:
        found.values["poses"] = {"fix": fixes[0]} | ({"imu": units[0]} if units else {})
        for key, names in (("fix", fixes), ("imu", units)):
            if len(names) > 1:
                found.choices.append(f"holds {', '.join(names[:6])}: choose one by poses.{key}")
    elif found.values["lidars"]:
        found.notes.append("no poses are in the recording: they are estimated from the sweeps")
    else:
        found.choices.append(
            "holds neither poses (Odometry, PoseStamped, tf of a world or NavSatFix) nor a lidar to estimate them"
        )


def _moving_worlds(bag: Bag) -> Iterator[str]:
    """Frames of a world that tf moves something against."""
    names = [t.name for t in bag.topics.values() if t.kind in TRANSFORMS and t.count and "static" not in t.name]
    known = Transforms()
    for n, (_, message) in enumerate(bag.messages(names, ALWAYS) if names else ()):
        known.add(message, static=False)
        if n > 1000:
            break
    parents = {edge[0] for edge, poses in known.moving.items() if len(poses) > 1}
    yield from (world for world in WORLDS if world in parents)
