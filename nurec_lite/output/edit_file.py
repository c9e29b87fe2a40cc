# SPDX-License-Identifier: Apache-2.0
"""Edits of a scene from a YAML file: actors removed, moved, on other trajectories, or copied from another run (docs/editing.md)."""

import difflib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
import yaml

from nurec_lite.base.errors import ConfigError
from nurec_lite.bounds import Between, Bound, Text, in_words
from nurec_lite.capture.files import short
from nurec_lite.capture.yaml_files import YamlLoader, read_yaml
from nurec_lite.geometry.se3 import matrix_to_quat
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.output.mounting import turned
from nurec_lite.scene.edit import ALL_ACTORS, FARTHEST, Copy, Edits, Move, Trajectory, copy_of, track_number
from nurec_lite.scene.scene import Scene
from nurec_lite.training.checkpoint import load_checkpoint, scene_from_dict

REMEDY = "docs/editing.md has examples"
MOST_POSES = 100_000
_TEXT, _ANGLE = Text(), Between(-FARTHEST, FARTHEST)
_NAMES = ("remove", "track", "checkpoint", "name")  # keys of texts, which stay as written: 000 is no number
_METRES = Between(-FARTHEST, FARTHEST)
_MOVE: dict[str, Bound] = {"track": _TEXT, "forward_m": _METRES, "left_m": _METRES, "up_m": _METRES, "yaw_deg": _ANGLE}
_WORLD = Between(-1e8, 1e8)  # metres, of a map's coordinates, too
_POSE: dict[str, Bound] = {
    "time_s": Between(-1e10, 1e10), "x_m": _WORLD, "y_m": _WORLD, "z_m": _WORLD, "yaw_deg": _ANGLE, "pitch_deg": _ANGLE,
    "roll_deg": _ANGLE,
}  # fmt: skip
_FOLLOW: dict[str, Bound] = {"track": _TEXT}
_COPY: dict[str, Bound] = {"name": _TEXT, "checkpoint": _TEXT, "track": _TEXT}
SECTIONS = ("remove", "move", "follow", "copy")


class _Loader(YamlLoader):
    """Keeps ids as they are written, and refuses a key that stands twice in one mapping."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = [key for key, count in Counter(keys).items() if count > 1]
        if twice:
            raise ConfigError(f"line {node.start_mark.line + 1} holds {short(twice[0])} twice; keep one")
        for key, value in node.value:
            if key.value in _NAMES:
                for one in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    if isinstance(one, yaml.ScalarNode) and one.value:
                        one.tag = "tag:yaml.org,2002:str"
        return super().construct_mapping(node, deep)


def read_edits(
    path: Path,
    scene: Scene,  # that is edited
) -> Edits:
    """The edits of a file; ConfigError with one sentence for the first mistake."""
    try:
        value = read_yaml(path, REMEDY, _Loader)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(value, dict) or not value:
        raise ConfigError(f"{path} must hold some of the keys {', '.join(SECTIONS)}; {REMEDY}")
    _check_keys(path, "", value, SECTIONS)
    open_scene = lru_cache(maxsize=1)(_scene_of)
    edits = Edits(
        removed=tuple(_name(path, f"remove[{i}]", one) for i, one in enumerate(_list(path, "remove", value))),
        moves=tuple(_each(path, value, "move", partial(_move, path))),
        trajectories=tuple(_each(path, value, "follow", partial(_follow, path))),
        copies=tuple(_each(path, value, "copy", partial(_copied, path, open_scene))),
    )
    check_edits(str(path), scene.tracks, edits)
    return edits


def check_edits(
    what: str,  # holds the edits; for messages
    tracks: Tracks,
    edits: Edits,
) -> None:
    """ConfigError for a track that does not exist, is edited twice, or is the name of a copy."""
    names = edits.names()
    for name in names:
        if name != ALL_ACTORS or name not in edits.removed:
            track_number(tracks, name, what)
    again = [name for name, count in Counter(names).items() if count > 1]
    if again:
        raise ConfigError(f"{what} edits track '{short(again[0])}' twice; keep one of the edits")
    kept = [name for name in names if name not in edits.removed]
    if ALL_ACTORS in edits.removed and len(names) > 1:
        other = kept[0] if kept else next(name for name in names if name != ALL_ACTORS)
        raise ConfigError(f"{what} removes all actors and edits '{short(other)}'; leave one of the edits out")
    known = [*tracks.ids, ALL_ACTORS]
    for copy in edits.copies:
        if copy.name in known:
            raise ConfigError(f"{what} names a copy '{short(copy.name)}', which is taken; choose another name")
        known.append(copy.name)


# ---- sections


def _move(path: Path, at: str, given: Mapping[Any, Any]) -> tuple[str, Move]:
    _check(path, at, given, _MOVE, ("track",))
    if len(given) == 1:
        raise ConfigError(f"{path}: {at} has no offset; give some of {', '.join([*_MOVE][1:])}")
    forward, left, up, degrees = (float(given.get(key, 0.0)) for key in ("forward_m", "left_m", "up_m", "yaw_deg"))
    return given["track"], Move(forward, left, up, math.radians(degrees))


def _follow(path: Path, at: str, given: Mapping[Any, Any]) -> tuple[str, Trajectory]:
    _check(path, at, given, _FOLLOW, ("track",), "poses")
    return given["track"], _trajectory(path, at, given)


def _copied(path: Path, open_scene: Callable[[str], Scene], at: str, given: Mapping[Any, Any]) -> Copy:
    _check(path, at, given, _COPY, ("name", "checkpoint", "track"), "poses")
    trajectory = _trajectory(path, at, given)
    source = open_scene(given["checkpoint"])
    track_number(source.tracks, given["track"], f"{path}: {at}.track of {given['checkpoint']}")
    return copy_of(source, given["track"], given["name"], trajectory)


def _scene_of(file: str) -> Scene:
    return scene_from_dict(load_checkpoint(Path(file).expanduser(), "cpu")["scene"])


def _trajectory(path: Path, at: str, given: Mapping[Any, Any]) -> Trajectory:
    poses = _list(path, "poses", given, f"{at}.")
    if not 2 <= len(poses) <= MOST_POSES:
        raise ConfigError(f"{path}: {at}.poses has {len(poses)} poses, but takes 2 to {MOST_POSES}")
    for i, pose in enumerate(poses):
        _check(
            path, f"{at}.poses[{i}]", _mapping(path, f"{at}.poses[{i}]", pose), _POSE, ("time_s", "x_m", "y_m", "z_m")
        )
    times = [float(pose["time_s"]) for pose in poses]
    for i in range(1, len(times)):
        if times[i] <= times[i - 1]:
            raise ConfigError(
                f"{path}: {at}.poses[{i}].time_s is {times[i]:g}, but must be after {times[i - 1]:g}, the time before it"
            )
    places = [[float(pose[key]) for key in ("x_m", "y_m", "z_m")] for pose in poses]
    turns = [
        turned(*(math.radians(pose.get(key, 0.0)) for key in ("yaw_deg", "pitch_deg", "roll_deg"))) for pose in poses
    ]
    doubles = [torch.tensor(values, dtype=torch.float64) for values in (times, places)]
    return Trajectory(doubles[0], doubles[1], matrix_to_quat(torch.stack(turns)[:, :3, :3]))


# ---- checks


def _each(path: Path, value: Mapping[Any, Any], key: str, read: Callable[[str, Mapping[Any, Any]], Any]) -> list[Any]:
    entries = _list(path, key, value)
    return [read(f"{key}[{i}]", _mapping(path, f"{key}[{i}]", one)) for i, one in enumerate(entries)]


def _list(path: Path, key: str, value: Mapping[Any, Any], prefix: str = "") -> list[Any]:
    found = value.get(key, [])
    if not isinstance(found, list):
        raise ConfigError(f"{path}: {prefix}{key} is {in_words(found)}, but must be a list; {REMEDY}")
    return found


def _mapping(path: Path, at: str, value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: {at} is {in_words(value)}, but must hold keys and values; {REMEDY}")
    return value


def _name(path: Path, at: str, value: Any) -> str:
    if not _TEXT.holds(value) or not value:
        raise ConfigError(f"{path}: {at} is {in_words(value)}, but must be the id of a track")
    return str(value)


def _check(
    path: Path, at: str, given: Mapping[Any, Any], known: Mapping[str, Bound], needed: Sequence[str], *others: str
) -> None:
    """ConfigError for a key that is unknown or missing, or for a value out of its range; `others` are known, too."""
    _check_keys(path, f"{at}.", given, (*known, *others))
    for key in (*needed, *others):
        if given.get(key) in (None, ""):
            raise ConfigError(f"{path}: {at}.{key} is missing; {REMEDY}")
    for key, value in given.items():
        if key in known and not known[key].holds(value):
            raise ConfigError(f"{path}: {at}.{key} is {in_words(value)}, but must {known[key]}")


def _check_keys(path: Path, prefix: str, given: Mapping[Any, Any], known: Sequence[str]) -> None:
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(short(key), known, 1)
            asked = f"did you mean {prefix}{near[0]}?" if near else f"the keys are {', '.join(known)}"
            raise ConfigError(f"{path}: key {prefix}{short(key)} is unknown; {asked}")
