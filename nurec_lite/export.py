# SPDX-License-Identifier: Apache-2.0
"""python -m nurec_lite.export: the scene of a checkpoint as files of other programs: PLY and SPZ."""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
from pathlib import Path

from nurec_lite.cli.command import command, load_run
from nurec_lite.config import ExportConfig
from nurec_lite.output.edit_file import read_edits
from nurec_lite.output.interchange.choice import Choice, check_choice
from nurec_lite.output.interchange.names import files_of
from nurec_lite.output.interchange.splat_files import Layout, check_layout, write_splats
from nurec_lite.scene.edit import Edits, edited, removed_tracks
from nurec_lite.scene.scene import Scene
from nurec_lite.training.checkpoint import scene_from_dict

HELP = """
Writes the scene of a checkpoint as files of other programs. Below, FILE is what train wrote.

  python -m nurec_lite.export checkpoint=FILE                      PLY of all Gaussians, as they stand in mid-drive
  python -m nurec_lite.export checkpoint=FILE time=1.5 up=-y       the same at 1.5 s, upright in SuperSplat
  python -m nurec_lite.export checkpoint=FILE formats=compressed,spz    SuperSplat's compressed PLY, and SPZ
  python -m nurec_lite.export checkpoint=FILE node=background      without the actors
  python -m nurec_lite.export checkpoint=FILE node=003             one actor, about the centre of its box
  python -m nurec_lite.export checkpoint=FILE node=each            a file a node, and JSON of the actors' trajectories
  python -m nurec_lite.export checkpoint=FILE edits=edits.yaml     actors edited by a file (docs/editing.md)

Metres, z up unless the format or `up` says otherwise; an actor in its own frame looks along x. Each file says in a comment what it
lacks beside the rendered scene: the exposure of each camera, and what lidars measure; files of Gaussians alone also the sky and motion.
"""


def run(config: ExportConfig, scene: Scene) -> str:
    """Writes the files; returns what the user reads."""
    files, layout = files_of(config), Layout(config.up, config.normals)
    check_layout(layout)
    edits = Edits() if config.edits is None else read_edits(Path(config.edits).expanduser(), scene)
    removed = {k + 1 for k in removed_tracks(scene.tracks, edits.removed)}
    choice, scene = Choice(config.node, config.time, config.edits, removed), edited(scene, edits)
    check_choice(scene, choice)
    lines = write_splats(scene, choice, layout, files)
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    config, content = load_run("export", arguments)
    print(run(config, scene_from_dict(content["scene"])))


if __name__ == "__main__":
    command("export", HELP, main)
