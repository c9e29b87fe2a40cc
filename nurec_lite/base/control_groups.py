# SPDX-License-Identifier: Apache-2.0
"""Cores and memory that Linux allows a container, or a job of a cluster: the limits of its control groups.

A container with 4 of 64 cores sees all 64, and all memory of the machine. With a thread for each core it would wait more than it computes,
and a scene that fits the machine would end it. Outer groups limit the inner ones. Sources: the kernel's cgroup-v2.rst and cgroup-v1.
"""

from collections.abc import Iterator
from pathlib import Path

MOUNTED = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")  # the groups of this process
UNLIMITED = 1 << 60  # bytes; version 1 writes a number beyond


def cores_allowed() -> float | None:  # None: no group limits them
    """Returns how many cores may be busy at a time."""
    found = [limit for group in _groups("cpu") if (limit := _cores(group)) is not None]
    return min(found, default=None)


def memory_left() -> int | None:  # bytes; None: no group limits them
    """Returns the memory that this process may still take. Files in the cache count as free, as the system drops them."""
    found = [left for group in _groups("memory") if (left := _memory(group)) is not None]
    return min(found, default=None)


def _groups(controller: str) -> Iterator[Path]:
    """Folders of the groups of this process, inner ones first, of either version."""
    for line in _text(OWN).splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" and not controllers:
            yield from _upwards(MOUNTED, path)
        elif controller in controllers.split(","):
            yield from _upwards(MOUNTED / controllers, path)
            yield from _upwards(MOUNTED / controller, path)


def _upwards(mounted: Path, path: str) -> Iterator[Path]:
    """Folders from that of the group up to the mounted one. A container sees its own group there, under the path of the host or none."""
    group = mounted / path.strip("/")
    while group != mounted and mounted in group.parents:
        yield group
        group = group.parent
    yield mounted


def _cores(group: Path) -> float | None:
    quota, period = [*_text(group / "cpu.max").split(), "", ""][:2]
    if not quota:
        quota, period = _text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")
    found, each = _number(quota), _number(period)
    return found / each if found and each else None


def _memory(group: Path) -> int | None:
    for most, used, cached in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit, taken = _number(_text(group / most)), _number(_text(group / used))
        if limit is not None and taken is not None and limit < UNLIMITED:
            return max(0, limit - taken + _statistic(group, cached))
    return None


def _statistic(group: Path, name: str) -> int:
    rows = (line.split() for line in _text(group / "memory.stat").splitlines())
    return next((_number(row[1]) or 0 for row in rows if len(row) == 2 and row[0] == name), 0)


def _number(text: str) -> int | None:
    """Returns a whole number that is no less than 0; None for "max", -1 and a file without one."""
    return int(text) if text.strip().isdecimal() else None


def _text(path: Path) -> str:
    """Returns the content of a file, empty where there is none."""
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""
