# SPDX-License-Identifier: Apache-2.0
"""The example client: it drives off the recorded path and films its view."""

import sys
from contextlib import nullcontext
from pathlib import Path
from runpy import run_path

import imageio.v3 as iio
import pytest
import torch
from served import service_of
from test_encryption import certified
from tiny_capture import ROOT, tiny_capture

from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.service.client import Sensorsim
from nurec_lite.service.service import Service
from scripts.drive_scene import Driver, Vehicle, drive, main


@pytest.mark.parametrize("left", [0.0, 1.5])
def test_the_driver_comes_to_the_place_beside_the_path(left: float) -> None:
    path = trajectory_of(tiny_capture())
    times = torch.linspace(0, 30, 301, dtype=torch.float64)
    poses = path.poses[:1].repeat(301, 1, 1)
    poses[:, :3, 3] += 8.0 * times[:, None] * poses[0, :3, 0]
    driver, vehicle = Driver(times, poses, left), Vehicle(poses[0].clone())
    for time in times[:200].tolist():
        vehicle.drive(*driver.choose(time, vehicle), 0.1)
    beside = poses[0, :3, 1] @ (vehicle.T[:3, 3] - poses[0, :3, 3])
    assert float(beside) == pytest.approx(left, abs=0.05)
    assert float(poses[0, :3, 0] @ (vehicle.T[:3, 3] - poses[0, :3, 3])) == pytest.approx(160, abs=2)


def test_a_drive_is_a_film(client: Sensorsim, tmp_path) -> None:
    assert drive(client, "mine", 0.5, 5.0, tmp_path / "drive.gif") == 5
    assert iio.imread(tmp_path / "drive.gif").shape == (5, 24, 40, 3)


def test_the_answer_of_the_service_is_the_sentence(service: Service, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    for port, said in (
        (service.port, "answers NOT_FOUND: scene_id is 'no', but the scenes are mine\n"),
        (1, "start python -m nurec_lite.serve, or give its --certificate\n"),
    ):
        monkeypatch.setattr(sys, "argv", ["drive_scene.py", "--scene", "no", "--address", f"127.0.0.1:{port}"])
        with pytest.raises(SystemExit):
            main()
        assert capsys.readouterr().err.endswith(said)


def test_it_drives_a_service_that_encrypts(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    given = ["drive_scene.py", "--scene", "mine", "--fps", "5", "--out", str(tmp_path / "drive.gif"), "--certificate"]
    with service_of(run, **certified(tmp_path, "own")) as service:
        for file in ("own.pem", "none.pem"):
            monkeypatch.setattr(sys, "argv", [*given, str(tmp_path / file), "--address", f"localhost:{service.port}"])
            with nullcontext() if file == "own.pem" else pytest.raises(SystemExit):
                main()
    said = capsys.readouterr()
    assert "drive.gif: 5 steps" in said.out
    assert "none.pem, which cannot be read (No such file or directory); name a PEM file" in said.err


@pytest.mark.parametrize("flaw", [["--fps", "0"], ["--fps", "nan"], ["--left", "inf"]])
def test_steps_that_end_nowhere_are_refused(flaw, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["drive_scene.py", "--scene", "mine", *flaw])
    with pytest.raises(SystemExit):
        main()
    assert "but they must lie above 0 to 1000 and within +-1000" in capsys.readouterr().err


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(SystemExit) as ended:
        run_path(str(ROOT / "scripts/drive_scene.py"), run_name="__main__")
    assert ended.value.code == 2 and "run pip install grpcio protobuf\n" in capsys.readouterr().err
