# SPDX-License-Identifier: Apache-2.0
"""One side of a comparison: the figures of a profile of any tool, under names that both sides share."""

import shlex
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nurec_lite.base.texts import read_json
from nurec_lite.profiling.errors import ProfileError
from nurec_lite.profiling.summary.summary import RangeTime, Summary, read_summary

Known = float | None  # None: the tool did not tell


@dataclass(frozen=True)
class Resources:
    """Registers and shared memory of a kernel."""

    registers: Known  # a thread
    shared: Known  # bytes a block, static and dynamic


@dataclass(frozen=True)
class Side:
    """A profile, as `compare` sees it."""

    path: Path
    tool: str  # nsys, torch or ncu
    environment: dict[str, str]
    whole: bool  # whether every kernel of a step is listed, so that one that is not listed was not launched
    totals: dict[str, Known] = field(default_factory=dict)  # counts and bytes, a step
    times: dict[str, Known] = field(default_factory=dict)  # ms, a step (ncu: a launch)
    kernel_times: dict[str, Known] = field(default_factory=dict)  # the same of kernels
    kernels: dict[str, Resources] = field(default_factory=dict)
    samples: dict[str, tuple[float, ...]] = field(default_factory=dict)  # ms, of steps (ncu: of a kernel's launches)
    sum_ms: Known = None  # a step: all launches of all kernels that were recorded
    overrides: tuple[str, ...] = ()  # arguments of the command that recorded it, but for `out`

    def chosen(self, key: str) -> str | None:
        """The value that an override gives a key."""
        found = [
            argument.partition("=")[2] for argument in self.overrides if argument.lstrip("+").startswith(f"{key}=")
        ]
        return found[-1] if found else None


def read_side(
    path: Path,  # summary.json, kernels.json, or a folder that holds one of them
) -> Side:
    file = _file(path)
    return _of_kernels(file) if file.name.endswith("kernels.json") else _of_summary(file, read_summary(file))


def _file(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = [path / name for name in ("summary.json", "kernels.json") if (path / name).is_file()]
    if len(found) != 1:
        what = "holds both summary.json and kernels.json" if found else "holds neither summary.json nor kernels.json"
        raise ProfileError(f"{path} {what}; name the file that is meant, as nurec_lite.profile wrote it")
    return found[0]


def _of_summary(path: Path, summary: Summary) -> Side:
    by_name = defaultdict(list)
    for kernel in summary.kernels:
        by_name[kernel.name].append(kernel)
    totals = {
        "launches": summary.launches, "graph launches": summary.graph_launches, "syncs": summary.syncs,
        "copies": summary.copies, "bytes": summary.copied_bytes, "allocations": summary.allocations,
        "memory": None if summary.peak_bytes is None else float(summary.peak_bytes),
    }  # fmt: skip
    return Side(
        path=path,
        tool=summary.tool,
        environment=summary.environment,
        whole=bool(summary.kernels),
        totals=totals,
        times={"whole step": summary.step_ms, "idle GPU": summary.idle_ms} | _range_times(summary.ranges),
        kernel_times={name: sum(k.ms for k in rows) for name, rows in by_name.items()},
        kernels={
            name: Resources(
                _largest(k.registers for k in rows),
                _largest(_shared(k.shared, k.shared_static, k.shared_dynamic) for k in rows),
            )
            for name, rows in by_name.items()
        },
        samples={"step": summary.step_times_ms} if summary.step_times_ms else {},
        sum_ms=sum(kernel.ms for kernel in summary.kernels) if summary.kernels else None,
        overrides=_overrides(summary.command),
    )


def _overrides(command: object) -> tuple[str, ...]:
    """Arguments after `python -m nurec_lite.profile`; none where the profile does not say how it was made."""
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        words = []
    return tuple(word for word in words if "=" in word and not word.startswith("out="))


def _range_times(ranges: Iterable[RangeTime]) -> dict[str, Known]:
    """Times on the GPU, if there is one, and on the host, under different names."""
    times: dict[str, Known] = {}
    for r in ranges:
        times |= {} if r.gpu_ms is None else {r.name: r.gpu_ms}
        times |= {} if r.cpu_ms is None else {f"{r.name} (host)": r.cpu_ms}
    return times


def _of_kernels(path: Path) -> Side:
    """Figures of ncu: a handful of launches of some kernels, so nothing about a step."""
    content = _kernels_json(path)
    by_name: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for kernel in content["kernels"]:
        by_name[kernel["name"]].append(kernel)
    samples = {name: tuple(k["ms"] for k in rows if k["ms"] is not None) for name, rows in by_name.items()}
    return Side(
        path=path,
        tool="ncu",
        environment=content.get("environment", {}),
        whole=False,
        kernel_times={name: sum(ms) / len(ms) if ms else None for name, ms in samples.items()},
        kernels={
            name: Resources(
                _largest(k["registers"] for k in rows),
                _largest(_shared(None, k.get("shared_static"), k.get("shared_dynamic")) for k in rows),
            )
            for name, rows in by_name.items()
        },
        samples=samples,
        sum_ms=_sum_a_step(samples, content.get("steps")),
        overrides=_overrides(content.get("command")),
    )


def _sum_a_step(samples: dict[str, tuple[float, ...]], steps: object) -> Known:
    known = isinstance(steps, int) and steps > 0 and any(samples.values())
    return sum(ms for launches in samples.values() for ms in launches) / steps if known else None  # type: ignore[operator]


def _kernels_json(path: Path) -> dict[str, Any]:
    """The profile; its kernels may lack shared memory, which condensed results leave out."""
    needed = {"name", "ms", "registers"}
    try:
        content = read_json(path)
        rows = content["kernels"]
        known = isinstance(content, dict) and all(needed <= row.keys() for row in rows)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProfileError(
            f"{path} cannot be read: {error}; name a kernels.json of nurec_lite.profile tool=ncu"
        ) from error
    if not known:
        raise ProfileError(f"{path} lacks {', '.join(sorted(needed))} of a kernel; take the profile again")
    return content


def _shared(both: Known, static: Known, dynamic: Known) -> Known:
    if both is not None:
        return both
    return None if static is None or dynamic is None else static + dynamic


def _largest(values: Iterable[Known]) -> Known:
    """Returns the largest value; None if one is not known, since it might be the largest."""
    listed = list(values)
    known = [value for value in listed if value is not None]
    return max(known) if known and len(known) == len(listed) else None
