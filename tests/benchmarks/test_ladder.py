# SPDX-License-Identifier: Apache-2.0
"""benchmarks/ladder/ladder.py: its rungs, medians and speedups by hand, errors that stay in the table, the page, and a real run."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tiny_capture import tiny_capture, tiny_config

from benchmarks.common.quiet import Others, busy_seconds, own_seconds
from benchmarks.ladder.ladder import Rung, main, most_others, parsed, read, rungs_of, write
from benchmarks.ladder.ladder import sample as take
from benchmarks.ladder.ladder_child import measured
from benchmarks.ladder.ladder_results import Row, fill, markers, rows_of, section, table
from nurec_lite.base.errors import UserError
from nurec_lite.capture.pack import write_pack
from nurec_lite.config import DataConfig

CONDITIONS: dict[str, Any] = {
    "command": "python benchmarks/ladder/ladder.py --rungs '' workers", "date": "2026-11-21", "cpu": "a processor",
    "environment": {"device": "cpu, 2 threads", "torch": "2.13.0", "commit": "abc", "cores": "2"}, "capture": "street", "image": [192, 96],
    "gaussians": 36000, "lidar_rays": 2048, "repeat": 3, "warmup": 10, "steps": 3,
    "others_cores": 0.126,
}  # fmt: skip


BEGIN, END = "<!-- ladder:cpu:begin -->", "<!-- ladder:cpu:end -->"


def sample_of(*step_ms: float, peak_mib: float = 100.0) -> dict[str, Any]:
    return {"step_ms": list(step_ms), "peak_bytes": int(peak_mib * (1 << 20))}


def ladder() -> list[Rung]:
    """Medians of rounds: 20, 40, 10 against 10, 16, 10; the third fails."""
    return [
        Rung("baseline", (), [sample_of(20, 19, 30), sample_of(40, 40, 41), sample_of(9, 10, 11)]),
        Rung(
            "workers", ("workers",), [sample_of(10, 9, 11), sample_of(16, 15, 17), sample_of(10, 10, 10, peak_mib=50)]
        ),
        Rung("broken", ("broken",), [sample_of(1, 1, 1)], error="option 'broken' cannot run | here"),
    ]


# ---- arguments


def test_a_rung_is_a_set_of_options() -> None:
    rungs = rungs_of(["", "workers", "workers, amp"], cumulative=False)
    assert [(r.label, r.options) for r in rungs] == [
        ("baseline", ()), ("workers", ("workers",)), ("workers + amp", ("workers", "amp"))
    ]  # fmt: skip
    assert rungs[2].overrides(["seed=1"]) == ["+opt=[workers,amp]", "seed=1"]
    assert rungs[0].overrides([]) == ["+opt=[]"]


def test_cumulative_rungs_add_up() -> None:
    rungs = rungs_of(["", "workers", "amp,workers", "batch"], cumulative=True)
    assert [r.options for r in rungs[1:3]] == [("workers",), ("workers", "amp")]
    assert (rungs[3].label, rungs[3].options) == ("+ batch", ("workers", "amp", "batch"))


@pytest.mark.parametrize(("names", "cumulative"), [(["", "a", "a"], False), (["", "a", "a"], True), (["", ""], False)])
def test_one_set_twice_is_a_mistake(names: list[str], cumulative: bool) -> None:
    with pytest.raises(UserError, match="names one set of options twice"):
        rungs_of(names, cumulative)


# ---- figures


def test_medians_speedups_and_spreads_are_those_by_hand() -> None:
    first, second, third = rows_of(ladder())
    assert (first.step_ms, first.step_ms_q1, first.step_ms_q3) == (20, 11, 40)  # of 9 10 11 19 20 30 40 40 41
    assert (first.speedup, first.speedup_q1, first.speedup_q3) == (1, 1, 1)
    assert (second.step_ms, second.rounds, second.peak_mib) == (10, 3, 100)  # of 9 10 10 10 10 11 15 16 17
    assert (second.speedup, second.speedup_q1, second.speedup_q3) == (2, 1.5, 2.25)  # of 2, 2.5 and 1
    assert third == Row("broken", "broken", error="option 'broken' cannot run | here")


def test_without_a_baseline_there_is_no_speedup() -> None:
    rungs = ladder()
    rungs[0].error = "lost"
    assert rows_of(rungs)[1].speedup is None and rows_of(rungs)[1].step_ms == 10


def test_the_table_holds_failed_rungs_and_quality_next_to_speed() -> None:
    rungs = ladder()
    assert table(rows_of(rungs)).splitlines() == [
        "| rung | step | speedup | peak memory |",
        "|---|---:|---:|---:|",
        "| baseline | 20.0 (11.0 to 40.0) ms | 1.000 (1.000 to 1.000) | 100 MiB |",
        "| workers | 10.0 (10.0 to 15.0) ms | 2.000 (1.500 to 2.250) | 100 MiB |",
        "| broken | failed: option 'broken' cannot run \\| here | – | – |",
    ]
    rungs[0].quality = {"psnr": 31.25, "lidar_median_abs_m": 0.0812, "seconds_train": 9.0}
    lines = table(rows_of(rungs)).splitlines()
    assert lines[0].endswith("| PSNR | lidar median |") and lines[2].endswith("| 31.25 dB | 0.081 m |")
    assert lines[3].endswith("| – | – |") and lines[4].count("–") == 4


# ---- the page


def test_only_what_stands_between_the_markers_changes(tmp_path: Path) -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    text = section(rows_of(ladder()), CONDITIONS, tmp_path / "benchmarks/results/mine", tmp_path / "docs")
    once = fill(page, text, markers(CONDITIONS), "page")
    assert fill(once, text, markers(CONDITIONS), "page") == once
    lines = once.splitlines()
    assert (lines[0], lines[1], lines[-2], lines[-1]) == ("before", BEGIN, END, "after")
    assert "old" not in lines and "| baseline | 20.0 (11.0 to 40.0) ms | 1.000 (1.000 to 1.000) | 100 MiB |" in lines
    assert "](../benchmarks/results/mine/waterfall.png)" in once and str(tmp_path) not in once


def test_a_ladder_is_read_again(tmp_path: Path) -> None:
    write(tmp_path, ladder(), rows_of(ladder()), CONDITIONS)
    assert read(tmp_path) == (ladder(), json.loads(json.dumps(CONDITIONS)))
    (tmp_path / "ladder.json").write_text('{"rungs": [{"options": []}]}')
    with pytest.raises(UserError, match=r"holds no ladder\.json of this benchmark"):
        read(tmp_path)


# ---- processes


def test_busy_cores_are_others_until_their_process_is_one_of_ours_that_ended() -> None:
    spin = "import time; print(1, flush=True)\nwhile time.process_time() < 0.5: pass"
    mine, others = own_seconds(), Others()
    with subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline()
        while child.poll() is None and busy_seconds() - (others.all or 0) < 0.4:  # type: ignore[operator]
            time.sleep(0.02)
        cores = others.cores()
    assert cores is not None and cores > 0.2
    assert own_seconds() - mine >= 0.5


def test_a_disturbed_sample_is_taken_again_and_then_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    others = iter([0.9, 0.4, 0.1, *([0.5] * 10)])

    def attempt(rung: Rung, args: Any) -> None:
        rung.samples.append(sample_of(1.0) | {"others_cores": next(others)})

    monkeypatch.setattr("benchmarks.ladder.ladder.attempt", attempt)
    rung, args = Rung("baseline", ()), parsed(["--others", "0.2"])
    take(rung, args)
    assert [s["others_cores"] for s in rung.samples] == [0.1] and most_others([rung]) == 0.1 and rung.error is None
    take(rung, args)
    assert (
        len(rung.samples) == 1 and rung.error == "other programs kept more than 0.2 cores busy in 10 tries (--others)"
    )


def test_a_sample_counts_the_steps_after_the_warm_up(tmp_path: Path) -> None:
    write_pack(tiny_capture(), tmp_path / "tiny.pack")
    config = tiny_config(None, data=DataConfig(kind="pack", root=str(tmp_path / "tiny.pack")), ops="reference")
    found = measured(config, warmup=1, steps=3)
    assert len(found["step_ms"]) == 3 and min(found["step_ms"]) > 0
    assert found["image"] == [40, 24] and found["peak_bytes"] > 1 << 20 and found["environment"]["torch"]


@pytest.mark.slow
def test_a_ladder_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pack(tiny_capture(), tmp_path / "tiny.pack")
    small = ["data=pack", f"data.root={tmp_path / 'tiny.pack'}", "ops=reference", "device=cpu", "train.lidar_rays=64",
             "model.points=300", "model.raised_points=60", "model.far_points=40"]  # fmt: skip
    counts = ["--repeat", "2", "--warmup", "1", "--steps", "2", "--quality-steps", "2", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["ladder.py", "--rungs", "", "nothing", *small, *counts])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1, "a rung failed"
    written = json.loads((tmp_path / "out/ladder.json").read_text())
    good, bad = written["rungs"]
    assert (
        [len(s["step_ms"]) for s in good["samples"]] == [2, 2] and good["error"] is None and good["quality"]["psnr"] > 5
    )
    assert bad["samples"] == [] and bad["error"].startswith("option 'nothing' is unknown; the options are")
    assert (written["repeat"], written["steps"], written["capture"]) == (2, 2, good["samples"][0]["capture"])
    assert Image.open(tmp_path / "out/waterfall.png").width == 1920
    said = capsys.readouterr().out
    turns = [line for line in said.splitlines() if line.startswith("round")]
    assert [line.partition(":")[0] for line in turns] == [
        "round 1 of 2, baseline", "round 1 of 2, nothing", "round 2 of 2, baseline"
    ]  # fmt: skip
    assert "| nothing | failed: option 'nothing' is unknown" in said
