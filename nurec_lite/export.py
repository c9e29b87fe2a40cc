# SPDX-License-Identifier: Apache-2.0
"""python -m nurec_lite.export: the scene of a checkpoint as files of other programs: PLY, SPZ, USD and meshes."""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nurec_lite.base.errors import ConfigError, UserError
from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.capture.types import Capture
from nurec_lite.cli.arguments import check_files
from nurec_lite.cli.command import command, load_run
from nurec_lite.cli.reconstruction import opened
from nurec_lite.config import ExportConfig
from nurec_lite.output.edit_file import read_edits
from nurec_lite.output.interchange.choice import Choice, check_choice, is_actor
from nurec_lite.output.interchange.keys import check_keys
from nurec_lite.output.interchange.mesh_files import check_meshes, made_meshes, write_meshes
from nurec_lite.output.interchange.names import MESHES, SPLATS, USDZ, Files, files_of
from nurec_lite.output.interchange.splat_files import Layout, check_layout, write_splats
from nurec_lite.output.interchange.usd_files import check_usd, write_usd
from nurec_lite.output.surface.mesh import Mesh
from nurec_lite.readers import open_capture
from nurec_lite.scene.edit import Edits, edited, removed_tracks
from nurec_lite.scene.scene import Scene
from nurec_lite.training.capture_record import digest_from
from nurec_lite.training.checkpoint import scene_from_dict
from nurec_lite.training.known_capture import check_known_capture, known_of
from nurec_lite.training.stages import Stages

HELP = """
Writes the scene of a checkpoint as files of other programs (docs/export.md). Below, FILE is a checkpoint of train.

  python -m nurec_lite.export checkpoint=FILE                      PLY of all Gaussians, as they stand in mid-drive
  python -m nurec_lite.export checkpoint=FILE time=1.5 up=-y       the same at 1.5 s, upright in SuperSplat
  python -m nurec_lite.export checkpoint=FILE formats=compressed,spz    SuperSplat's compressed PLY, and SPZ
  python -m nurec_lite.export checkpoint=FILE formats=gsplat       scene.pt for gsplat's viewer: simple_viewer.py --ckpt scene.pt
  python -m nurec_lite.export checkpoint=FILE node=background      without the actors
  python -m nurec_lite.export checkpoint=FILE node=003             one actor, about the centre of its box
  python -m nurec_lite.export checkpoint=FILE node=each            a file a node, and JSON of the actors' trajectories
  python -m nurec_lite.export checkpoint=FILE formats=usdz         USD: actors on their tracks, sky, cameras and lidars
  python -m nurec_lite.export checkpoint=FILE formats=ground,surface    meshes of the road and of all that stands still
  python -m nurec_lite.export checkpoint=FILE edits=edits.yaml     actors edited by a file (docs/editing.md)

Metres, z up unless the format or `up` says otherwise; an actor in its own frame looks along x. Each file says in a comment what it
lacks of the rendered scene: the exposure of each camera, and what lidars measure; files of Gaussians alone also the sky and motion.
"""


@dataclass(frozen=True)
class Drive:
    """The recording that a scene was learned from, and the renderer of the scene."""

    capture: Capture
    stages: Stages | None = None  # None: nothing is rendered


def run(
    config: ExportConfig,
    scene: Scene,
    drive: Drive | None = None,  # for the cameras and lidars of USD; with stages, for meshes
    span: tuple[float, float] | None = None,  # seconds of the drive, if they are known
) -> str:
    """Writes the files; returns the lines for the user."""
    files, layout = files_of(config), Layout(config.up, config.normals)
    check_layout(layout)
    check_keys(config, files)
    span = span if drive is None else trajectory_of(drive.capture).span
    edits = Edits() if config.edits is None else read_edits(Path(config.edits), scene, span)
    removed = {k + 1 for k in removed_tracks(scene.tracks, edits.removed)}
    choice, scene = Choice(config.node, config.time, config.edits, removed, span), edited(scene, edits)
    check_choice(scene, choice)
    check_meshes(files)
    if USDZ in files.formats:
        check_usd(choice, files)
    meshes = _meshes(config, scene, drive, files)  # before any file: a scene may have none
    lines = write_splats(scene, choice, layout, files) if files.any_of(SPLATS) else []
    lines += write_meshes(scene, meshes, files, config.up or "z")
    if USDZ in files.formats:
        lines += write_usd(scene, choice, files, drive.capture if drive is not None and config.rig else None, meshes)
    return "\n".join(lines)


def _meshes(config: ExportConfig, scene: Scene, drive: Drive | None, files: Files) -> dict[str, Mesh]:
    if not files.any_of(MESHES):
        return {}
    assert drive is not None and drive.stages is not None
    return made_meshes(drive.stages, scene, drive.capture, files, config.cell)


def main(arguments: list[str]) -> None:
    config, content = load_run("export", arguments)
    scene, drive = scene_from_dict(content["scene"]), None
    files = files_of(config)
    check_keys(config, files)
    if files.any_of(MESHES):
        scene, drive = _rendered(config, content, arguments)
    elif USDZ in files.formats and config.rig and not is_actor(config.node):
        drive = Drive(_capture(config, content, scene, arguments))
    print(run(config, scene, drive, _span(content)))


def _span(content: dict[str, Any]) -> tuple[float, float] | None:
    """Seconds of the frames that the scene was trained on; None: an older version wrote the checkpoint."""
    frames = digest_from(content["capture"]).frames.values() if "capture" in content else ()
    times = [float(t) for one in frames if len(one.times) for t in one.times.aminmax()]
    return (min(times), max(times)) if times else None


def _rendered(config: ExportConfig, content: dict[str, Any], arguments: list[str]) -> tuple[Scene, Drive]:
    """The scene on its device, and its renderer."""
    check_files(Path(config.checkpoint), config.data, arguments)
    found = opened(config, content, arguments)
    return found.scene, Drive(found.capture, found.stages)


def _capture(config: ExportConfig, content: dict[str, Any], scene: Scene, arguments: list[str]) -> Capture:
    path = Path(config.checkpoint)
    try:
        check_files(path, config.data, arguments)
        capture = open_capture(config.data, scene.origin, known_of(content))
        check_known_capture(path, content, capture, config.data)
    except UserError as error:
        raise ConfigError(
            f"usdz takes cameras and lidars from the capture: {error}; or leave them out by rig=false"
        ) from error
    return capture


if __name__ == "__main__":
    command("export", HELP, main)
