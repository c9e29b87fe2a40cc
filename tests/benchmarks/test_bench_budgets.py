# SPDX-License-Identifier: Apache-2.0
"""Quality over seconds: rows of runs that ended and of one that did not, medians over seeds, and the picture."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks.step import bench_budgets
from benchmarks.step.bench_budgets import main, named
from benchmarks.step.budget_picture import curves, points_of, table


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


def test_the_table_names_what_failed() -> None:
    lines = table(ROWS).splitlines()
    assert lines[0].split() == ["a", "100", "steps,", "seed", "0:", "20.00", "dB,", "lidar", "0.050", "m,", "4.0", "s"]
    assert lines[4].endswith("23.00 dB, 30.0 s") and lines[5].endswith("failed: error: no room")


@pytest.mark.parametrize("rows", [ROWS, ROWS[-1:], ROWS[:1]], ids=["all", "none that ended", "one"])
def test_the_picture_is_drawn_of_any_rows(rows: list[dict[str, Any]]) -> None:
    picture = curves({"rows": rows, "environment": {"device": "x"}})
    assert picture.dtype == np.uint8 and picture.shape == (860, 1920, 3) and int(picture.min()) < 120


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


@pytest.mark.parametrize(("arguments", "words"), [
    ([], "no set is given"),
    (["--from", "nothing.json"], "nothing.json holds no figures of this benchmark"),
])  # fmt: skip
def test_what_is_missing_is_a_sentence(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code not in (0, None)
    captured = capsys.readouterr()
    assert words in captured.err + str(stopped.value.code)


def test_a_set_has_a_name() -> None:
    assert named("real=+recipe=realtime '+opt=[a,b]'") == ("real", ["+recipe=realtime", "+opt=[a,b]"])
    with pytest.raises(Exception, match="is no set such as"):
        named("+recipe=realtime".replace("=", " "))
