# SPDX-License-Identifier: Apache-2.0
"""Films an edited street: python scripts/edited_film.py runs/RUN --out docs/images

RUN is a run on the bundled capture. The edits are a YAML file as docs/editing.md has it, which is written next to the pictures: the
oncoming car is removed, the car ahead changes to the left lane, and a parked van drives in its place. edited.gif shows the recorded scene
above the edited one; edited_sweeps.png shows a sweep of each from above.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where `scripts` lies

import nurec_lite
from nurec_lite.api.scene import TrainedScene
from nurec_lite.base.errors import ConfigError
from nurec_lite.base.files import write_text
from nurec_lite.base.program import Parser, ends_with_a_sentence
from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.evaluation.pictures import enlarged, save_png
from nurec_lite.geometry.tracks import interpolate
from nurec_lite.output.films import save_animation
from scripts.readme_pictures import render

GONE, AHEAD, PARKED = "001", "000", "009"  # tracks of the bundled street
LANE_M = 3.3  # to the left lane
CHANGE_S = (1.0, 3.5)  # of the lane change of the car ahead
VISITOR_M = 9.0  # ahead of the vehicle, where the parked van drives
FPS = 4.0  # of the film


def edits(scene: TrainedScene, checkpoint: Path) -> dict[str, Any]:
    """The content of the file."""
    ids = scene.tracks.ids
    lacking = [name for name in (GONE, AHEAD, PARKED) if name not in ids]
    if lacking:
        raise ConfigError(
            f"{checkpoint} has no track {lacking[0]}; train on the bundled street: python -m nurec_lite.train"
        )
    times = torch.linspace(*scene.span, 21, dtype=torch.float64)
    visitor = {"name": "visitor", "checkpoint": str(checkpoint), "track": PARKED, "poses": _ahead(scene, times)}
    return {"remove": [GONE], "follow": [{"track": AHEAD, "poses": _changing(scene, times)}], "copy": [visitor]}


def _changing(scene: TrainedScene, times: torch.Tensor) -> list[dict[str, float]]:
    """Poses of the car ahead, which moves to the left lane smoothly."""
    k = scene.tracks.ids.index(AHEAD)
    places = interpolate(scene.tracks, times).translations[:, k]
    ways = torch.gradient(places, dim=0)[0]
    left = torch.stack([-ways[:, 1], ways[:, 0]], dim=1) / ways[:, :2].norm(dim=1, keepdim=True)
    share = ((times - CHANGE_S[0]) / (CHANGE_S[1] - CHANGE_S[0])).clamp(0, 1)
    moved = places.clone()
    moved[:, :2] += (LANE_M * share**2 * (3 - 2 * share))[:, None] * left
    return _poses(times, moved)


def _ahead(scene: TrainedScene, times: torch.Tensor) -> list[dict[str, float]]:
    """Poses of the parked van in front of the vehicle, on the road."""
    high = 0.5 * float(scene.tracks.sizes[scene.tracks.ids.index(PARKED), 2])
    rig = trajectory_of(scene.capture).at(times)  # [n, 4, 4]
    places = rig[:, :3, 3] + VISITOR_M * rig[:, :3, 0] + high * rig[:, :3, 2]
    return _poses(times, places + torch.tensor(scene.capture.origin, dtype=torch.float64))


def _poses(times: torch.Tensor, places: torch.Tensor) -> list[dict[str, float]]:
    """Entries of the file; each pose looks along the way."""
    ways = torch.gradient(places, dim=0)[0]
    yaws = torch.rad2deg(torch.atan2(ways[:, 1], ways[:, 0]))
    rows = torch.cat([times[:, None], places, yaws[:, None]], dim=1).tolist()
    names = ("time_s", "x_m", "y_m", "z_m", "yaw_deg")
    return [dict(zip(names, (round(value, 3) for value in row), strict=True)) for row in rows]


def draw(run: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    scene = nurec_lite.load(run)
    content = yaml.safe_dump(edits(scene, run / "checkpoint.pt"), sort_keys=False, default_flow_style=None, width=120)
    scene.close()
    file = out / "edits.yaml"
    write_text(file, content)
    asked = f"times={scene.span[0] + 0.2},{scene.span[1] - 0.2}", f"fps={FPS}", "sensors=camera_0,lidar"
    plain, changed = render(run, *asked), render(run, *asked, f"edits={file}")
    shown = sorted(name for name in plain if name.startswith("camera_0_t"))
    frames = [enlarged(np.concatenate([one[name] for one in (plain, changed)]), 2, 2) for name in shown]
    save_animation(out / "edited.gif", frames, fps=FPS)
    name = shown[len(shown) // 2].replace("camera_0_", "lidar_above_")
    save_png(out / "edited_sweeps.png", np.concatenate([plain[name], changed[name]], axis=1))


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("run", type=Path, help="folder of a run on the bundled capture")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for edited.gif, edited_sweeps.png and edits.yaml"
    )
    args = parser.parse_args()
    with ends_with_a_sentence():
        draw(args.run, args.out)


if __name__ == "__main__":
    main()
