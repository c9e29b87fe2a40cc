# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the viewer: its report, on a scene that nothing was trained of."""

import json
from pathlib import Path

import pytest
from tiny_capture import tiny_capture, tiny_state

from benchmarks.render.bench_viewer import main
from nurec_lite.training.loop import save


def test_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tiny_state(), tmp_path / "run/checkpoint.pt")
    monkeypatch.setattr("nurec_lite.cli.reconstruction.open_capture", lambda config, origin, known: tiny_capture())
    given = ["--checkpoint", str(tmp_path / "run"), "--device", "cpu", "--size", "32x18", "--seconds", "0.3"]
    main([*given, "--browsers", "1", "3", "--out", str(tmp_path / "out.json")])
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["size"] == [32, 18] and found["flight"]["pictures"] > 0
    assert found["flight"]["ms_p50"] <= found["flight"]["ms_p95"]
    assert [row["browsers"] for row in found["requests"]] == [1, 3]
    assert all(row["pictures_timed"] > 0 for row in found["requests"])


def test_a_size_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--checkpoint", "nowhere", "--size", "large"])
    assert end.value.code == 2 and "error: " in capsys.readouterr().err
