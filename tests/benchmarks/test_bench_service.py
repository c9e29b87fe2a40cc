# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the service: its report on a small scene, and that a service which does not start is a sentence."""

import json
from pathlib import Path

import pytest

pytest.importorskip("google.protobuf")
from served import BEAMS, tiny_run

from benchmarks.render.bench_service import CAMERAS, main


def test_report(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    given = [
        "--run",
        str(tiny_run(tmp_path / "mine")),
        "--size",
        "32x18",
        "--rounds",
        "2",
        "--warmup",
        "1",
        "--device",
        "cpu",
    ]
    (tmp_path / "few.yaml").write_text(BEAMS)
    main(
        [
            *given,
            "--clients",
            "2",
            "--out",
            str(out),
            "--lidars",
            "100",
            "--device",
            "cpu",
            f"patterns={tmp_path / 'few.yaml'}",
        ]
    )
    found = json.loads(out.read_text())
    rows = found["rows"]
    assert rows.keys() == {"one camera", "six cameras", "100", "clients"} and found["jpeg_bytes"] > 100
    assert rows["six cameras"]["ms_per_frame"] == pytest.approx(rows["six cameras"]["ms"]["median"] / CAMERAS)
    assert rows["100"]["rays"] == 4 * 32 >= rows["100"]["points"] > 0
    assert all(0 < row["rendered_ms"] < max(row["single_ms"]) for name, row in rows.items() if name != "clients")


def test_a_service_that_does_not_start(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--run", str(tmp_path / "nothing"), "--device", "cpu"])
    assert end.value.code == 2
    said = capfd.readouterr().err
    assert "nothing/checkpoint.pt does not exist" in said or "nothing does not exist" in said
    assert "did not start" in said
