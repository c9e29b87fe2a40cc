# SPDX-License-Identifier: Apache-2.0
"""Edits of a scene from a YAML file: actors removed, moved, on other trajectories, or copied from another run (docs/editing.md)."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.names import NODES, clashes, folded, name_flaw
from nurec_lite.bounds import Between, Bound, Text, in_words
from nurec_lite.capture.files import short
from nurec_lite.capture.yaml_files import NamesLoader, read_yaml
from nurec_lite.geometry.se3 import matrix_to_quat
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.output.mounting import turned
from nurec_lite.output.yaml_checks import YamlFile
from nurec_lite.scene.edit import ALL_ACTORS, FARTHEST, Copy, Edits, Move, Trajectory, copy_of, track_number
from nurec_lite.scene.scene import Scene
from nurec_lite.training.checkpoint import load_checkpoint, scene_from_dict

REMEDY = "docs/editing.md has examples"
MOST_POSES = 100_000
_TEXT, _ANGLE = Text(), Between(-FARTHEST, FARTHEST)
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


class _Loader(NamesLoader):
    names = ("remove", "track", "checkpoint", "name")


def read_edits(
    path: Path,
    scene: Scene,  # that is edited
    span: tuple[float, float] | None = None,  # seconds of the drive, if it is known
) -> Edits:
    """The edits of a file; ConfigError with one sentence for the first mistake."""
    value = read_yaml(path, REMEDY, _Loader)
    if not isinstance(value, dict) or not value:
        raise ConfigError(f"{path} must hold some of the keys {', '.join(SECTIONS)}; {REMEDY}")
    file = YamlFile(path, REMEDY)
    file.check_keys("", value, SECTIONS)
    open_scene = lru_cache(maxsize=1)(_scene_of)
    edits = Edits(
        removed=tuple(_name(file, f"remove[{i}]", one) for i, one in enumerate(file.list_of("remove", value))),
        moves=tuple(_each(file, value, "move", partial(_move, file))),
        trajectories=tuple(_each(file, value, "follow", partial(_follow, file))),
        copies=tuple(_each(file, value, "copy", partial(_copied, file, open_scene))),
    )
    check_edits(str(path), scene.tracks, edits)
    if span is not None:
        _check_times(file, edits, span, scene.tracks.margin)
    return edits


def check_edits(
    what: str,  # holds the edits; for messages
    tracks: Tracks,
    edits: Edits,
) -> None:
    """Raises ConfigError for a track that does not exist, is edited twice, or is the name of a copy."""
    names = edits.names()
    for name in names:
        if name != ALL_ACTORS or name not in edits.removed:
            track_number(tracks, name, what, (ALL_ACTORS,) if name in edits.removed else ())
    again = [name for name, count in Counter(names).items() if count > 1]
    if again:
        raise ConfigError(f"{what} edits track '{short(again[0])}' twice; keep one of the edits")
    kept = [name for name in names if name not in edits.removed]
    if ALL_ACTORS in edits.removed and len(names) > 1:
        other = kept[0] if kept else next(name for name in names if name != ALL_ACTORS)
        raise ConfigError(f"{what} removes all actors and edits '{short(other)}'; leave one of the edits out")
    known = list(tracks.ids)
    for copy in edits.copies:
        flaw = _copy_flaw(copy.name, known)
        if flaw:
            raise ConfigError(f"{what} names a copy '{short(copy.name)}', which {flaw}; choose another name")
        known.append(copy.name)


def _copy_flaw(name: str, known: Sequence[str]) -> str | None:
    """The reason why the name cannot be that of a track beside those; None if it can."""
    if name in known:
        return "is taken"
    if folded(name) in NODES:
        return "stands for several tracks, or for none"
    other = next((one for pair in clashes([*known, name]) for one in pair if one != name), None)
    return name_flaw(name) or (None if other is None else f"gives files the names of '{short(other)}'")


# ---- sections


def _move(file: YamlFile, at: str, given: Mapping[Any, Any]) -> tuple[str, Move]:
    file.check(at, given, _MOVE, ("track",))
    if len(given) == 1:
        raise ConfigError(f"{file}: {at} has no offset; give some of {', '.join([*_MOVE][1:])}")
    forward, left, up, degrees = (float(given.get(key, 0.0)) for key in ("forward_m", "left_m", "up_m", "yaw_deg"))
    return given["track"], Move(forward, left, up, math.radians(degrees))


def _follow(file: YamlFile, at: str, given: Mapping[Any, Any]) -> tuple[str, Trajectory]:
    file.check(at, given, _FOLLOW, ("track",), "poses")
    return given["track"], _trajectory(file, at, given)


def _copied(file: YamlFile, open_scene: Callable[[str], Scene], at: str, given: Mapping[Any, Any]) -> Copy:
    file.check(at, given, _COPY, ("name", "checkpoint", "track"), "poses")
    trajectory = _trajectory(file, at, given)
    source = open_scene(given["checkpoint"])
    track_number(source.tracks, given["track"], f"{file}: {at}.track of {given['checkpoint']}")
    copy = copy_of(source, given["track"], given["name"], trajectory)
    if not len(copy.actor):
        raise ConfigError(
            f"{file}: {at}.track is '{short(given['track'])}', which has no Gaussians in {given['checkpoint']}; choose another track"
        )
    return copy


def _scene_of(file: str) -> Scene:
    return scene_from_dict(load_checkpoint(Path(file).expanduser(), "cpu")["scene"])


def _trajectory(file: YamlFile, at: str, given: Mapping[Any, Any]) -> Trajectory:
    poses = file.list_of("poses", given, f"{at}.")
    if not 2 <= len(poses) <= MOST_POSES:
        raise ConfigError(
            f"{file}: {at}.poses has {len(poses)} pose{'s' * (len(poses) != 1)}, but takes 2 to {MOST_POSES}"
        )
    for i, pose in enumerate(poses):
        file.check(f"{at}.poses[{i}]", file.mapping(f"{at}.poses[{i}]", pose), _POSE, ("time_s", "x_m", "y_m", "z_m"))
    times = [float(pose["time_s"]) for pose in poses]
    for i in range(1, len(times)):
        if times[i] <= times[i - 1]:
            raise ConfigError(
                f"{file}: {at}.poses[{i}].time_s is {times[i]:g}, but must be after {times[i - 1]:g}, the time before it"
            )
    places = [[float(pose[key]) for key in ("x_m", "y_m", "z_m")] for pose in poses]
    turns = [
        turned(*(math.radians(pose.get(key, 0.0)) for key in ("yaw_deg", "pitch_deg", "roll_deg"))) for pose in poses
    ]
    doubles = [torch.tensor(values, dtype=torch.float64) for values in (times, places)]
    return Trajectory(doubles[0], doubles[1], matrix_to_quat(torch.stack(turns)[:, :3, :3]))


# ---- checks


def _check_times(
    file: YamlFile,
    edits: Edits,
    span: tuple[float, float],  # seconds of the drive
    margin: float,  # seconds that a trajectory is extended
) -> None:
    """Raises ConfigError for an actor that no moment of the drive would show: its times are probably those of another clock."""
    followed = [(f"follow[{i}]", "name the track under remove", one) for i, (_, one) in enumerate(edits.trajectories)]
    copied = [(f"copy[{i}]", "leave the copy out", one.trajectory) for i, one in enumerate(edits.copies)]
    for at, instead, trajectory in (*followed, *copied):
        first, last = float(trajectory.times[0]), float(trajectory.times[-1])
        if last + margin < span[0] or first - margin > span[1]:
            raise ConfigError(
                f"{file}: {at}.poses last from {first:g} to {last:g} s, but the drive from {span[0]:g} to {span[1]:g} s; give time_s in "
                f"seconds of the drive, or {instead}"
            )


def _each(
    file: YamlFile, value: Mapping[Any, Any], key: str, read: Callable[[str, Mapping[Any, Any]], Any]
) -> list[Any]:
    entries = file.list_of(key, value)
    return [read(f"{key}[{i}]", file.mapping(f"{key}[{i}]", one)) for i, one in enumerate(entries)]


def _name(file: YamlFile, at: str, value: Any) -> str:
    if not _TEXT.holds(value) or not value:
        raise ConfigError(f"{file}: {at} is {in_words(value)}, but must be the id of a track")
    return str(value)
