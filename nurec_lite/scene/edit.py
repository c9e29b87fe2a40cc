# SPDX-License-Identifier: Apache-2.0
"""Scenes with actors taken away or moved. A new scene each time; what does not change is shared with the old one."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from nurec_lite.base.errors import ConfigError
from nurec_lite.geometry.se3 import quat_multiply, quat_normalize, quat_rotate
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.scene.scene import Scene

ALL_ACTORS = "actors"
MOVE_FORM = "ID:FORWARD:LEFT:UP:TURN in metres and degrees, as in move=000:0:1.5:0:90"
FARTHEST = 1e6  # metres or degrees, of a move
_LISTED = 20  # ids that an error names at most


@dataclass(frozen=True)
class Move:
    """A shift of an actor along its own axes, at each time."""

    forward: float  # metres
    left: float  # metres
    up: float  # metres
    turn: float  # radians to the left about its upward axis, through the centre of its box


def parse_move(
    text: str,  # ID:FORWARD:LEFT:UP:TURN
) -> tuple[str, Move]:  # id of the track
    """Fields stand behind the last four colons, so that an id may hold colons itself."""
    name, *fields = text.rsplit(":", 4)
    try:
        forward, left, up, degrees = (float(field) for field in fields)
    except ValueError:
        raise ConfigError(f"move holds '{text}', but takes {MOVE_FORM}") from None
    if not all(abs(number) <= FARTHEST for number in (forward, left, up, degrees)):  # which NaN is not
        raise ConfigError(f"move holds '{text}', but takes finite numbers within +-{FARTHEST:g}: {MOVE_FORM}")
    return name.strip(), Move(forward, left, up, math.radians(degrees))


def track_number(
    tracks: Tracks,
    name: str,
    key: str,  # of the configuration, which the error names
) -> int:
    if name in tracks.ids:
        return tracks.ids.index(name)
    if not tracks.ids:
        raise ConfigError(f"{key} names '{name}', but this capture has no tracks of actors; leave {key} out")
    more = f" and {len(tracks) - _LISTED} more" if len(tracks) > _LISTED else ""
    raise ConfigError(f"{key} names '{name}', but the ids of the tracks are {', '.join(tracks.ids[:_LISTED])}{more}")


def removed_tracks(
    tracks: Tracks,
    names: Sequence[str],  # ids; `actors`: all of them
) -> list[int]:  # numbers of the tracks
    numbers = [track_number(tracks, name, "remove") for name in names if name != ALL_ACTORS]
    return list(range(len(tracks))) if ALL_ACTORS in names else numbers


def without_actors(
    scene: Scene,
    names: Sequence[str],  # ids of tracks; `actors`: all of them
) -> Scene:
    """Their Gaussians are gone; their tracks stay, so that nodes and checkpoints keep their numbers."""
    tracks = removed_tracks(scene.tracks, names)
    if not tracks:
        return scene
    g = scene.gaussians
    kept = ~torch.isin(g.node, torch.tensor(tracks, device=g.node.device) + 1)
    return replace(scene, gaussians=Gaussians(*(getattr(g, f)[kept] for f in Gaussians.__dataclass_fields__)))


def with_moved_actors(
    scene: Scene,
    moves: Iterable[tuple[str, Move]],  # ids of tracks
) -> Scene:
    """Every keyframe of the tracks is moved in the object's frame: T_world_object becomes T_world_object T_move. Gaussians, and the
    axes of their colours, follow at rendering."""
    t, q = scene.track_translations.detach().clone(), scene.track_quaternions.detach().clone()
    for name, move in moves:
        k = track_number(scene.tracks, name, "move")
        rows = slice(scene.tracks.offsets[k], scene.tracks.offsets[k + 1])
        offset = t.new_tensor([move.forward, move.left, move.up])
        turn = q.new_tensor([math.cos(move.turn / 2), 0, 0, math.sin(move.turn / 2)])
        t[rows] = t[rows] + quat_rotate(quat_normalize(q[rows]), offset)
        q[rows] = quat_multiply(q[rows], turn)
    return replace(scene, track_translations=t, track_quaternions=q)
