# SPDX-License-Identifier: Apache-2.0
"""Gain of the option cuda_graph: whole steps of `+opt=all` without it and with it, relocation included.

    python benchmarks/opt/bench_cuda_graph.py data=pack data.root=FILE +size=large train.resume=FILE --out benchmarks/results/NAME.json

Arguments are those of nurec_lite.train. Both sets start from the same state and train on the same shots, in one process; they take turns,
every other round in the opposite order. A round is timed as a whole, from an idle GPU to an idle GPU: `wall` is its time by the host's
clock, `host` the part until the last step was queued. Before the rounds both sets take the same few steps, and their losses are compared:
where a loss differs by more than the tolerance, nothing is timed.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import sys
from functools import partial
from statistics import median
from typing import Any

from omegaconf import OmegaConf

from benchmarks.common.reporting import conditions, reported
from benchmarks.opt.bench_collect_once import Variant, variants
from benchmarks.opt.bench_no_sync import round_of
from nurec_lite.base.paths import resource
from nurec_lite.base.program import Parser
from nurec_lite.config import Config
from nurec_lite.training.history import Row
from nurec_lite.training.loop import one_step

OPTION = "cuda_graph"
Sets = tuple[tuple[str, ...], tuple[str, ...]]


def below(kind: str = "cuda") -> tuple[str, ...]:
    """The options of `+opt=all` without this one."""
    listed = OmegaConf.load(resource("conf/opt/all.yaml"))["all"][kind]
    return tuple(name for name in listed if name != OPTION)


def without_and_with(option: str) -> Sets:
    """All options without and with cuda_graph; both record steps, with the code that the option changes."""
    others = tuple(name for name in below() if name != option)
    return (*others, OPTION), (*others, option, OPTION)


def losses(variant: Variant, steps: int) -> Row:
    """Running means of all terms after these steps; those of the history's rows may be of an earlier one."""
    last: Row | None = None
    for _ in range(steps):
        last = one_step(variant.stages, variant.state, variant.begin) or last
    variant.stages.update.synchronize(variant.stages, variant.state)
    last = variant.state.history.read() or last
    assert last is not None and last["step"] == variant.state.step
    return last


def largest_difference(one: Row, other: Row) -> float:
    """Relative, of the terms; below a thousandth, such as the tie of opacities that are still equal, rounding is all there is."""
    names = set(one) - {"step", "seconds", "gaussians"}
    return max(abs(one[name] - other[name]) / max(abs(one[name]), 1e-3) for name in names)


def figures(variant: Variant, rounds: list[dict[str, float]]) -> dict[str, Any]:
    found: dict[str, Any] = {name: median(r[name] for r in rounds) for name in ("wall_ms", "host_ms")}
    option = variant.stages.update.learn
    counts = {name: getattr(option, name, 0) for name in ("launched", "recorded")}
    return found | counts | {"rounds": rounds}


def bench(config: Config, args: argparse.Namespace, sets_of: Sets, script: str = f"bench_{OPTION}") -> dict[str, Any]:
    sets = variants(config, sets_of)
    rounds: dict[str, list[dict[str, float]]] = {variant.name: [] for variant in sets}
    try:
        for variant in sets:
            variant.state.progress = args.progress
        difference = largest_difference(*(losses(variant, args.warmup) for variant in sets))
        assert difference <= args.tolerance, f"losses differ by {difference:.2%} after {args.warmup} steps"
        for turn in range(args.rounds):
            for variant in sets if turn % 2 == 0 else reversed(sets):
                rounds[variant.name].append(round_of(variant, args.steps))
    finally:
        for variant in sets:
            variant.stages.close()
    return conditions(f"opt/{script}", config, sets[0].state, args) | {
        "rounds": args.rounds, "steps": args.steps, "warmup": args.warmup, "progress": args.progress,
        "largest_difference": difference, "gaussians": [len(v.state.scene.gaussians) for v in sets],
        "sets": {v.name: figures(v, rounds[v.name]) for v in sets},
    }  # fmt: skip


def table(report: dict[str, Any]) -> str:
    lines = [f"{report['capture']}, {report['environment']['device']}, {report['gaussians'][0]} Gaussians"]
    lines.append(f"{'options':40} {'wall ms':>9} {'host ms':>9} {'launched':>9} {'recorded':>9}")
    for name, f in report["sets"].items():
        lines.append(f"{name[-40:]:40} {f['wall_ms']:9.2f} {f['host_ms']:9.2f} {f['launched']:9} {f['recorded']:9}")
    return "\n".join([*lines, f"losses differ by {report['largest_difference']:.2%} at most"])


def main(
    arguments: list[str],
    sets_of: Sets | None = None,  # two sets of options; None: those of this benchmark
    script: str = f"bench_{OPTION}",
    doc: str | None = __doc__,
) -> None:
    p = Parser(doc)
    p.add_argument("--rounds", type=int, default=4, help="of both sets (%(default)s)")
    p.add_argument("--steps", type=int, default=200, help="of a round (%(default)s)")
    p.add_argument("--warmup", type=int, default=50, help="steps of each set before all rounds (%(default)s)")
    p.add_argument("--progress", type=float, default=0.5, help="of the run, with relocation (%(default)s)")
    p.add_argument("--tolerance", type=float, default=0.02, help="of losses, relative (%(default)s)")
    asked = sets_of or (below(), (*below(), OPTION))
    print(table(reported(p, arguments, partial(bench, sets_of=asked, script=script))))


if __name__ == "__main__":
    main(sys.argv[1:])
