# SPDX-License-Identifier: Apache-2.0
"""Times of calls that take microseconds: as graphs on a GPU, so that the host's share does not count, compared with a copy of a large
tensor."""

import argparse
import json
import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.common.quiet import Others
from benchmarks.opt.bench_fused_interp import measure
from benchmarks.step.bench_step import positive, spread
from nurec_lite.base.environment import choose_device, environment
from nurec_lite.base.files import write_text
from nurec_lite.base.program import Parser
from nurec_lite.cli.command import mended

Call = Callable[[], object]
Report = dict[str, Any]
WARMUP = 3  # calls before one is captured


def worst_error(
    found: Iterable[Tensor],
    truth: Iterable[Tensor],  # as many, in double precision
) -> float:
    """Largest error, as a share of the largest number of each tensor. Empty tensors have none."""
    pairs = [(a, b) for a, b in zip(found, truth, strict=True) if b.numel()]
    return max(float((a.double() - b).abs().max() / b.abs().max().clamp(min=1e-12)) for a, b in pairs)


def replayed(call: Call, device: torch.device) -> Call:
    """Returns the call; on a GPU as a graph that is captured once, so the call must not ask the device for anything."""
    if device.type != "cuda":
        return call
    stream, graph = torch.cuda.Stream(device), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(WARMUP):
            call()
    torch.cuda.current_stream(device).wait_stream(stream)
    with torch.cuda.graph(graph, stream=stream):
        kept = call()

    def replay() -> object:
        graph.replay()
        return kept

    return replay


def timed(
    calls: dict[tuple[str, str], Call],  # by version and by workload
    least_bytes: dict[tuple[str, str], int],  # that must move; workloads without an entry have no such bound
    args: argparse.Namespace,
    device: torch.device,
) -> Report:
    """Every call in turn, in both orders, each right after two copies, which empty the caches."""
    others, copied = Others(), torch.empty(2, args.copy_mib << 18, device=device).zero_()  # floats
    graphs = {key: replayed(call, device) for key, call in calls.items()}
    taken = measure(graphs, args.warmup, args.rounds, lambda: copied[1].copy_(copied[0]), device)
    copies = spread([ms for samples in taken.values() for ms, _ in samples])
    bandwidth = 2 * copied[0].nbytes / copies["median"] / 1e6
    rows = []
    for (version, on), samples in taken.items():
        ms, moved = spread([ms for _, ms in samples]), least_bytes.get((version, on))
        share = None if moved is None else moved / ms["median"] / 1e6 / bandwidth
        rows.append({"version": version, "on": on, "ms": ms, "least_bytes": moved, "share_of_copy": share})
    return {"copy": {"ms": copies, "gb_per_s": bandwidth}, "cores_busy_with_others": others.cores(), "rows": rows}


def compared(
    versions: Iterable[str],  # "fused" among them
    problems: Mapping[str, tuple[Any, ...]],  # by size
    error_of: Callable[..., float],  # (version, *problem)
    calls_of: Callable[..., dict[str, Call]],  # by version, too
    least_bytes: Callable[[str, str], int],  # (size, name of the call) of the fused version
    tolerance: float,
    args: argparse.Namespace,
    device: torch.device,
) -> Report:
    """Times the versions at every size, if their error is within the tolerance."""
    calls: dict[tuple[str, str], Call] = {}
    moved: dict[tuple[str, str], int] = {}
    errors: dict[str, float] = {}
    for (size, problem), version in product(problems.items(), versions):
        errors[f"{version}, {size}"] = error_of(version, *problem)
        if errors[f"{version}, {size}"] > tolerance:
            continue
        for what, call in calls_of(version, *problem).items():
            calls[version, f"{size} {what}"] = call
            if version == "fused":
                moved[version, f"{size} {what}"] = least_bytes(size, what)
    wrong = {what: error for what, error in errors.items() if error > tolerance}
    return {"errors": errors, "disagreements": wrong} | timed(calls, moved, args, device)


def table(report: Report) -> str:
    lines = [f"{report['environment']['device']}, copies at {report['copy']['gb_per_s']:.0f} GB/s, read and written"]
    lines.append(f"{'on':>36} {'version':>14} {'us':>9} {'quartiles':>20} {'least MB':>9} {'of copy':>8}")
    for row in report["rows"]:
        low, middle, high = (1e3 * row["ms"][part] for part in ("quarter", "median", "three_quarters"))
        quartiles = f"[{low:.1f}, {high:.1f}]"
        moved = (
            "" if row["least_bytes"] is None else f"{row['least_bytes'] / 1e6:9.2f} {100 * row['share_of_copy']:7.1f}%"
        )
        lines.append(f"{row['on']:>36} {row['version']:>14} {middle:9.1f} {quartiles:>20} {moved}")
    lines += [f"{what} disagrees: off by {error:.1e}" for what, error in report["disagreements"].items()]
    return "\n".join(lines)


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Adds the arguments of every such benchmark."""
    p = Parser(doc)
    p.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (%(default)s)")
    p.add_argument("--rounds", type=positive, default=30, help="samples of each call (%(default)s)")
    p.add_argument("--warmup", type=int, default=5, help="rounds before them (%(default)s)")
    p.add_argument("--copy-mib", type=positive, help="size of the tensor that is copied (512; on a CPU 64)")
    p.add_argument("--out", type=Path, help="JSON file, such as benchmarks/results/NAME.json")
    return p


def main(
    script: str,  # its path
    p: argparse.ArgumentParser,
    arguments: list[str],
    bench: Callable[[argparse.Namespace, torch.device], Report],
) -> int:
    """Prints the table and writes --out; 1 if something disagrees."""
    args, load = p.parse_args(arguments), os.getloadavg()
    with mended("train"):
        device = choose_device(args.device)
        args.copy_mib = args.copy_mib or (512 if device.type == "cuda" else 64)
        known = {"command": shlex.join(["python", script, *arguments]), "environment": environment(device)}
        report = (
            known | {"load_average_before": load, "rounds": args.rounds, "warmup": args.warmup} | bench(args, device)
        )
        if args.out:
            write_text(args.out, json.dumps(report, indent=1) + "\n")
    print(table(report))
    return int(bool(report["disagreements"]))
