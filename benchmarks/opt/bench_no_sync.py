# SPDX-License-Identifier: Apache-2.0
"""Lead of the host over the GPU: steps with and without the option no_sync, relocation included.

    python benchmarks/opt/bench_no_sync.py data=pack data.root=FILE +size=large train.resume=FILE --out benchmarks/results/NAME.json

Arguments are those of nurec_lite.train. Every set starts from the same state and trains on the same batches, in one process; the sets take
turns, every other round in the opposite order. A round is timed as a whole, from an idle GPU to an idle GPU: `wall` is its time by the
host's clock, `host` the part until the last step was queued, so wall - host is by how much the host was ahead at the end. The waits are
counted in steps of their own, by torch's sync debug mode, which does not see all of them: nsys does
(python -m nurec_lite.profile tool=nsys +opt=...).
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import sys
import time
from statistics import median
from typing import Any

import torch

from benchmarks.common.reporting import conditions, reported
from benchmarks.opt.bench_collect_once import Variant, variants
from nurec_lite.base.program import Parser
from nurec_lite.config import Config
from nurec_lite.profiling.summary.syncs import lines_a_step, waiting_lines
from nurec_lite.training.loop import one_step

BOTH = ("fused_interp", "collect_once")
SETS = ((), BOTH, (*BOTH, "no_sync"))


def idle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def round_of(variant: Variant, steps: int) -> dict[str, float]:
    """Milliseconds a step."""
    idle(variant.state.device)
    begin = time.perf_counter()
    for _ in range(steps):
        one_step(variant.stages, variant.state, variant.begin)
    queued = time.perf_counter()
    idle(variant.state.device)
    return {"wall_ms": 1e3 * (time.perf_counter() - begin) / steps, "host_ms": 1e3 * (queued - begin) / steps}


def waits(variant: Variant, steps: int) -> dict[str, Any]:
    """Waits of a step, and the Python lines that cause them; unknown without a GPU."""
    cuda = variant.state.device.type == "cuda"
    with waiting_lines(cuda) as lines:
        for _ in range(steps):
            one_step(variant.stages, variant.state, variant.begin)
    if not cuda:
        return {"waits": None, "lines": None}
    return {"waits": sum(lines.values()) / steps, "lines": lines_a_step(dict(lines), steps)}


def figures(variant: Variant, rounds: list[dict[str, float]], steps: int) -> dict[str, Any]:
    found: dict[str, Any] = {name: median(r[name] for r in rounds) for name in ("wall_ms", "host_ms")}
    option = getattr(variant.stages.update.synchronize, "__self__", None)  # of no_sync
    return found | waits(variant, steps) | {"redone": getattr(option, "redone", 0), "rounds": rounds}


def bench(config: Config, args: argparse.Namespace) -> dict[str, Any]:
    sets = variants(config, SETS)
    rounds: dict[str, list[dict[str, float]]] = {variant.name: [] for variant in sets}
    for variant in sets:
        variant.state.progress = args.progress
        round_of(variant, args.warmup)
    for turn in range(args.rounds):
        for variant in sets if turn % 2 == 0 else reversed(sets):
            rounds[variant.name].append(round_of(variant, args.steps))
    return conditions("opt/bench_no_sync", config, sets[0].state, args) | {
        "rounds": args.rounds, "steps": args.steps, "warmup": args.warmup, "progress": args.progress,
        "gaussians": [len(v.state.scene.gaussians) for v in sets],
        "sets": {v.name: figures(v, rounds[v.name], args.counted) for v in sets},
    }  # fmt: skip


def table(report: dict[str, Any]) -> str:
    lines = [f"{report['capture']}, {report['environment']['device']}, {report['gaussians'][0]} Gaussians"]
    lines.append(f"{'options':40} {'wall ms':>9} {'host ms':>9} {'waits a step':>13} {'steps redone':>13}")
    for name, f in report["sets"].items():
        counted = "unknown" if f["waits"] is None else f"{f['waits']:.2f}"
        lines.append(f"{name:40} {f['wall_ms']:9.2f} {f['host_ms']:9.2f} {counted:>13} {f['redone']:13}")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    p = Parser(__doc__)
    p.add_argument("--rounds", type=int, default=6, help="of all sets (%(default)s)")
    p.add_argument("--steps", type=int, default=100, help="of a round (%(default)s)")
    p.add_argument("--warmup", type=int, default=20, help="steps of each set before all rounds (%(default)s)")
    p.add_argument("--counted", type=int, default=20, help="counted steps of each set, for their waits (%(default)s)")
    p.add_argument("--progress", type=float, default=0.5, help="of the run, with relocation (%(default)s)")
    found = reported(p, arguments, bench)
    print(table(found))


if __name__ == "__main__":
    main(sys.argv[1:])
