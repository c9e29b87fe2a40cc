# SPDX-License-Identifier: Apache-2.0
"""The diagnosis of the backward kernel: from a raw page of ncu that is made here to the table, and around a stand-in for ncu."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from ncu_page import NVTX, page, write_page
from PIL import Image

from benchmarks.render import diagnose_backward, diagnose_child
from benchmarks.render.contenders import BACK, Own, stages_with
from benchmarks.render.diagnose_backward import main
from benchmarks.render.diagnose_report import camera_over_lidar, compared_words, measured, table
from benchmarks.render.workload import SIZES, Size, random
from nurec_lite.base.ranges import switch
from nurec_lite.profiling.ncu.csv import read_launches
from nurec_lite.profiling.ncu.kernel import kernel

NAMES = [f"{sensor}_{workload}" for sensor in ("lidar", "camera") for workload in ("captured", "simulated", "random")]
TINY = Size(48, 30, 8, 48, 200, 30, 100)
LOADS, STORES, ATOMICS = (
    "smsp__sass_inst_executed_op_shared_ld.sum",
    "smsp__sass_inst_executed_op_shared_st.sum",
    "smsp__inst_executed_op_shared_atom.sum",
)


def launch(n: int, name: str | None, **columns: str) -> dict[str, str]:
    """In the range of an instance, around the range of the backward formula."""
    paths = ["step/backward/render"] if name is None else [f"step/backward/render/{name}", "step/backward/render"]
    ranges = ",".join(f'"12 <default domain>:{path}:none:none:none"' for path in paths)
    called = "void nurec::cuda::(anonymous namespace)::renderBackward<(bool)0>(Params)"
    return {"ID": str(n), "Kernel Name": called, NVTX: ranges} | columns


def six(names: bool = True) -> str:
    """Cameras come first, and make a quarter of the lidars' 1000 requests."""
    order = [*NAMES[3:], *NAMES[:3]]
    loads = [{LOADS: "250" if n.startswith("camera") else "1000", STORES: "0", ATOMICS: "0"} for n in order]
    return page(*(launch(k, n if names else None, **own) for k, (n, own) in enumerate(zip(order, loads, strict=True))))


def about(name: str) -> dict[str, Any]:
    counts = {"rays": 256, "entries": 5000, "contributing": 500, "executed": 4000, "lane_efficiency": 0.125}
    counts |= {"mean_tile": 50.0, "longest_tile": 600, "longest_to_mean_tile": 12.0}
    return {"name": name, "sensor": name.split("_")[0], "workload": "random", "gaussians": 9, "counts": counts}


def instances(order: list[str]) -> dict[str, Any]:
    return {"environment": {"device": "a GPU"}, "instances": [about(name) for name in order]}


def row(text: str, head: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {head} |")]
    return [cell.strip() for cell in line.split("|")[2:-1]]


# ---- from a page


def test_lidar_and_camera(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_page(tmp_path / "ncu.csv", six())
    (tmp_path / "instances.json").write_text(json.dumps(instances(NAMES)))
    main(["--from", str(tmp_path / "ncu.csv"), "--out", str(tmp_path / "out")])
    text = (tmp_path / "out/diagnosis.md").read_text()
    assert row(text, "") == [name.replace("_", ", ") for name in NAMES]  # lidars first
    assert row(text, "kernel") == ["`renderBackward<0>`"] * 6
    assert row(text, "registers a thread") == ["64"] * 6
    assert row(text, "shared memory a block, static + dynamic B") == ["1\u202f024 + 2\u202f048"] * 6
    assert row(text, "occupancy, achieved")[0] == "37.5 %" and row(text, "limited by")[0] == "registers"
    assert row(text, "shared-memory requests") == ["1 k"] * 3 + ["250"] * 3
    assert row(text, "requests a contributing pair") == ["2"] * 3 + ["0.5"] * 3
    assert row(text, "of them for bank conflicts")[0] == "750 (37.5 %)"
    assert row(text, "stall 1, cycles")[0] == "long scoreboard 12.5 (62 %)"
    assert row(text, "verdict")[0] == "latency-bound" and row(text, "a multiprocessor has a block for")[0] == "90.0 %"
    assert row(text, "the longest block")[0] == "600" and row(text, "longest over mean")[0] == "12"
    assert "make 75 % fewer shared-memory requests; a contributing pair, 75 % fewer." in text
    assert "device a GPU" in text and "never results" in text
    assert "stall 1" in capsys.readouterr().out
    for name in ("roofline.png", "stalls.png"):
        assert Image.open(tmp_path / "out" / name).width == 2400


def test_without_ranges_the_order_of_the_instances_counts(tmp_path: Path) -> None:
    kernels = [kernel(row) for row in read_launches(write_page(tmp_path / "ncu.csv", six(names=False)))]
    order = [*NAMES[3:], *NAMES[:3]]
    assert [m.name for m in measured(kernels, instances(order)["instances"])] == NAMES
    assert [m.name for m in measured(kernels, [])] == [f"launch_{k}" for k in range(6)]


def test_what_was_not_measured_is_not_zero(tmp_path: Path) -> None:
    text = page(launch(0, NAMES[0]), launch(1, NAMES[3]), without=(LOADS, "launch__registers_per_thread", "Grid Size"))
    found = measured([kernel(row) for row in read_launches(write_page(tmp_path / "ncu.csv", text))], [])
    assert row(table(found), "registers a thread") == row(table(found), "blocks") == ["not measured"] * 2
    ratios = camera_over_lidar(found)
    assert ratios["registers"] is None and ratios["sm_active"] == 1
    assert "make not measured shared-memory requests" in compared_words(ratios)


# ---- the process under ncu


def test_the_process_tells_its_instances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "small", TINY)
    file = tmp_path / "instances.json"
    arguments = ["--size", "small", "--device", "cpu", "--workloads", "random", "simulated"]
    assert diagnose_child.main([str(file), *arguments]) == 0
    found = json.loads(file.read_text())
    assert [i["name"] for i in found["instances"]] == [
        "lidar_random",
        "lidar_simulated",
        "camera_random",
        "camera_simulated",
    ]
    for instance in found["instances"]:
        assert instance["counts"]["contributing"] > 0 and instance["counts"]["longest_to_mean_tile"] >= 1
    assert "cpu" in found["environment"]["device"]


# ---- around a stand-in for ncu

STAND_IN = """#!/bin/sh
here=$(dirname "$0")
case "$1" in
  --version) echo "NVIDIA (R) Nsight Compute"; echo "Version 2025.3.1.0 (build 1)"; exit ;;
  --import) cat "$here/page.csv"; exit ;;
esac
echo "$@" >> "$here/calls"
for a; do case "$a" in *instances.json) told=$a ;; *.ncu-rep) report=$a ;; esac; done
. "$here/profile.sh"
"""
GOOD = 'cp "$here/instances.json" "$told"; touch "$report"'


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the program."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(diagnose_backward, "choose_device", lambda name: torch.device("cuda"))
    for name, text in {"ncu": STAND_IN, "profile.sh": GOOD, "page.csv": six()}.items():
        (folder / name).write_text(text)
    (folder / "ncu").chmod(0o755)
    (folder / "instances.json").write_text(json.dumps(instances(NAMES)))
    return folder


def test_the_kernel_is_measured_by_ncu(ncu: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    main(["--size", "small", "--opt", "fused_interp", "--out", str(out)])
    (call,) = (ncu / "calls").read_text().splitlines()
    for flags in (
        "--profile-from-start off", "--nvtx", "--kernel-name regex:renderBackward", "--launch-count 64",
        "--section SpeedOfLight_RooflineChart", f"-m benchmarks.render.diagnose_child {out}/instances.json", "--opt=fused_interp",
    ):  # fmt: skip
        assert flags in call
    names = {"diagnosis.md", "diagnosis.json", "ncu.csv", "ncu.log", "instances.json", "kernels.csv", "roofline.png"}
    assert names <= {path.name for path in out.iterdir()}
    assert "Nsight Compute 2025.3.1.0" in (out / "diagnosis.md").read_text()
    again = tmp_path / "again"
    main(["--from", str(out / "ncu.csv"), "--out", str(again)])
    first, second = (json.loads((folder / "diagnosis.json").read_text()) for folder in (out, again))
    assert first["instances"] == second["instances"] and second["tool_version"] == "2025.3.1.0"


class Threads:
    """A recorder that notes the thread of each range's begin."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}

    def begin(self, path: str) -> None:
        self.seen[path] = threading.get_ident()

    def end(self, path: str, begun: None) -> None: ...


@pytest.mark.gpu
def test_the_range_of_an_instance_holds_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges hold the launches of their own thread, and autograd has threads of its own unless it is told otherwise."""
    device, threads = torch.device("cuda"), Threads()
    own = Own(stages_with("", device), random(TINY, 0, None, device), "lidar")
    monkeypatch.setattr(diagnose_child, "switch", lambda nvtx: switch(timing=threads))
    diagnose_child.backward(
        diagnose_child.Instance("lidar_random", random(TINY, 0, None, device), "lidar", own), device
    )
    assert threads.seen[f"{BACK}/lidar_random"] == threads.seen[BACK] == threading.get_ident()
