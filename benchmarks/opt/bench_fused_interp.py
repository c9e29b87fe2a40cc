# SPDX-License-Identifier: Apache-2.0
"""Cost of moving the Gaussians of all actors into the world: tracks interpolated at the query times, poses applied. The
option fused_interp does it with one operator; other ways are measured next to it.

    python benchmarks/opt/bench_fused_interp.py --out benchmarks/results/NAME.json
    python benchmarks/opt/bench_fused_interp.py --capture data=pack data.root=FILE --out benchmarks/results/NAME.json

Versions (benchmarks/opt/interpolate_versions.py): node by node, and all tracks at once in torch, both with the background copied, as a
scene graph and the trainer's baseline do; all at once without it; that compiled by torch.compile; and the operator move_actors. First
every version is compared with one in float64, outputs and gradients; only those that agree are timed: to 1e-5, torch's own sums over all
Gaussians of a keyframe to 1e-4, since it adds up single floats one after another (1.2e-5 was found on an H200, ours 5e-7). Rounds take
every version in turn, in both orders. Each sample is timed right after two copies of a large tensor: they empty the caches, let the host
queue ahead, and the second gives the bandwidth that the sample's bytes are compared with. Bytes are the least that must move: every row of
a Gaussian is read and written once, keyframes and poses are neglected. The forward pass keeps the backward pass's inputs.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.quiet import Others
from benchmarks.opt.interpolate_versions import (
    VERSIONS,
    Moved,
    Version,
    differences,
    unavailable,
    upstream_of,
    with_gradients,
)
from benchmarks.opt.interpolate_workload import KEYS, ON_ACTORS, STILL, TRACKS, Workload, captured, invented
from benchmarks.step.bench_step import mark, milliseconds, positive, spread
from nurec_lite.base.environment import choose_device, environment
from nurec_lite.base.files import write_text
from nurec_lite.base.program import Parser
from nurec_lite.cli.command import composed, mended
from nurec_lite.readers import open_capture
from nurec_lite.scene.init import make_scene

TOLERANCE = 1e-5  # largest difference, as benchmarks.opt.interpolate_versions.differences counts it
SUMS = ("d_translations", "d_quaternions")  # torch adds up a keyframe's in single precision, one after another
SUMS_TOLERANCE = 1e-4  # of these, unless they are ours
KINDS = ("forward", "forward_backward")
CPU_SCALE = 0.02


def bench(args: argparse.Namespace) -> dict[str, Any]:
    """All that goes into the file, conditions first."""
    device, load, others = choose_device(args.device), os.getloadavg(), Others()
    workload, described = _workload(args, device)
    upstream = upstream_of(workload)
    rows = _checked(workload, upstream, args.versions)
    able = [name for name, row in rows.items() if row["status"] is None]
    copied = torch.empty(2, args.copy_mib << 18, device=device).zero_()  # floats; written, so that the pages are there
    calls = {(name, kind): _call(VERSIONS[name], workload, upstream, kind) for name in able for kind in KINDS}
    taken = measure(calls, args.warmup, args.rounds, lambda: copied[1].copy_(copied[0]), device)
    known = {
        "command": shlex.join(["python", "benchmarks/opt/bench_fused_interp.py", *args.arguments]),
        "environment": environment(device),
        "load_average_before": load, "cores_busy_with_others": others.cores(), "workload": described,
        "rounds": args.rounds, "warmup": args.warmup, "tolerance": TOLERANCE, "tolerance_of_torch_s_sums": SUMS_TOLERANCE,
    }  # fmt: skip
    return known | _figures(rows, taken, workload, 2 * copied[0].nbytes)


def measure(
    calls: dict[tuple[str, str], Callable[[], object]],  # by version and kind
    warmup: int,
    rounds: int,
    copy: Callable[[], object],
    device: torch.device,
) -> dict[tuple[str, str], list[tuple[float, float]]]:  # milliseconds of the copy and of the call, by round
    taken: dict[tuple[str, str], list[tuple[float, float]]] = {key: [] for key in calls}
    for n in range(warmup + rounds):
        for key in calls if n % 2 == 0 else reversed(calls):
            taken[key].append(_sample(calls[key], copy, device))
    return {key: samples[warmup:] for key, samples in taken.items()}


def _sample(call: Callable[[], object], copy: Callable[[], object], device: torch.device) -> tuple[float, float]:
    copy()
    first = mark(device)
    copy()
    second = mark(device)
    result = call()
    third = mark(device)
    del result  # the time of freeing does not count
    return milliseconds(first, second), milliseconds(second, third)


def _call(version: Version, w: Workload, upstream: dict[bool, Moved], kind: str) -> Callable[[], object]:
    given = upstream[version.copies]
    return (lambda: version.run(w)) if kind == "forward" else (lambda: with_gradients(version, w, given))


# ---- the check


def _checked(w: Workload, upstream: dict[bool, Moved], names: list[str]) -> dict[str, dict[str, Any]]:
    """A row a version: why it is not timed (None if it is), and how far each of its tensors is off."""
    means, quats, velocities, rotations = (x.double() for x in upstream[True])
    exact = VERSIONS["vectorised_copy"]
    truth = with_gradients(exact, w.to(torch.float64), (means, quats, velocities, rotations))
    rows = {}
    for name in names:
        status, errors = unavailable(name, w), None
        if status is None:
            version = VERSIONS[name]
            errors = differences(with_gradients(version, w, upstream[version.copies]), truth)
            status = disagreement(name, errors)
        rows[name] = {"copies_background": VERSIONS[name].copies, "status": status, "relative_errors": errors}
    return rows


def disagreement(version: str, errors: dict[str, float]) -> str | None:
    """The tensor that is furthest off, if that is too far."""
    bars = {x: SUMS_TOLERANCE if x in SUMS and version != "fused" else TOLERANCE for x in errors}
    worst = max(errors, key=lambda x: errors[x] / bars[x])
    return None if errors[worst] <= bars[worst] else f"disagrees: {worst} is off by {errors[worst]:.1e}"


# ---- the figures


def least_bytes(actors: int, background: int, queries: int, kind: str) -> int:
    """Bytes that must move at least, in float32. Forward: mean and quaternion are read once; mean, quaternion and velocity are written for
    every query time. Backward: gradients of those are read; mean and quaternion are read again for the poses' gradients (not for the
    background); their gradients are written."""
    read, written = 4 * (3 + 4), 4 * (3 + 4 + 3) * queries
    forward = (actors + background) * (read + written)
    if kind == "forward":
        return forward
    return forward + actors * (written + read + read) + background * (read * queries + read)


def _figures(
    rows: dict[str, dict[str, Any]],
    taken: dict[tuple[str, str], list[tuple[float, float]]],
    w: Workload,
    copied_bytes: int,  # read and written by one copy
) -> dict[str, Any]:
    copies = spread([ms for samples in taken.values() for ms, _ in samples]) if taken else None
    bandwidth = copied_bytes / copies["median"] / 1e6 if copies else None
    for (name, kind), samples in taken.items():
        times, ours = [ms for _, ms in samples], [ms for _, ms in taken.get(("fused", kind), [])]
        background = len(w.still_means) if VERSIONS[name].copies else 0
        n_bytes = least_bytes(len(w.means), background, len(w.times), kind)
        ms = spread(times)
        rows[name][kind] = {
            "ms": ms, "least_bytes": n_bytes, "share_of_copy": n_bytes / ms["median"] / 1e6 / bandwidth if bandwidth else None,
            "times_fused": spread([a / b for a, b in zip(times, ours, strict=True)]) if ours else None,
            "single_ms": [round(t, 5) for t in times],
        }  # fmt: skip
    return {"copy": {"bytes": copied_bytes, "ms": copies, "gb_per_s": bandwidth}, "versions": rows}


def text(report: dict[str, Any]) -> str:
    w, copy = report["workload"], report["copy"]
    lines = [
        f"{w['name']}: {w['tracks']} tracks, {w['keys']} keyframes in all, {w['queries']} query times, {w['actors']} Gaussians "
        f"on actors, {w['background']} of the background, {report['environment']['device']}"
    ]
    if copy["gb_per_s"]:
        lines.append(f"copy of {copy['bytes'] / 2**21:.0f} MiB: {copy['gb_per_s']:.1f} GB/s, read and written")
    for kind in KINDS:
        lines.append(f"{kind:16} {'ms':>9} {'quartiles':>20} {'least MB':>9} {'of copy':>8} {'to fused':>9}")
        lines += [_line(name, row, kind) for name, row in report["versions"].items()]
    return "\n".join(lines)


def _line(name: str, row: dict[str, Any], kind: str) -> str:
    if row["status"]:
        return f"{name:16} {row['status']}"
    r = row[kind]
    quartiles = f"[{r['ms']['quarter']:.3f}, {r['ms']['three_quarters']:.3f}]"
    ratio = f"{r['times_fused']['median']:9.2f}" if r["times_fused"] else f"{'-':>9}"
    share = f"{100 * r['share_of_copy']:7.1f}%"
    return f"{name:16} {r['ms']['median']:9.3f} {quartiles:>20} {r['least_bytes'] / 1e6:9.2f} {share} {ratio}"


# ---- the command


def _workload(args: argparse.Namespace, device: torch.device) -> tuple[Workload, dict[str, Any]]:
    if args.capture is not None:
        config = composed("train", args.capture)
        capture = open_capture(config.data)
        made = captured(make_scene(capture, config.model, config.seed, device), capture, device)
        name, scale = capture.name, None
    else:
        scale = args.scale or (1.0 if device.type == "cuda" else CPU_SCALE)
        actors, background = (max(1, round(n * scale)) for n in (args.actors, args.background))
        made = invented(args.tracks, args.keys, args.queries, actors, background, 0, device)
        name = f"invented, Gaussians scaled by {scale:g}"
    return made, {
        "name": name, "scale": scale, "tracks": len(made.tracks), "keys": len(made.tracks.times), "queries": len(made.times),
        "actors": len(made.means), "background": len(made.still_means),
    }  # fmt: skip


def parser() -> argparse.ArgumentParser:
    p = Parser(__doc__)
    p.add_argument("--tracks", type=positive, default=TRACKS, help="(%(default)s)")
    p.add_argument("--keys", type=positive, default=KEYS, help="keyframes of each (%(default)s)")
    p.add_argument("--queries", type=positive, default=3, help="times (%(default)s)")
    p.add_argument("--actors", type=positive, default=ON_ACTORS, help="Gaussians of all actors (%(default)s)")
    p.add_argument("--background", type=positive, default=STILL, help="Gaussians that stand still (%(default)s)")
    p.add_argument("--scale", type=float, help=f"of both numbers of Gaussians (1; on a CPU {CPU_SCALE})")
    p.add_argument("--capture", nargs="*", metavar="KEY=VALUE", help="of nurec_lite.train: its initial scene instead")
    p.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (%(default)s)")
    p.add_argument("--versions", nargs="+", choices=VERSIONS, default=list(VERSIONS), help="(all)")
    p.add_argument("--rounds", type=positive, default=30, help="samples of each version (%(default)s)")
    p.add_argument("--warmup", type=int, default=5, help="rounds before them (%(default)s)")
    p.add_argument("--copy-mib", type=positive, help="size of the tensor that is copied (512; on a CPU 64)")
    p.add_argument("--out", type=Path, help="JSON file, such as benchmarks/results/NAME.json")
    return p


def main(arguments: list[str]) -> None:
    args = parser().parse_args(arguments)
    args.arguments = arguments
    with mended("train"):
        args.copy_mib = args.copy_mib or (512 if choose_device(args.device).type == "cuda" else 64)
        report = bench(args)
        if args.out:
            write_text(args.out, json.dumps(report, indent=1) + "\n")
    print(text(report))
    if any((row["status"] or "").startswith("disagrees") for row in report["versions"].values()):
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
