# SPDX-License-Identifier: Apache-2.0
"""PSNR inside the true boxes of moving objects, trained with labels, with tracks found in the sweeps, and without tracks.

    python benchmarks/tracking/actor_quality.py train.steps=1000 --out benchmarks/results/NAME.json

Trains a capture that has true tracks (by default the bundled street) once for each of --sources, values of `data.tracks.source`, and
measures all on the same held-out frames and in the same boxes, those of the capture's own tracks.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.common.reporting import Report, conditions_on, reported
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.environment import choose_device
from nurec_lite.base.program import Parser
from nurec_lite.config import Config
from nurec_lite.evaluation.measure import evaluate, held_out
from nurec_lite.readers import open_capture
from nurec_lite.scene.scene import Scene
from nurec_lite.training.loop import train
from nurec_lite.training.start import make_state

FIGURES = ("psnr", "ssim", "psnr_actors", "psnr_per_actor", "lidar_median_abs_m")


def with_source(config: Config, source: str) -> Config:
    return replace(config, data=replace(config.data, tracks=replace(config.data.tracks, source=source)))


def bench(config: Config, args: argparse.Namespace) -> Report:
    device, truth = choose_device(config.device), open_capture(with_source(config, "capture").data)
    found = {}
    for source in args.sources:
        own = with_source(config, source)
        capture = open_capture(own.data)
        stages = build_stages(config.opt, base_stages(config.ops, device, config.render))
        try:
            state = make_state(own, capture, device, frames=stages.feed.frames)
            train(stages, state, args.folder / f"{source}.pt")
            scene: Scene = state.scene
            metrics = evaluate(stages, scene, truth, held_out(truth)).metrics
        finally:
            stages.close()
        found[source] = {"tracks": len(capture.tracks), "steps": state.step} | {
            name: metrics.get(name) for name in FIGURES
        }
        print(source, found[source], flush=True)
    return conditions_on("tracking/actor_quality", config, device, args) | {"capture": truth.name, "sources": found}


def main(arguments: list[str]) -> None:
    p = Parser(__doc__)
    p.add_argument("--sources", nargs="+", default=["capture", "lidar", "none"], help="in this order (%(default)s)")
    p.add_argument("--folder", type=Path, default=Path("runs/actor_quality"), help="of the checkpoints (%(default)s)")
    for source, figures in reported(p, arguments, bench)["sources"].items():
        print(f"{source:8} {figures['psnr']:.2f} dB, actors {figures['psnr_actors']:.2f} dB")


if __name__ == "__main__":
    main(sys.argv[1:])
