# SPDX-License-Identifier: Apache-2.0
"""The part of a scene that an export holds: all nodes at a time, the background, one actor, or each node by itself."""

import math
from collections.abc import Collection
from dataclasses import dataclass

from nurec_lite.base.errors import ConfigError
from nurec_lite.capture.types import Origin
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.output.interchange.flatten import PlainGaussians, in_own_frame, in_world, nodes_at
from nurec_lite.scene.gaussians import BACKGROUND
from nurec_lite.scene.scene import Scene

ALL, STATIC, EACH = "all", "background", "each"
BEYOND_S = 0.5  # seconds beyond the drive that a time may lie: its frames have a length, and clocks of sensors differ
SHOWN_IDS = 8  # of the tracks, where a message lists them


@dataclass(frozen=True)
class Part:
    """Gaussians of one file."""

    gaussians: PlainGaussians
    what: str  # in words
    origin: Origin  # zero for an actor about the centre of its box
    node: int | None = None  # of each node by itself
    still: bool = True  # whether motion is left out


@dataclass(frozen=True)
class Choice:
    """Values of the keys `node`, `time` and `edits`."""

    node: str
    time: float | None
    edits: str | None
    removed: Collection[int]  # nodes that the edits remove
    span: tuple[float, float] | None = None  # seconds of the drive; None: those of the keyframes


def check_choice(scene: Scene, choice: Choice) -> None:
    """Raises ConfigError if the scene has no such part."""
    if choice.time is not None and not math.isfinite(choice.time):
        raise ConfigError(f"time={choice.time}, but must be a number of seconds")
    if choice.time is not None and choice.span is not None:
        first, last = choice.span
        if not first - BEYOND_S <= choice.time <= last + BEYOND_S:
            raise ConfigError(
                f"time={choice.time:g}, but the drive spans {first:z.3f} to {last:z.3f} s; choose a time within it"
            )
    if choice.node == EACH and choice.time is not None:
        raise ConfigError("node=each writes every actor in its own frame, at no time; leave time out, or use node=all")
    if not is_actor(choice.node):
        return
    node = actor(scene.tracks, choice.node)
    if node in choice.removed:
        raise ConfigError(f"node={choice.node} is removed by {choice.edits}; choose another node, or keep the actor")
    if choice.time is not None:
        _check_exists(scene, node, choice.time)


def is_actor(node: str) -> bool:
    """Whether the key `node` names one actor."""
    return node not in (ALL, STATIC, EACH)


def parts_of(scene: Scene, choice: Choice) -> list[Part]:
    """The parts that a choice names: one, or for node=each one a node."""
    if choice.node == EACH:
        nodes = [k + 1 for k in range(len(scene.tracks)) if k + 1 not in choice.removed]
        return [_background(scene), *(_own(scene, node) for node in nodes)]
    if choice.node == STATIC or (choice.node == ALL and len(scene.tracks) == 0):
        return [_background(scene)]
    if choice.node == ALL:
        return [_everything(scene, choice)]
    node = actor(scene.tracks, choice.node)
    if choice.time is None:
        return [_own(scene, node)]
    what = f"actor {choice.node} in the world at {choice.time:.3f} s"
    return [Part(in_world(scene, [node], choice.time), what, scene.origin)]


def actor(tracks: Tracks, name: str) -> int:
    """The node of an actor, by its id; ConfigError if there is none."""
    if name in tracks.ids:
        return tracks.ids.index(name) + 1
    shown = ", ".join(tracks.ids[:SHOWN_IDS]) + (", ..." if len(tracks) > SHOWN_IDS else "")
    if len(tracks) == 0:
        raise ConfigError(f"node={name} is unknown; use all or background: there are no tracks")
    raise ConfigError(
        f"node={name} is unknown; use all, background or the id of one of {len(tracks)} tracks ({shown}), or each for a file a node"
    )


def _background(scene: Scene) -> Part:
    return Part(in_own_frame(scene, BACKGROUND), "the background", scene.origin, BACKGROUND, still=False)


def _own(scene: Scene, node: int) -> Part:
    what = f"actor {scene.tracks.ids[node - 1]} in its own frame"
    return Part(in_own_frame(scene, node), what, (0.0, 0.0, 0.0), node, still=False)


def _everything(scene: Scene, choice: Choice) -> Part:
    time = _mid_drive(scene.tracks, choice.span) if choice.time is None else choice.time
    nodes = [node for node in nodes_at(scene, time) if node not in choice.removed]
    count = len(scene.tracks) - len(choice.removed)
    what = f"the background and {len(nodes) - 1} of {count} actors at {time:.3f} s"
    return Part(in_world(scene, nodes, time), what, scene.origin)


def _mid_drive(tracks: Tracks, span: tuple[float, float] | None) -> float:  # seconds
    first, last = (float(tracks.times.min()), float(tracks.times.max())) if span is None else span
    return 0.5 * (first + last)


def _check_exists(scene: Scene, node: int, time: float) -> None:
    tracks = scene.tracks
    if node not in nodes_at(scene, time):
        times = tracks.times[tracks.offsets[node - 1] : tracks.offsets[node]]
        first, last = float(times[0]) - tracks.margin, float(times[-1]) + tracks.margin
        raise ConfigError(
            f"actor {tracks.ids[node - 1]} exists from {first:z.3f} s to {last:z.3f} s, but time={time}; choose a time in "
            "between, or none for the actor in its own frame"
        )
