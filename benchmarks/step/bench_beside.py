# SPDX-License-Identifier: Apache-2.0
"""Whole training steps, compared: ours without options and with all, gsplat's rasterization in our loop, gsplat's own loop.

    python benchmarks/step/bench_beside.py data=pack data.root=FILE +size=large train.resume=CHECKPOINT train.steps=20000 --out FILE.json
    python benchmarks/step/bench_beside.py --only baseline all --rounds 2

Arguments are those of nurec_lite.train but for +opt and render. All begin with the same scene and take turns in one process, a block of
steps each, every other round in the opposite order; the first steps of a block do not count. A step lasts between the ends
of two steps on the device (on a CPU by the host's clock), feed and reports included, at a fixed progress, relocation included.

baseline   no option: an image and a sweep a step
all        +opt=all: the same
rendered   render=gsplat in our loop (nurec_lite/peer): images alone. Its lidar term is left out, because where returns fall in an image is
           found when that image comes first, once in a run
own        gsplat's own recipe (benchmarks/step/gsplat_loop.py): images alone, decoded beforehand

A contender that cannot run here stays as a row with the reason, and the others go on.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.common.feeding import idle
from benchmarks.common.reporting import Report, conditions_on, reported
from benchmarks.ladder.ladder_child import device_times, host_times
from benchmarks.render.bench_render import find_peer
from benchmarks.step.bench_step import spread
from benchmarks.step.gsplat_loop import GsplatLoop, parameters_of, shots_of
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.environment import choose_device
from nurec_lite.base.errors import UserError
from nurec_lite.base.program import Parser
from nurec_lite.cli.command import composed
from nurec_lite.config import Config
from nurec_lite.native import ops
from nurec_lite.opt.all import fused_ssim
from nurec_lite.readers import open_capture
from nurec_lite.training.loop import one_step
from nurec_lite.training.stages import Stages
from nurec_lite.training.start import make_state
from nurec_lite.training.state import TrainState

OURS = {"baseline": [], "all": ["+opt=all"], "rendered": ["render=gsplat", "train.lidar_rays=0"]}  # more arguments
OWN = "own"


def nothing() -> None:
    """Has nothing to do."""


@dataclass
class Contender:
    """A maker of steps, and the times of its steps."""

    step: Callable[[], None]
    gaussians: Callable[[], int]
    settle: Callable[[], None] = nothing  # before the device is waited for at the end of a block
    close: Callable[[], None] = nothing
    step_ms: list[float] = field(default_factory=list)
    wall_ms: list[float] = field(default_factory=list)  # a step, of each block


def ours(config: Config, progress: float) -> Contender:
    device = choose_device(config.device)
    stages = build_stages(config.opt, base_stages(config.ops, device, config.render))
    try:
        state = make_state(config, open_capture(config.data), device, frames=stages.feed.frames)
    except BaseException:
        stages.close()
        raise
    state.progress = progress
    step = partial(_step, stages, state, time.monotonic())
    return Contender(
        step, lambda: len(state.scene.gaussians), lambda: stages.update.synchronize(stages, state), stages.close
    )


def _step(stages: Stages, state: TrainState, begin: float) -> None:
    one_step(stages, state, begin)


def gsplats(config: Config) -> Contender:
    """Its own loop, on the initial scene of ours, in the middle of the drive."""
    device = choose_device(config.device)
    gsplat, _ = find_peer(True, device)
    assert gsplat is not None
    state = make_state(config, open_capture(config.data), device)
    capture = state.plan.capture
    middle = capture.images[len(capture.images) // 2].time_mid
    ops.load()
    params = parameters_of(state.scene, middle)
    loop = GsplatLoop(gsplat, params, shots_of(capture, device), fused_ssim.image_loss, state.cap)
    return Contender(loop, lambda: len(loop.params["means"]))


def begun(args: argparse.Namespace) -> tuple[dict[str, Contender], dict[str, str]]:
    """Those that can run here, warm; of the others the sentence why they cannot."""
    found: dict[str, Contender] = {}
    lost: dict[str, str] = {}
    for name in args.only or [*OURS, OWN]:
        try:
            config = composed("train", [*args.overrides, *OURS.get(name, [])])
            contender = gsplats(config) if name == OWN else ours(config, args.progress)
            found[name] = contender
            warm(contender, args)
        except (UserError, RuntimeError) as error:
            lost[name] = sentence(error)
            leave(found, name)
        print(f"{name}: {lost.get(name, 'ready')}", file=sys.stderr, flush=True)
    return found, lost


def warm(contender: Contender, args: argparse.Namespace) -> None:
    """Makes the steps of the warm-up, for its seconds at least: loaders that decode during the first steps must not disturb the others."""
    begin, done = time.monotonic(), 0
    while done < args.warmup or time.monotonic() - begin < args.warmup_seconds:
        contender.step()
        done += 1
    contender.settle()


def block(contender: Contender, args: argparse.Namespace, config: Config) -> None:
    device = choose_device(config.device)
    for _ in range(args.uncounted):
        contender.step()
    idle(device)
    begin = time.perf_counter()
    contender.step_ms += (device_times if device.type == "cuda" else host_times)(contender.step, args.steps)
    contender.settle()
    idle(device)
    contender.wall_ms.append(1e3 * (time.perf_counter() - begin) / args.steps)


def leave(found: dict[str, Contender], name: str) -> None:
    if name in found:
        found.pop(name).close()


def sentence(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def bench(config: Config, args: argparse.Namespace) -> Report:
    found, lost = begun(args)
    try:
        for turn in range(args.rounds):
            for name in list(found) if turn % 2 == 0 else list(reversed(found)):
                try:
                    block(found[name], args, config)
                except (UserError, RuntimeError) as error:
                    lost[name] = sentence(error)
                    leave(found, name)
        return report_of(config, args, found, lost)
    finally:
        for name in list(found):
            leave(found, name)


def report_of(config: Config, args: argparse.Namespace, found: dict[str, Contender], lost: dict[str, str]) -> Report:
    device, capture = choose_device(config.device), open_capture(config.data)
    camera = capture.cameras[0]
    report = conditions_on("step/bench_beside", config, device, args)
    report["environment"] |= {"gsplat": version} if (version := gsplat_version(found)) else {}
    return report | {
        "capture": capture.name, "image": [camera.width, camera.height], "lidar_rays": config.train.lidar_rays,
        "rounds": args.rounds, "steps": args.steps, "uncounted": args.uncounted, "warmup": args.warmup,
        "warmup_seconds": args.warmup_seconds, "progress": args.progress, "rows": dict(rows(args, found, lost)),
    }  # fmt: skip


def gsplat_version(found: dict[str, Contender]) -> str | None:
    if not found.keys() & {"rendered", OWN}:
        return None
    import gsplat

    return str(gsplat.__version__)


def rows(
    args: argparse.Namespace, found: dict[str, Contender], lost: dict[str, str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in args.only or [*OURS, OWN]:
        row: dict[str, Any] = {"arguments": OURS.get(name), "status": lost.get(name)}
        if name in found:
            c = found[name]
            row |= {"gaussians": c.gaussians(), "step_ms": spread(c.step_ms), "wall_ms": spread(c.wall_ms)}
            row["single_step_ms"] = [round(ms, 4) for ms in c.step_ms]
        yield name, row


def table(report: Report) -> str:
    lines = [f"{report['capture']}, image {report['image']}, {report['environment']['device']}"]
    lines.append(f"{'':10} {'step ms':>30} {'mean':>8} {'wall ms':>9} {'Gaussians':>10}")
    for name, row in report["rows"].items():
        lines.append(f"{name:10} {row['status']}" if row["status"] else f"{name:10} {_figures(row)}")
    return "\n".join([*lines, "medians [quartiles] of steps; the clock by block"])


def _figures(row: dict[str, Any]) -> str:
    s = row["step_ms"]
    cell = f"{s['median']:.2f} [{s['quarter']:.2f}, {s['three_quarters']:.2f}]"
    return f"{cell:>30} {s['mean']:8.2f} {row['wall_ms']['median']:9.2f} {row['gaussians']:10}"


def main(arguments: list[str]) -> None:
    p = Parser(__doc__)
    p.add_argument("--only", nargs="+", choices=[*OURS, OWN], help="these (all)")
    p.add_argument("--rounds", type=int, default=4, help="of all (%(default)s)")
    p.add_argument("--steps", type=int, default=100, help="of a block that are timed (%(default)s)")
    p.add_argument("--uncounted", type=int, default=10, help="before them (%(default)s)")
    p.add_argument("--warmup", type=int, default=130, help="steps of each before all blocks (%(default)s)")
    p.add_argument("--warmup-seconds", type=float, default=6, help="and seconds, whichever ends later (%(default)s)")
    p.add_argument("--progress", type=float, default=0.5, help="of the run, for all steps (%(default)s)")
    print(table(reported(p, arguments, bench)))


if __name__ == "__main__":
    main(sys.argv[1:])
