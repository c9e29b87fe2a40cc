# SPDX-License-Identifier: Apache-2.0
"""Scenes with actors removed, moved, on other trajectories or copied from another scene. Each edit gives a new scene, which shares
unchanged tensors with the old one."""

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from nurec_lite.base.errors import ConfigError
from nurec_lite.geometry.se3 import quat_multiply, quat_normalize, quat_rotate
from nurec_lite.geometry.tracks import Tracks, joined
from nurec_lite.scene.gaussians import LIDAR_VALUES, Gaussians
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


@dataclass(frozen=True)
class Trajectory:
    """Poses of an actor's box centre over time, interpolated between."""

    times: Tensor  # [n] float64 seconds, ascending
    translations: Tensor  # [n, 3] float64 metres, in the world of the capture's files
    quaternions: Tensor  # [n, 4] world from object


@dataclass(frozen=True)
class Copy:
    """An actor of any scene, and the trajectory of its copy."""

    name: str  # id of the new track
    actor: Gaussians  # about the centre of its box
    track: Tracks  # the one track of the source, for its class and size
    trajectory: Trajectory


@dataclass(frozen=True)
class Edits:
    """All edits of a scene. Moves of one actor follow each other; `removed` names actors of the scene, not copies."""

    removed: tuple[str, ...] = ()  # ids; `actors`: all of them
    moves: tuple[tuple[str, Move], ...] = ()
    trajectories: tuple[tuple[str, Trajectory], ...] = ()
    copies: tuple[Copy, ...] = ()

    def names(self) -> tuple[str, ...]:
        """Ids of the edited tracks of the scene; one is repeated if it is edited again."""
        return (*self.removed, *(name for name, _ in self.moves), *(name for name, _ in self.trajectories))


@torch.no_grad()
def edited(scene: Scene, edits: Edits) -> Scene:
    """The scene after all edits."""
    scene = with_moved_actors(without_actors(scene, edits.removed), edits.moves)
    for name, trajectory in edits.trajectories:
        scene = with_trajectory(scene, name, trajectory)
    for copy in edits.copies:
        scene = with_copy(scene, copy)
    return scene


def parse_move(
    text: str,  # ID:FORWARD:LEFT:UP:TURN
) -> tuple[str, Move]:  # id of the track
    """Parses a move. Its fields stand after the last four colons, so that an id may hold colons; ConfigError for another form."""
    name, *fields = text.rsplit(":", 4)
    try:
        forward, left, up, degrees = (float(field) for field in fields)
    except ValueError:
        raise ConfigError(f"move holds '{text}', but takes {MOVE_FORM}") from None
    if not all(abs(number) <= FARTHEST for number in (forward, left, up, degrees)):  # NaN fails as well
        raise ConfigError(f"move holds '{text}', but takes finite numbers within +-{FARTHEST:g}: {MOVE_FORM}")
    return name.strip(), Move(forward, left, up, math.radians(degrees))


def track_number(
    tracks: Tracks,
    name: str,
    key: str,  # of the configuration, which the error names
    others: Sequence[str] = (),  # words that the key takes, too
) -> int:
    if name in tracks.ids:
        return tracks.ids.index(name)
    if not tracks.ids:
        raise ConfigError(f"{key} names '{name}', but this capture has no tracks of actors; leave {key} out")
    more = f" and {len(tracks) - _LISTED} more" if len(tracks) > _LISTED else ""
    near = difflib.get_close_matches(str(name), [*tracks.ids, *others], 1)
    asked = f"; did you mean {near[0]}?" if near else ""
    raise ConfigError(
        f"{key} names '{name}', but the ids of the tracks are {', '.join(tracks.ids[:_LISTED])}{more}{asked}"
    )


def removed_tracks(
    tracks: Tracks,
    names: Sequence[str],  # ids; `actors`: all of them
) -> list[int]:  # numbers of the tracks
    numbers = [track_number(tracks, name, "remove", (ALL_ACTORS,)) for name in names if name != ALL_ACTORS]
    return list(range(len(tracks))) if ALL_ACTORS in names else numbers


def without_actors(
    scene: Scene,
    names: Sequence[str],  # ids of tracks; `actors`: all of them
) -> Scene:
    """Removes Gaussians of actors. Their tracks stay, so that nodes and checkpoints keep their numbers."""
    tracks = removed_tracks(scene.tracks, names)
    if not tracks:
        return scene
    g = scene.gaussians
    kept = ~torch.isin(g.node, torch.tensor(tracks, device=g.node.device) + 1)
    return replace(scene, gaussians=_subset(g, kept))


def with_moved_actors(
    scene: Scene,
    moves: Iterable[tuple[str, Move]],  # ids of tracks
) -> Scene:
    """Moves every keyframe of the tracks in the object's frame: T_world_object becomes T_world_object T_move. Gaussians, and the
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


def with_trajectory(scene: Scene, name: str, trajectory: Trajectory) -> Scene:
    """Puts an actor on a trajectory instead of its own track; it exists from the first to the last time of it."""
    k, learned = track_number(scene.tracks, name, "trajectory"), scene.learned_tracks()
    parts = [learned.select([i]) for i in range(len(learned))]
    parts[k] = _on(scene, parts[k], trajectory)
    return _with_tracks(scene, joined(parts, learned.margin))


def copy_of(
    source: Scene,
    track: str,  # id in the source
    name: str,
    trajectory: Trajectory,
) -> Copy:
    k = track_number(source.tracks, track, "copy")
    return Copy(name, _subset(source.gaussians, source.gaussians.node == k + 1), source.tracks.select([k]), trajectory)


def with_copy(scene: Scene, copy: Copy) -> Scene:
    """Adds a copy of an actor as the last track. Missing bands of colour are zero, and a missing lidar opacity is that of cameras, in
    either scene."""
    learned = scene.learned_tracks()
    part = _on(scene, replace(copy.track, ids=(copy.name,)), copy.trajectory)
    actor = replace(copy.actor, node=torch.full_like(copy.actor.node, len(learned) + 1))
    bands = max(scene.gaussians.sh_rest.shape[1], actor.sh_rest.shape[1])
    columns = max(scene.gaussians.lidar_logits.shape[1], actor.lidar_logits.shape[1])
    both = [_widened(g, bands, columns) for g in (scene.gaussians, actor)]
    joint = {f.name: torch.cat([getattr(g, f.name).to(scene.sky.device) for g in both]) for f in fields(Gaussians)}
    return _with_tracks(replace(scene, gaussians=Gaussians(**joint)), joined([learned, part], learned.margin))


def _on(scene: Scene, track: Tracks, trajectory: Trajectory) -> Tracks:
    """One track with the keyframes of the trajectory, about the scene's origin, where the scene's tensors are."""
    places = trajectory.translations - trajectory.translations.new_tensor(scene.origin)
    moved = replace(
        track, offsets=(0, len(places)), times=trajectory.times, translations=places, quaternions=trajectory.quaternions
    )
    return moved.to(scene.track_translations.device, scene.track_translations.dtype)


def _with_tracks(scene: Scene, tracks: Tracks) -> Scene:
    t, q = tracks.translations.detach(), tracks.quaternions.detach()
    return replace(scene, tracks=tracks, track_translations=t, track_quaternions=q)


def _widened(g: Gaussians, bands: int, columns: int) -> Gaussians:
    """Gaussians with as many higher bands of colour and lidar values as given."""
    zeros = g.sh_rest.new_zeros(len(g), bands - g.sh_rest.shape[1], 3)
    lidar = [g.lidar_logits] if g.lidar_logits.shape[1] == columns else [g.lidar_logits, g.opacity_logits[:, None]]
    assert columns <= LIDAR_VALUES + 1
    return replace(g, sh_rest=torch.cat([g.sh_rest, zeros], dim=1), lidar_logits=torch.cat(lidar, dim=1))


def _subset(g: Gaussians, kept: Tensor) -> Gaussians:
    return Gaussians(**{f.name: getattr(g, f.name)[kept] for f in fields(Gaussians)})
