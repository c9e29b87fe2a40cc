# SPDX-License-Identifier: Apache-2.0
"""Time and memory of a run over frames, pixels, rays, Gaussians and GPUs, with fitted exponents.

    python benchmarks/scaling/bench_scaling.py data=pack data.root=FILE '+opt=all' --out benchmarks/results/scaling_NAME.json

Arguments are those of nurec_lite.train. Every point is a run of its own process. One axis varies at a time; the others keep their middle
value, frames and GPUs their first. Over frames the drive becomes longer: Gaussians grow with them. `step_ms` is the mean time of a step
over the second half of a run, `start_s` the seconds outside of steps up to the checkpoint, `peak_bytes` the largest memory. A run takes
two passes over its images at least: steps of the first one wait for images that are still decoded. `make figures` turns the report into
the table of docs/scaling.md, and --picture draws it.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.common.reporting import Report, conditions_on, reported
from benchmarks.scaling.scaling_table import picture, table
from nurec_lite.base.environment import choose_device
from nurec_lite.base.errors import UserError
from nurec_lite.base.files import write_text
from nurec_lite.base.program import Parser
from nurec_lite.capture.types import Capture
from nurec_lite.config import Config
from nurec_lite.readers import open_capture

ROOT = Path(__file__).resolve().parents[2]
AXES = ("frames", "pixels", "rays", "gaussians", "gpus")


def keys(point: dict[str, int]) -> list[str]:
    """Arguments of nurec_lite.train for a point."""
    return [
        f"data.frames=[0,{point['frames']}]",
        f"data.downscale={point['pixels']}",
        f"train.lidar_rays={point['rays']}",
        f"model.points={point['gaussians']}",
        f"density.cap={10 * point['gaussians'] + 100_000}",
        "density.growth=1.0",
    ]


def points(args: argparse.Namespace) -> Iterator[tuple[str, dict[str, int]]]:
    """Yields an axis and the values of a run."""
    sizes: dict[str, list[int]] = {axis: getattr(args, axis) for axis in AXES}
    middle = {axis: values[0 if axis in ("frames", "gpus") else len(values) // 2] for axis, values in sizes.items()}
    for axis, values in sizes.items():
        for value in values if len(values) > 1 else []:
            point = middle | {axis: value}
            point["gaussians"] = point["gaussians"] * point["frames"] // middle["frames"]
            yield axis, point


def measured(point: dict[str, int], arguments: list[str], steps: int) -> Report:
    """Figures of one run."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    several = ["-m", "torch.distributed.run", f"--nproc-per-node={point['gpus']}"] if point["gpus"] > 1 else []
    with TemporaryDirectory() as out:
        own = [
            f"train.steps={steps}",
            "train.seconds=null",
            "train.evaluate=false",
            "measure.seconds=0",
            f"out={out}/run",
        ]
        words = [sys.executable, *several, "-m", "nurec_lite.train", *arguments, *keys(point), *own]
        ended = subprocess.run(words, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
        if ended.returncode:
            raise UserError(
                f"a run failed: {' '.join(words[1:])}: {(ended.stderr.strip().splitlines() or ['no message'])[-1]}"
            )
        found: dict[str, Any] = json.loads((Path(out) / "run/metrics.json").read_text())
    return {
        "steps": found["steps"],
        "step_ms": found["step_ms"],
        "start_s": found["seconds_total"] - found["seconds_train"],
        "peak_bytes": found["peak_memory_bytes"],
        "gaussians": found["gaussians"],
        "exchanged_bytes": found.get("exchanged_bytes_a_step", 0),
    }


def steps_of(point: dict[str, int], least: int, cameras: int) -> int:
    """Steps of a run: two passes over its images at least. Each rank decodes all images, so several take no fewer steps."""
    return max(least, 2 * cameras * point["frames"])


def check_frames(capture: Capture, wanted: list[int]) -> None:
    """Refuses more frames than the capture has: all runs would have the same."""
    found = len({*capture.moments.images, *capture.moments.sweeps})
    if max(wanted) > found:
        fewer = " ".join(str(max(2, found // part)) for part in (1, 2, 4))
        raise UserError(f"--frames {max(wanted)}: {capture.name} has {found}; give fewer, as in --frames {fewer}")


def distinct(rows: list[Report]) -> list[Report]:
    """Returns the rows without those of as many Gaussians as another one of that axis: a capture may have no more points."""
    kept: dict[tuple[str, int], Report] = {}
    for row in rows:
        size = row["gaussians"] if row["axis"] == "gaussians" else row["value"]
        if kept.setdefault((row["axis"], size), row) is not row:
            print(f"--gaussians {row['value']} gives {size} again and is left out", file=sys.stderr)
    several = Counter(axis for axis, _ in kept)
    return [row for (axis, _), row in kept.items() if several[axis] > 1]


def bench(config: Config, args: argparse.Namespace) -> Report:
    capture = open_capture(config.data)
    check_frames(capture, args.frames)
    known: dict[tuple[tuple[str, int], ...], Report] = {}
    rows = []
    for axis, point in points(args):
        key = tuple(point.items())
        known[key] = known.get(key) or measured(
            point, args.overrides, steps_of(point, args.steps, len(capture.cameras))
        )
        rows.append({"axis": axis, "value": point[axis], **known[key]})
        print(json.dumps(rows[-1]), flush=True)
    rows = distinct(rows)
    return conditions_on("scaling/bench_scaling", config, choose_device(config.device), args) | {
        "rows": rows,
    }


def main(arguments: list[str]) -> None:
    parser = Parser(__doc__)
    defaults = {
        "frames": ([48, 24, 12], "frames of the capture"),
        "pixels": ([4, 2, 1], "reduction factors of images"),
        "rays": ([8192, 32768, 100_000], "rays of a sweep in a step"),
        "gaussians": (
            [100_000, 300_000, 900_000],
            "background Gaussians from the lidar, about; of the first number of frames",
        ),
        "gpus": ([1], "ranks, each with a GPU (on a CPU processes)"),
    }
    for axis, (values, text) in defaults.items():
        parser.add_argument(f"--{axis}", type=int, nargs="+", default=values, help=text)
    parser.add_argument("--steps", type=int, default=150, help="steps of each run, at least")
    parser.add_argument("--picture", type=Path, help="SVG file, such as docs/images/scaling.svg")
    drawn = parser.parse_known_args(arguments)[0].picture
    found = reported(parser, arguments, bench)
    print(table(found["rows"]))
    if drawn:
        write_text(drawn, picture(found["rows"]))


if __name__ == "__main__":
    main(sys.argv[1:])
