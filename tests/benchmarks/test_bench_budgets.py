# SPDX-License-Identifier: Apache-2.0
"""Quality over seconds: rows of runs that ended and of one that did not, medians over seeds, and the picture."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from benchmarks.step import bench_budgets
from benchmarks.step.bench_budgets import main
from benchmarks.step.budget_picture import points_of


def row(name: str, budget: int, seed: int, seconds: float, psnr: float, lidar: float | None = 0.05) -> dict[str, Any]:
    own = {} if lidar is None else {"lidar_median_abs_m": lidar}
    return {"set": name, "budget": budget, "seed": seed, "seconds_total": seconds, "psnr": psnr} | own


ROWS = [
    row("a", 100, 0, 4.0, 20.0), row("a", 100, 1, 6.0, 21.0), row("a", 100, 2, 5.0, 25.0), row("a", 200, 0, 9.0, 22.0, float("nan")),
    row("b", 100, 0, 30.0, 23.0, None), {"set": "b", "budget": 200, "seed": 0, "error": "error: no room"},
]  # fmt: skip


def test_points_are_medians_over_seeds() -> None:
    assert points_of(ROWS, "a", "psnr") == [(5.0, 21.0), (9.0, 22.0)]
    assert points_of(ROWS, "a", "lidar_median_abs_m") == [(5.0, 0.05)]
    assert points_of(ROWS, "b", "psnr") == [(30.0, 23.0)]


def ended(arguments: list[str]) -> Any:
    """Stands in for a training: its metrics follow from its arguments."""

    def run(command: list[str], **rest: Any) -> Any:
        given = dict(word.split("=", 1) for word in command if "=" in word and not word.startswith("+"))
        arguments.append(" ".join(command[3:]))
        if "bad" in command:
            return SimpleNamespace(returncode=1, stderr="a warning\nerror: key 'bad' has no value\n", stdout="")
        folder = Path(given["out"])
        folder.mkdir()
        figures = {"psnr": 20 + int(given["train.steps"]) / 100, "seconds_total": 3.0, "secret": 1}
        (folder / "metrics.json").write_text(json.dumps(figures))
        return SimpleNamespace(returncode=0, stderr="", stdout="")

    return run


def test_runs_take_turns_and_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(bench_budgets, "subprocess", SimpleNamespace(run=ended(seen)))
    out = tmp_path / "made/curve"
    code = main(
        ["--set", "a=+opt=all", "--set", "b=bad", "--steps", "100", "--seeds", "0", "1", "--out", str(out), "data=pack"]
    )
    assert code == 1
    assert [line.split(" train.steps")[0] for line in seen] == ["data=pack +opt=all", "data=pack bad"] * 2
    report = json.loads((tmp_path / "made/curve.json").read_text())
    assert [r["set"] for r in report["rows"]] == ["a", "b", "a", "b"] and "secret" not in report["rows"][0]
    assert report["rows"][1]["error"] == "error: key 'bad' has no value"
    assert Image.open(tmp_path / "made/curve.png").size == (1920, 860)
    assert "failed: error: key 'bad'" in capsys.readouterr().out
    (tmp_path / "made/curve.png").unlink()
    assert main(["--from", str(tmp_path / "made/curve.json")]) == 1
    assert (tmp_path / "made/curve.png").is_file()
