# SPDX-License-Identifier: Apache-2.0
"""Keys of `export`, which the configuration joins with those of all commands."""

from dataclasses import dataclass


@dataclass
class ExportKeys:
    out: str = ""  # FILE.ply, FILE.compressed.ply, FILE.spz, FILE.pt or FILE.usdz; if not given, NODE.ply next to the checkpoint
    checkpoint: str = ""  # checkpoint of train: runs/NAME/checkpoint.pt
    formats: list[str] | None = (
        None  # ply, compressed, spz, gsplat, usdz, ground, surface; null: by the ending of out, or ply
    )
    node: str = "all"  # all, background, the id of a track, or each: a file a node, and their trajectories
    time: float | None = None  # seconds; null: mid-drive for all, an actor alone in its own frame
    edits: str | None = None  # YAML file of edits, as for render (docs/editing.md)
    up: str | None = None  # axis that points up: z, y, or -y for SuperSplat; null: y of spz, z of all others
    normals: bool = False  # adds nx ny nz, all 0, to ply, for readers of a fixed layout
    rig: bool = True  # adds cameras and lidars to usdz; this reads the capture
    cell: float = 0.2  # metres between vertices of surface; of ground twice as many
