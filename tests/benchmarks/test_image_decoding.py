# SPDX-License-Identifier: Apache-2.0
"""The benchmark of decoding: every way gives all images, differences are in levels, and it runs from end to end."""

import json
from pathlib import Path

import pytest
import torch
from jpeg_standins import MODULES, Calls
from tiny_capture import tiny_capture

from benchmarks.opt.image_decoding import HOST, apart, decoded_by, main
from nurec_lite.capture.pack import read_pack, write_pack
from nurec_lite.training.shots import ShotPlan

CPU = torch.device("cpu")


@pytest.mark.parametrize("way", [HOST, *MODULES])
def test_every_way_gives_all_images(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str) -> None:
    Calls().install(monkeypatch, *MODULES)
    write_pack(tiny_capture(), tmp_path / "drive.pack", image_format="jpeg")
    plan = ShotPlan(read_pack(tmp_path / "drive.pack").with_split("interp"), seed=0, lidar_rays=0)
    host, (times, images) = decoded_by(plan, CPU, HOST)[1], decoded_by(plan, CPU, way)
    own = 0 if way == HOST else len(images)
    assert len(images) == len(plan.split.train_images) and times["by_the_library"] == own
    assert 0 < times["first_s"] <= times["all_s"]
    assert apart(images, host)["greatest"] == (way != HOST)


def test_levels_are_over_all_values_of_all_images() -> None:
    dark, odd = torch.zeros(1, 2, 3, dtype=torch.uint8), torch.zeros(1, 2, 3, dtype=torch.uint8)
    odd[0, 1, 2] = 6
    found = apart([dark, odd], [dark, dark])
    assert found["greatest"] == 6 and found["mean"] == 0.5
    assert found["psnr_db"] == pytest.approx(43.36, abs=0.01)
    assert apart([dark], [dark]) == {"greatest": 0, "mean": 0.0, "psnr_db": None}


def test_the_file_of_a_run_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "decoding.json"
    main("", ["--decoding", "--rounds", "2", "--out", str(out), "device=cpu", "data.frames=[0,10]"])
    report = json.loads(out.read_text())
    assert report["command"].startswith("python benchmarks/opt/bench_resident.py --decoding")
    assert report["images"] == 16 and set(report["ways"]) == {"host"} and report["ways"]["host"]["psnr_db"] is None
    assert report["ways"]["host"]["images_a_second"]["median"] > 0
    assert "equal" in capsys.readouterr().out
