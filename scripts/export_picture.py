# SPDX-License-Identifier: Apache-2.0
"""Draws a view as rendered, next to that of its exported PLY: python scripts/export_picture.py runs/RUN --out docs/images/export.png"""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from nurec_lite.base.program import Parser, ends_with_a_sentence
from nurec_lite.config import DataConfig, ExportConfig
from nurec_lite.evaluation.measure import image_of
from nurec_lite.evaluation.pictures import enlarged, save_png, to_picture
from nurec_lite.export import run as export
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.readers import open_capture
from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.scene.scene import Scene
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.checkpoint import load_checkpoint, scene_from_dict

BLACK = -100.0  # logit of a sky without light


def opened(path: Path, like: Scene) -> Scene:
    """The scene that a viewer has of a PLY: Gaussians, and nothing else."""
    header, _, body = path.read_bytes().partition(b"end_header\n")
    names = [line.split()[2].decode() for line in header.splitlines() if line.startswith(b"property")]
    table = torch.from_numpy(np.frombuffer(body, "<f4").reshape(-1, len(names)).copy())
    column = {name: table[:, i] for i, name in enumerate(names)}

    def columns(*prefixes: str) -> torch.Tensor:
        return torch.stack([value for name, value in column.items() if name.startswith(prefixes)], dim=1)

    rest = columns("f_rest").unflatten(1, (3, -1)).transpose(1, 2)
    opacities, zeros = column["opacity"], torch.zeros(len(table), 2)
    means, sh0 = torch.stack([column[axis] for axis in "xyz"], dim=1), columns("f_dc")[:, None]
    node = torch.zeros(len(table), dtype=torch.int64)
    gaussians = Gaussians(means, columns("rot"), columns("scale"), opacities, sh0, rest, zeros, node)
    bare = replace(
        like, gaussians=gaussians, sky=torch.full((3, 2, 4), BLACK), exposure=torch.zeros_like(like.exposure)
    )
    none = {"track_translations": torch.zeros(0, 3), "track_quaternions": torch.zeros(0, 4), "calibration": None}
    return replace(bare, tracks=Tracks.empty().to("cpu"), **none)


@torch.no_grad()
def draw(run: Path, out: Path) -> None:
    scene = scene_from_dict(load_checkpoint(run / "checkpoint.pt", "cpu")["scene"])
    capture, stages = open_capture(DataConfig()), reference_stages()
    frame = capture.images[len(capture.images) // 2]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scene.ply"
        print(export(ExportConfig(checkpoint="checkpoint.pt", out=str(path), time=frame.time_mid), scene))
        exported = opened(path, scene)
    pictures = [to_picture(image_of(stages, one, capture, frame)) for one in (scene, exported)]
    save_png(out, enlarged(np.concatenate(pictures, axis=1), 2, 2))


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("run", type=Path, help="folder of a run on the bundled capture")
    parser.add_argument("--out", type=Path, required=True, help="the picture")
    args = parser.parse_args()
    with ends_with_a_sentence():
        draw(args.run, args.out)


if __name__ == "__main__":
    main()
