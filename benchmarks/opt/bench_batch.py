# SPDX-License-Identifier: Apache-2.0
"""Cost and gain of the option batch: whole runs of 1, 2, 4 images a step, with as many images seen or as many seconds
each.

    python benchmarks/opt/bench_batch.py --seen 800 --seconds 30 --seeds 0 1 --out benchmarks/results/NAME.json +opt=all
    python benchmarks/opt/bench_batch.py --seen 7000 data=pack data.root=FILE +size=large device=cuda +opt=all --out FILE
    python benchmarks/opt/bench_batch.py --images --seen 0 --turns 12 data=pack data.root=FILE +size=large device=cuda +opt=all --out FILE

Arguments are those of nurec_lite.train; batch joins the options that they name, also those of `all`. First the loss of a step is compared
with the mean of those of its single images. Then, for every seed, one run after another: without the option, and with every number of
images three kinds. `rates`: as the option does by default. `as given`: the rates and betas of one image. `by images`: rates, and
relocation after as many images as without the option (density.every divided by their number). Milliseconds are means over all steps
of a run, decoding and relocations included.

With --turns: all views of a step in one launch, against one view after another, by windows of --window steps in turns, after --warmup steps
of each and after their first step's losses were compared.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import mean

import torch

from benchmarks.common.quiet import Others
from benchmarks.common.reporting import Report, conditions_on, reported
from benchmarks.opt.launch_turns import turn_lines, turns
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.environment import choose_device
from nurec_lite.base.program import Parser
from nurec_lite.capture.types import Capture
from nurec_lite.config import Config
from nurec_lite.evaluation.measure import evaluate, held_out
from nurec_lite.readers import open_capture
from nurec_lite.training.loop import complete_steps, one_step, spent
from nurec_lite.training.shots import Shots
from nurec_lite.training.stages import Stages
from nurec_lite.training.start import make_state
from nurec_lite.training.state import TrainState
from nurec_lite.training.step import render

METRICS = ("psnr", "ssim", "psnr_actors", "lidar_median_abs_m")
KINDS = ("rates", "as given", "by images")


@dataclass(frozen=True)
class Kind:
    """A kind of runs; one image means without the option."""

    images: int
    name: str = "without"

    def __str__(self) -> str:
        return "1" if self.images == 1 else f"{self.images}, {self.name}"

    def of(self, config: Config, sweeps: int) -> Config:
        """Returns the arguments of the option."""
        if self.images == 1:
            return config
        given = {"images": self.images, "sweeps": sweeps, "scale_rates": self.name != "as given", "one_launch": True}
        every = max(1, config.density.every // (self.images if self.name == "by images" else 1))
        return replace(config, opt=config.opt | {"batch": given}, density=replace(config.density, every=every))


def kinds(images: list[int], names: list[str]) -> list[Kind]:
    return [kind for n in images for kind in ([Kind(1)] if n == 1 else [Kind(n, name) for name in names])]


def begun(config: Config, capture: Capture) -> tuple[Stages, TrainState]:
    device = choose_device(config.device)
    stages = build_stages(config.opt, base_stages(config.ops, device, config.render))
    return stages, make_state(config, capture, device, frames=stages.feed.frames)


def check(config: Config, capture: Capture) -> None:
    """Fails where the loss of a step is not the mean of its images'."""
    stages, state = begun(config, capture)
    try:
        shots = stages.feed.fetch(stages, state)
        each = [replace(shots, images=(shot,)) for shot in shots.images]
        found, *single = (float(_image_term(stages, state, one)) for one in (shots, *each))
    finally:
        stages.close()
    assert abs(found - mean(single)) < 1e-3 * found, f"{found} is not the mean of {single}"


def _image_term(stages: Stages, state: TrainState, shots: Shots) -> torch.Tensor:
    with torch.no_grad():
        return stages.loss.terms(stages, state, shots, render(stages, state.scene, shots))["image"]


def run(config: Config, capture: Capture, images: int) -> Report:
    """A whole run, and its metrics."""
    stages, state = begun(config, capture)
    others = Others()
    try:
        begin = time.monotonic()
        while (progress := spent(config.train, state.step, state.seconds)) < 1:
            state.progress = progress
            one_step(stages, state, begin)
        complete_steps(stages, state)
        _idle(state.device)
        seconds = time.monotonic() - begin
        found = evaluate(stages, state.scene, capture, held_out(capture)).metrics
    finally:
        stages.close()
    ms = 1e3 * seconds / state.step
    return {
        "seed": config.seed, "steps": state.step, "images_seen": images * state.step, "seconds": seconds,
        "ms_a_step": ms, "ms_an_image": ms / images, "gaussians": len(state.scene.gaussians), "other_cores": others.cores(),
    } | {name: found.get(name) for name in METRICS}  # fmt: skip


def _idle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def budgets(config: Config, args: argparse.Namespace, images: int) -> Iterator[tuple[str, Config]]:
    if args.seen:
        steps = max(1, args.seen // images)
        yield "seen", replace(config, train=replace(config.train, steps=steps, seconds=None))
    if args.seconds:
        yield "seconds", replace(config, train=replace(config.train, steps=None, seconds=args.seconds))


def bench(config: Config, args: argparse.Namespace) -> Report:
    capture, found = open_capture(config.data), {}
    sets = kinds(args.images, args.kinds)
    for kind in sets:
        check(kind.of(config, args.sweeps), capture)
    for seed in args.seeds:
        for kind in sets:
            for name, given in budgets(replace(kind.of(config, args.sweeps), seed=seed), args, kind.images):
                row = run(given, capture, kind.images)
                found.setdefault(name, {}).setdefault(str(kind), []).append(row)
                print(f"equal {name}: {kind} images, seed {seed}: {line(row)}", flush=True)
    found_turns = turns(config, capture, begun, args) if args.turns else {}
    return conditions_on("opt/bench_batch", config, choose_device(config.device), args) | {
        "capture": capture.name, "cameras": len(capture.cameras), "kinds": [str(kind) for kind in sets],
        "seen": args.seen, "seconds": args.seconds, "seeds": args.seeds, "sweeps": args.sweeps, "runs": found,
        "turns": found_turns, "steps_a_window": args.window,
        "means": {name: {kind: means(rows) for kind, rows in sets.items()} for name, sets in found.items()},
    }  # fmt: skip


def means(rows: list[Report]) -> Report:
    """Means over seeds, of metrics that all seeds have."""
    names = ("steps", "images_seen", "seconds", "ms_a_step", "ms_an_image", *METRICS)
    return {name: mean(row[name] for row in rows) for name in names if all(row[name] is not None for row in rows)}


def line(row: Report) -> str:
    known = [f"{name} {row[name]:.4g}" for name in METRICS if row.get(name) is not None]
    return f"{row['steps']:g} steps, {row['ms_a_step']:.1f} ms a step, {row['ms_an_image']:.1f} an image; {', '.join(known)}"


def table(report: Report) -> str:
    lines = [f"{report['capture']}, {report['environment']['device']}, means of {len(report['seeds'])} seeds"]
    for name, sets in report["means"].items():
        lines += [f"equal {name}", *(f"  {kind:16} {line(row)}" for kind, row in sets.items())]
    return "\n".join(lines + turn_lines(report))


def main(arguments: list[str]) -> None:
    p = Parser(__doc__)
    p.add_argument("--images", nargs="*", type=int, default=[1, 2, 4], help="a step (%(default)s)")
    p.add_argument("--sweeps", type=int, default=1, help="a step with several images (%(default)s)")
    p.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="as above (%(default)s)")
    p.add_argument("--seen", type=int, default=800, help="images of a run; 0: no such runs (%(default)s)")
    p.add_argument("--seconds", type=float, default=0, help="of a run; 0: no such runs (%(default)s)")
    p.add_argument("--seeds", nargs="+", type=int, default=[0], help="(%(default)s)")
    p.add_argument("--turns", type=int, default=0, help="windows of one launch and of the loop (%(default)s)")
    p.add_argument("--turn-images", nargs="+", type=int, default=[2, 6], help="a step of these (%(default)s)")
    p.add_argument("--window", type=int, default=50, help="steps of one (%(default)s)")
    p.add_argument("--warmup", type=int, default=100, help="steps before the first one (%(default)s)")
    print(table(reported(p, arguments, bench)))


if __name__ == "__main__":
    main(sys.argv[1:])
