# SPDX-License-Identifier: Apache-2.0
"""python -m nurec_lite.export: the Gaussians of a checkpoint as a PLY file, for viewers and editors of 3D Gaussian splats."""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import math
import re
from collections.abc import Collection
from pathlib import Path

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.files import written
from nurec_lite.base.folders import check_file
from nurec_lite.base.names import name_flaw
from nurec_lite.cli.command import command, load_run
from nurec_lite.config import ExportConfig
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.output.edit_file import read_edits
from nurec_lite.output.flatten import PlainGaussians, in_own_frame, in_world, nodes_at, without_broken
from nurec_lite.output.ply import is_export, ply_bytes
from nurec_lite.scene.edit import Edits, edited, removed_tracks
from nurec_lite.scene.gaussians import BACKGROUND
from nurec_lite.scene.scene import Scene
from nurec_lite.training.checkpoint import scene_from_dict

HELP = """
Writes the Gaussians of a checkpoint as a PLY file that viewers and editors of 3D Gaussian splats read. The capture is not needed.

  python -m nurec_lite.export checkpoint=runs/mine/checkpoint.pt                      all, as they stand in mid-drive
  python -m nurec_lite.export checkpoint=runs/mine/checkpoint.pt time=1.5 out=at.ply  all, as they stand at 1.5 s
  python -m nurec_lite.export checkpoint=runs/mine/checkpoint.pt node=background      without the actors
  python -m nurec_lite.export checkpoint=runs/mine/checkpoint.pt node=003             one actor, about the centre of its box
  python -m nurec_lite.export checkpoint=runs/mine/checkpoint.pt node=003 time=1.5    one actor, where it stands at 1.5 s
  python -m nurec_lite.export checkpoint=runs/mine/checkpoint.pt edits=edits.yaml     actors edited by a file (docs/editing.md)

Metres, z up; an actor in its own frame looks along x. Colours that depend on the direction turn with the actors. The file holds one
moment: motion stays behind, and so does what PLY has no place for: the sky, the exposure of each camera (colours are those of the
scene before gain and offset), the intensity and ray drop of lidars.
"""
SHOWN_IDS = 8  # of the tracks, where a message lists them


def run(config: ExportConfig, scene: Scene) -> str:
    """Writes the file; returns what the user reads."""
    edits = Edits() if config.edits is None else read_edits(Path(config.edits).expanduser(), scene)
    removed = {k + 1 for k in removed_tracks(scene.tracks, edits.removed)}
    scene = edited(scene, edits)
    gaussians, what = _chosen(config, scene, removed)
    path = _path(config)
    check_file(path, is_export)
    kept = without_broken(gaussians)
    own = config.node not in ("all", "background") and config.time is None  # about the centre of its box
    origin = (0.0, 0.0, 0.0) if own else scene.origin
    data = ply_bytes(kept, origin)
    with written(path) as file:
        file.write(data)
    lines = [f"{path}: {len(kept)} Gaussians, {len(data)} bytes; {what}"]
    if any(origin):
        lines.append(
            f"origin: add {', '.join(f'{metres:.3f}' for metres in origin)} m for the world of the capture, as a comment tells"
        )
    if len(kept) < len(gaussians):
        broken = len(gaussians) - len(kept)
        lines.append(f"left out: {broken} Gaussians with values that are not finite, or a rotation of length zero")
    return "\n".join(lines)


def _path(config: ExportConfig) -> Path:
    """`out`, or the node's name; of one that is no name, as a scene from Python may have, the characters that are fit for a file."""
    if config.out:
        if Path(config.out).suffix.lower() != ".ply":
            raise ConfigError(f"out={config.out}, but must name a file that ends in .ply")
        return Path(config.out)
    name = "scene" if config.node == "all" else config.node
    if name_flaw(name):
        name = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII).lstrip(".")[:100]
    moment = "" if config.time is None else f"-t{config.time:08.3f}"
    edits = "" if config.edits is None else "-" + re.sub(r"[^\w.-]", "_", Path(config.edits).stem, flags=re.ASCII)[:100]
    return Path(config.checkpoint).parent / f"{name or 'node'}{moment}{edits}.ply"


def _chosen(
    config: ExportConfig,
    scene: Scene,
    removed: Collection[int],  # nodes
) -> tuple[PlainGaussians, str]:
    """The Gaussians, and in words what they are."""
    if config.time is not None and not math.isfinite(config.time):
        raise ConfigError(f"time={config.time}, but must be a number of seconds")
    if config.node == "background" or (config.node == "all" and len(scene.tracks) == 0):
        return in_own_frame(scene, BACKGROUND), "the background"
    if config.node == "all":
        time = _mid_drive(scene.tracks) if config.time is None else config.time
        nodes = [node for node in nodes_at(scene, time) if node not in removed]
        what = f"the background and {len(nodes) - 1} of {len(scene.tracks) - len(removed)} actors at {time:.3f} s"
        return in_world(scene, nodes, time), what
    node = _actor(scene.tracks, config.node)
    if node in removed:
        raise ConfigError(f"node={config.node} is removed by {config.edits}; choose another node, or keep the actor")
    if config.time is None:
        return in_own_frame(scene, node), f"actor {config.node} in its own frame"
    _check_exists(scene, node, config.time)
    return in_world(scene, [node], config.time), f"actor {config.node} in the world at {config.time:.3f} s"


def _mid_drive(tracks: Tracks) -> float:
    """Seconds, as far as the keyframes tell."""
    return 0.5 * float(tracks.times.min() + tracks.times.max())


def _actor(tracks: Tracks, name: str) -> int:
    if name in tracks.ids:
        return tracks.ids.index(name) + 1
    shown = ", ".join(tracks.ids[:SHOWN_IDS]) + (", ..." if len(tracks) > SHOWN_IDS else "")
    if len(tracks) == 0:
        raise ConfigError(f"node={name} is unknown; use all or background: there are no tracks")
    raise ConfigError(f"node={name} is unknown; use all, background or the id of one of {len(tracks)} tracks ({shown})")


def _check_exists(scene: Scene, node: int, time: float) -> None:
    tracks = scene.tracks
    if node not in nodes_at(scene, time):
        times = tracks.times[tracks.offsets[node - 1] : tracks.offsets[node]]
        first, last = float(times[0]) - tracks.margin, float(times[-1]) + tracks.margin
        raise ConfigError(
            f"actor {tracks.ids[node - 1]} exists from {first:.3f} s to {last:.3f} s, but time={time}; choose a time in "
            "between, or none for the actor in its own frame"
        )


def main(arguments: list[str]) -> None:
    config, content = load_run("export", arguments)
    print(run(config, scene_from_dict(content["scene"])))


if __name__ == "__main__":
    command("export", HELP, main)
