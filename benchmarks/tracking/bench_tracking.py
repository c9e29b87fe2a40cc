# SPDX-License-Identifier: Apache-2.0
"""Quality of moving objects found in sweeps alone, against true tracks.

    python benchmarks/tracking/bench_tracking.py --street --seeds 1 2 3 4 5 --out benchmarks/results/NAME.json
    python benchmarks/tracking/bench_tracking.py --drive FOLDER --pandaset

Compares the tracks of `data.tracks.source=lidar` with the labels of a drive. A box counts if it holds enough returns (20; PandaSet 30;
the simulated street 10) more than 0.2 m above its lower face. It is found if the centre of a box lies within a metre,
seen from above; yaws are compared where one does. KITTI labels objects that camera 2 sees, so its precision says nothing. --drive takes the
folder of drive 0009 with `extra/poses_velo.txt` and `extra/label_02_0001.txt`.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import json
import shlex
import sys
import time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import torch

from benchmarks.tracking.agreement import Figures, compared
from nurec_lite.base.environment import environment
from nurec_lite.base.files import write_text
from nurec_lite.base.program import Parser
from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.simulate import simulate
from nurec_lite.capture.simulate.world import SimulationConfig
from nurec_lite.capture.tracking.found import find_tracks
from nurec_lite.capture.types import Capture
from nurec_lite.config import DataConfig
from nurec_lite.readers import read_capture

STREET, KITTI, PANDASET = 10, 20, 30  # returns


def measured(capture: Capture, returns: int) -> Figures:
    kept = replace(capture, sweeps=tuple(replace(f, load=lru_cache(f.load)) for f in capture.sweeps))
    for frame in kept.sweeps:  # reading is not counted
        frame.load()
    start, wall = time.process_time(), time.perf_counter()
    found = find_tracks(kept)
    seconds = {"cpu_seconds": round(time.process_time() - start, 1), "seconds": round(time.perf_counter() - wall, 1)}
    return seconds | compared(kept, capture.tracks, found, returns)


def kitti(root: Path) -> Capture:
    extra = root / "extra"
    files = {"poses_file": extra / "poses_velo.txt", "tracks_file": extra / "label_02_0001.txt"}
    return read_kitti_raw(root, **files)  # type: ignore[arg-type]


def pandaset() -> Capture:
    sys.path.append(str(Path(__file__).resolve().parents[2] / "tests/support"))
    from pandaset_drive import read_pandaset

    return read_pandaset(cameras=("front_camera",))


def main(arguments: list[str]) -> None:
    p = Parser(__doc__)
    p.add_argument("--street", action="store_true", help="the bundled one")
    p.add_argument("--seeds", type=int, nargs="*", default=[], help="of simulated streets")
    p.add_argument("--drive", type=Path, help="folder of drive 0009 and of its extra files")
    p.add_argument("--pandaset", action="store_true", help="the slice beside the checkout")
    p.add_argument("--out", type=Path, help="JSON file, such as benchmarks/results/NAME.json")
    args = p.parse_args(arguments)
    found: dict[str, Figures] = {}
    if args.street:
        found["street"] = measured(read_capture(DataConfig()), STREET)
    for seed in args.seeds:
        found[f"street of seed {seed}"] = measured(simulate(SimulationConfig(seed=seed)), STREET)
    if args.drive:
        found["KITTI 0009"] = measured(kitti(args.drive), KITTI)
    if args.pandaset:
        found["PandaSet 002"] = measured(pandaset(), PANDASET)
    for name, figures in found.items():
        print(name, figures)
    if args.out:
        command = shlex.join(["python", "benchmarks/tracking/bench_tracking.py", *arguments])
        report = {"command": command, "environment": environment(torch.device("cpu")), "captures": found}
        write_text(args.out, json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
