# SPDX-License-Identifier: Apache-2.0
"""Profiles of real steps on a GPU; the figures of nsys against those of `nsys stats`, to the nanosecond, where both mean the same."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_capture import tiny_capture

from nurec_lite.base import nvtx
from nurec_lite.capture.pack import write_pack
from nurec_lite.profiling.errors import ProfileError
from nurec_lite.profiling.record.tools import find_tool
from nurec_lite.profiling.summary.summary import Summary, read_summary
from nurec_lite.profiling.trace.trace import plain_name

pytestmark = pytest.mark.gpu


def profiled(tool: str, folder: Path) -> Summary:
    write_pack(tiny_capture(), folder / "tiny.pack", image_format="png")
    keys = [
        "data=pack",
        f"data.root={folder / 'tiny.pack'}",
        "device=cuda",
        "warmup=3",
        "steps=4",
        f"out={folder / 'out'}",
    ]
    ended = subprocess.run(
        [sys.executable, "-m", "nurec_lite.profile", f"tool={tool}", *keys], capture_output=True, text=True, check=False
    )
    if "cannot import what it recorded" in ended.stderr:
        pytest.skip(ended.stderr)
    assert ended.returncode == 0, ended.stderr
    return read_summary(folder / "out/summary.json")


@pytest.fixture(scope="module")
def by_nsys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Summary]:
    try:
        nsys = find_tool("nsys")
    except ProfileError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("nsys")
    return nsys, folder / "out/nsys.sqlite", profiled("nsys", folder)


def stats(nsys: Path, database: Path, report: str) -> list[dict[str, str]]:
    """The rows of one report."""
    command = [str(nsys), "stats", "--quiet", "--report", report, "--format", "csv", "--output", "-", str(database)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    header = next(i for i, line in enumerate(lines) if "(ns)" in line)
    return list(csv.DictReader(line for line in lines[header:] if line))


def test_kernels_as_nsys_sums_them(by_nsys: tuple[Path, Path, Summary]) -> None:
    nsys, database, summary = by_nsys
    theirs: dict[str, tuple[int, int]] = {}
    for row in stats(nsys, database, "cuda_gpu_kern_sum"):
        n, ns = theirs.get(plain_name(row["Name"]), (0, 0))
        theirs[plain_name(row["Name"])] = n + int(row["Instances"]), ns + int(row["Total Time (ns)"])
    assert {
        k.name: (round(k.count * summary.steps), round(k.ms * summary.steps * 1e6)) for k in summary.kernels
    } == theirs


def test_waits_as_nsys_sums_them(by_nsys: tuple[Path, Path, Summary]) -> None:
    nsys, database, summary = by_nsys
    rows = {row["Name"]: row for row in stats(nsys, database, "cuda_api_sum")}
    (ours,) = [wait for wait in summary.waits if wait.call == "cudaStreamSynchronize"]
    row = next(row for name, row in rows.items() if name.startswith("cudaStreamSynchronize"))
    assert (round(ours.count * summary.steps), round((ours.ms or 0) * summary.steps * 1e6)) == (
        int(row["Num Calls"]), int(row["Total Time (ns)"])
    )  # fmt: skip
    assert ours.lines and all(line.startswith("nurec_lite/") for line in ours.lines)


def test_ranges_as_nsys_projects_them(by_nsys: tuple[Path, Path, Summary]) -> None:
    """They are the same except for the two around the launches of autograd's thread, which nsys does not count for them."""
    nsys, database, summary = by_nsys
    ours_are = f"{nvtx.domain() or ''}:"  # CUB has ranges in a domain of its own
    theirs = {
        row["Range"].removeprefix(ours_are): int(row["Total Proj Time (ns)"])
        for row in stats(nsys, database, "nvtx_gpu_proj_sum")
        if row["Range"].startswith(ours_are)
    }
    ours = {r.name: round((r.gpu_ms or 0) * summary.steps * 1e6) for r in summary.ranges if r.gpu_ms}
    for name in ("step", "step/backward"):
        assert ours.pop(name) >= theirs.pop(name, 0)
    assert ours == theirs


def test_torch_counts_as_nsys_does(by_nsys: tuple[Path, Path, Summary], tmp_path: Path) -> None:
    """Steps of the same numbers differ by the atomics' order, hence perhaps by a few launches."""
    by_torch = profiled("torch", tmp_path)
    assert by_torch.launches == pytest.approx(by_nsys[2].launches, rel=0.05)
    assert by_torch.syncs == pytest.approx(by_nsys[2].syncs, rel=0.05)
    assert {r.name for r in by_torch.ranges} == {r.name for r in by_nsys[2].ranges}


def test_torch_knows_registers_and_shared_memory(tmp_path: Path) -> None:
    summary = profiled("torch", tmp_path)
    assert summary.kernels and all(
        k.registers and k.shared is not None and k.shared_static is None for k in summary.kernels
    )
    assert summary.gpu_busy is not None and 0 < summary.gpu_busy <= 1
    assert summary.peak_bytes and summary.estimates == ("kernels.occupancy",)
