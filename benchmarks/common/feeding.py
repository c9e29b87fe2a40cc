# SPDX-License-Identifier: Apache-2.0
"""Cost of feeding a step, for sets of options that change it: milliseconds of the host in `feed`, of whole steps, and
idle time of the device.

Every set starts from the same state and trains on the same shots, in one process; the sets take turns, a block of steps each, every other
round in the opposite order, and the first steps of a block are not counted: loader processes fill their queues meanwhile. First of all,
every set's shots are compared with the baseline's, bit for bit, on the device.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import fields
from statistics import median, quantiles

import torch
from torch import Tensor

from benchmarks.common.reporting import Report, conditions, reported
from benchmarks.opt.bench_collect_once import Variant, variants
from nurec_lite.base.program import Parser
from nurec_lite.config import Config
from nurec_lite.training.shots import Shots

Times = dict[str, list[float]]


def idle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def check(sets: Sequence[Variant], steps: int) -> None:
    """Fails where a set gives other shots than the first one."""
    for variant in sets:
        for number in range(steps):
            variant.state.step = number
            found = variant.stages.feed.fetch(variant.stages, variant.state)
            assert same(found, sets[0].state.plan.load(number)), f"{variant.name} gives other shots at step {number}"
        variant.state.step = 0


def same(found: Shots, loaded: Shots) -> bool:
    mine, other = tensors(found), tensors(loaded)
    return len(mine) == len(other) and all(torch.equal(a.cpu(), b) for a, b in zip(mine, other, strict=True))


def tensors(shots: Shots) -> list[Tensor]:
    held: list[Tensor] = []
    records = [*shots.images, *(shot.sweep for shot in shots.sweeps), *shots.views]
    for record in records:
        held += [value for f in fields(record) if isinstance(value := getattr(record, f.name), Tensor)]
    return held


def block(variant: Variant, uncounted: int, counted: int) -> Times:
    """`feed`: the host's time in it; `wall`: a step of the block, from an idle device to an idle one."""
    times: Times = {"feed_ms": [], "wall_ms": []}
    stages, state = variant.stages, variant.state
    for n in range(uncounted + counted):
        if n == uncounted:
            idle(state.device)
            begin = time.perf_counter()
        start = time.perf_counter()
        shots = stages.feed.fetch(stages, state)
        if n >= uncounted:
            times["feed_ms"].append(1e3 * (time.perf_counter() - start))
        result = stages.update.try_step(stages, state, shots)
        state.step += 1
        state.history.add(state.step, time.monotonic() - variant.begin, 0, result.figures)
    stages.update.synchronize(stages, state)
    idle(state.device)
    times["wall_ms"].append(1e3 * (time.perf_counter() - begin) / counted)
    return times


def spread(values: list[float]) -> dict[str, float]:
    low, _, high = quantiles(values, n=4) if len(values) > 1 else (values[0],) * 3
    return {"median": median(values), "quarter": low, "three_quarters": high, "mean": sum(values) / len(values)}


def bench(config: Config, args: argparse.Namespace, names: Sequence[tuple[str, ...]]) -> Report:
    sets = variants(config, names)
    found: dict[str, Times] = {variant.name: {"feed_ms": [], "wall_ms": []} for variant in sets}
    try:
        check(sets, args.checked)
        for variant in sets:
            variant.state.progress = args.progress
            block(variant, args.warmup, 1)
        for turn in range(args.rounds):
            for variant in sets if turn % 2 == 0 else reversed(sets):
                for part, values in block(variant, args.uncounted, args.steps).items():
                    found[variant.name][part] += values
    finally:
        for variant in sets:
            variant.stages.close()
    return conditions(f"opt/bench_{args.option}", config, sets[0].state, args) | {
        "rounds": args.rounds, "steps": args.steps, "uncounted": args.uncounted, "warmup": args.warmup,
        "progress": args.progress, "checked_steps": args.checked,
        "sets": {name: {part: spread(values) for part, values in parts.items()} for name, parts in found.items()},
        "rounds_wall_ms": {name: parts["wall_ms"] for name, parts in found.items()},
    }  # fmt: skip


def table(report: Report) -> str:
    lines = [f"{report['capture']}, {report['environment']['device']}"]
    lines.append(f"{'options':44} {'feed ms':>24} {'wall ms a step':>24}")
    for name, parts in report["sets"].items():
        cells = [f"{q['median']:.2f} [{q['quarter']:.2f}, {q['three_quarters']:.2f}]" for q in parts.values()]
        lines.append(f"{name:44} {cells[0]:>24} {cells[1]:>24}")
    return "\n".join([*lines, "medians [quartiles]: of steps, and of rounds"])


def main(option: str, doc: str | None, names: Sequence[tuple[str, ...]], arguments: list[str]) -> None:
    p = Parser(doc)
    p.add_argument("--rounds", type=int, default=6, help="of all sets (%(default)s)")
    p.add_argument("--steps", type=int, default=60, help="of a round that count (%(default)s)")
    p.add_argument("--uncounted", type=int, default=10, help="before them (%(default)s)")
    p.add_argument("--warmup", type=int, default=30, help="steps of each set before all rounds (%(default)s)")
    p.add_argument("--checked", type=int, default=20, help="steps: their shots are compared first (%(default)s)")
    p.add_argument("--progress", type=float, default=0.5, help="of the run (%(default)s)")
    p.set_defaults(option=option)
    print(table(reported(p, arguments, lambda config, args: bench(config, args, names))))
