# SPDX-License-Identifier: Apache-2.0
"""benchmarks/render/compare_diagnoses.py: ratios by hand, the table, lengths of bars, and mistakes."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.render.compare_diagnoses import (
    COLOURS,
    Figures,
    main,
    pairs,
    read,
    table,
)

ROOT = Path(__file__).resolve().parents[2]


def kernel(**changed: Any) -> dict[str, Any]:
    """2 cycles at barriers and 1.5 for other reasons between two instructions of a warp, which take a cycle themselves."""
    return {
        "ms": 8.0, "instructions": 3e9, "sm_active": 40.0, "issue_active": 60.0, "occupancy_achieved": 30.0,
        "occupancy_theoretical": 50.0, "warp_cycles": 5.0, "stalls": {"barrier": 2.0, "wait": 0.5, "drain": 1.5}, **changed,
    }  # fmt: skip


def diagnosis(path: Path, *kernels: tuple[str, dict[str, Any]], **changed: Any) -> Path:
    instances = [{"name": name, "sensor": name.split("_")[0], "kernel": counted} for name, counted in kernels]
    path.write_text(json.dumps({"format": 1, "instances": instances} | changed))
    return path


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return diagnosis(tmp_path / "before.json", ("lidar_captured", kernel()), ("camera_random", kernel(ms=2.0)))


@pytest.fixture
def after(tmp_path: Path) -> Path:
    """Half the instructions, 3/2 of the multiprocessors, 2/3 of the issue slots: twice as fast."""
    faster = kernel(ms=4.0, instructions=1.5e9, sm_active=60.0, issue_active=40.0, occupancy_theoretical=62.5)
    return diagnosis(tmp_path / "after.json", ("camera_random", kernel(ms=2.5)), ("lidar_captured", faster))


def test_ratios_by_hand(before: Path, after: Path) -> None:
    lidar, camera = pairs(read(before), read(after))
    assert (lidar.name, camera.name) == ("lidar, captured", "camera, random")  # as in the first file
    assert lidar.speedup == 2 and lidar.factors == pytest.approx((2, 1.5, 2 / 3))
    assert camera.speedup == 0.8 and camera.factors == (1, 1, 1)


def test_cycles_by_reason_add_up() -> None:
    parts = Figures(**kernel()).parts()
    assert list(parts) == list(COLOURS)
    assert {reason: cycles for reason, cycles in parts.items() if cycles} == {
        "issuing": 1.0, "barrier": 2.0, "wait": 0.5, "other": 1.5,
    }  # fmt: skip


def test_the_command(before: Path, after: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(before), str(after), "--out", str(tmp_path / "both.png")])
    assert "| lidar, captured | 8.00 -> 4.00 |" in capsys.readouterr().out
    assert (tmp_path / "both.png").stat().st_size > 1000


def test_the_story_has_the_table_of_the_results() -> None:
    results, story = ROOT / "benchmarks/results", (ROOT / "docs/story-2-kernels.md").read_text()
    kinds = [results / f"diagnosis_backward_{kind}_h200/diagnosis.json" for kind in ("unified", "split")]
    rows = table(pairs(*map(read, kinds))).splitlines()[2:]
    assert len(rows) == 6 and "\n".join(rows) in story
