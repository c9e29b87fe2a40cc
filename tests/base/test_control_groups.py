# SPDX-License-Identifier: Apache-2.0
"""Cores and memory of a container or of a cluster's job, by either version of Linux's control groups."""

from pathlib import Path

import pytest
import torch

from nurec_lite.base import control_groups, environment, threads
from nurec_lite.base.control_groups import cores_allowed, memory_left
from nurec_lite.base.environment import choose_device, free_memory
from nurec_lite.base.threads import cores

GIB = 1 << 30
CPU = torch.device("cpu")


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of groups; this process is in none yet."""
    monkeypatch.setattr(control_groups, "MOUNTED", tmp_path / "cgroup")
    monkeypatch.setattr(control_groups, "OWN", tmp_path / "own")
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    return tmp_path / "cgroup"


def own(mounted: Path, *lines: str) -> None:
    mounted.with_name("own").write_text("\n".join(lines))


def test_a_machine_without_groups_has_no_limits(mounted: Path) -> None:
    assert cores_allowed() is None and memory_left() is None and cores() == 64


@pytest.mark.parametrize(
    ("quota", "allowed", "whole"),
    [("400000 100000", 4.0, 4), ("150000 100000", 1.5, 2), ("50000 100000", 0.5, 1), ("max 100000", None, 64), ("", None, 64),
     ("9900000 100000", 99.0, 64), ("nonsense", None, 64), ("400000 0", None, 64)],
)  # fmt: skip
def test_cores_of_a_container(mounted: Path, quota: str, allowed: float | None, whole: int) -> None:
    own(mounted, "0::/")
    write(mounted, cpu__max=quota)
    assert cores_allowed() == allowed and cores() == whole


def test_outer_groups_limit_inner_ones(mounted: Path) -> None:
    """Groups of a pod, or of a job with several steps."""
    own(mounted, "0::/pod/container")
    write(mounted / "pod/container", cpu__max="max 100000", memory__max="max", memory__current=str(GIB))
    write(mounted / "pod", cpu__max="300000 100000", memory__max=str(8 * GIB), memory__current=str(3 * GIB))
    write(mounted, cpu__max="800000 100000")
    assert cores_allowed() == 3 and memory_left() == 5 * GIB


def test_files_in_the_cache_count_as_free(mounted: Path) -> None:
    own(mounted, "0::/")
    statistics = f"anon 5\ninactive_file {2 * GIB}\nactive_file 7"
    write(mounted, memory__max=str(8 * GIB), memory__current=str(7 * GIB), memory__stat=statistics)
    assert memory_left() == 3 * GIB
    write(mounted, memory__current=str(20 * GIB))
    assert memory_left() == 0


@pytest.mark.parametrize("folder", ["cpu,cpuacct", "cpu"])
def test_the_first_version(mounted: Path, folder: str) -> None:
    """The group of a container is mounted in place of the outermost one, and its path is the host's."""
    own(mounted, "4:memory:/docker/0a", "2:cpu,cpuacct:/docker/0a", "1:name=systemd:/", "0::/")
    write(mounted / folder, cpu__cfs_quota_us="250000", cpu__cfs_period_us="100000")
    memory = {"memory__limit_in_bytes": str(4 * GIB), "memory__usage_in_bytes": str(2 * GIB)}
    write(mounted / "memory", **memory, memory__stat=f"inactive_file 1\ntotal_inactive_file {GIB}")
    assert cores_allowed() == 2.5 and memory_left() == 3 * GIB


def test_the_first_version_without_limits(mounted: Path) -> None:
    own(mounted, "4:memory:/", "2:cpu:/")
    write(mounted / "cpu", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    write(mounted / "memory", memory__limit_in_bytes=str((1 << 63) - 4096), memory__usage_in_bytes=str(GIB))
    assert cores_allowed() is None and memory_left() is None


@pytest.mark.parametrize("line", ["0::/../../elsewhere", "0::", "", "2", "a:b", "0::/no/such/group"])
def test_groups_that_are_not_mounted_here(mounted: Path, line: str) -> None:
    own(mounted, line)
    write(mounted)
    assert cores_allowed() is None and memory_left() is None


@pytest.mark.parametrize(("given", "expected"), [(None, 3), ("6", 7)])
def test_torch_gets_a_thread_for_each_core_of_the_container(
    mounted: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, expected: int
) -> None:
    own(mounted, "0::/")
    write(mounted, cpu__max="300000 100000")
    if given:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(7)
        choose_device("cpu")
        assert torch.get_num_threads() == expected
    finally:
        torch.set_num_threads(before)


def test_free_memory_is_that_of_the_container(mounted: Path) -> None:
    assert free_memory(CPU) > GIB // 4
    own(mounted, "0::/")
    write(mounted, memory__max=str(GIB // 8), memory__current="0")
    assert free_memory(CPU) == GIB // 8
    assert environment.environment(CPU)["cores"] == "64"
