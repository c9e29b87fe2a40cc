# SPDX-License-Identifier: Apache-2.0
"""A wheel, installed outside of the checkout, trains, profiles and renders."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SMALL = (
    "train.steps=3",
    "train.seconds=null",
    "device=cpu",
    "data.downscale=4",
    "train.lidar_rays=512",
    "model.points=500",
    "model.raised_points=50",
    "model.far_points=50",
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the installed package; its dependencies are those of this environment."""
    wheels, site = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    for command in (
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(ROOT)],
        [*pip, "install", "--no-deps", "--no-index", "--target", str(site), "--find-links", str(wheels), "nurec_lite"],
    ):
        ran = subprocess.run(command, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    return site


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("elsewhere")


def run(site: Path, folder: Path, verb: str, *arguments: str) -> str:
    """Runs a command in a folder that has nothing to do with the checkout; returns its output."""
    environment = os.environ | {"PYTHONPATH": str(site)}
    command = [sys.executable, "-m", f"nurec_lite.{verb}", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_it_is_the_installed_package_that_runs(installed: Path, outside: Path) -> None:
    code = "import nurec_lite; print(nurec_lite.__file__)"
    environment = os.environ | {"PYTHONPATH": str(installed)}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=outside, env=environment)
    assert Path(ran.stdout.strip()).is_relative_to(installed)


def test_it_trains_and_renders(installed: Path, outside: Path) -> None:
    run(installed, outside, "train", *SMALL, "out=run", "+opt=[fused_interp,collect_once]")
    assert (outside / "run/report.html").is_file() and (outside / "run/checkpoint.pt").is_file()
    run(installed, outside, "render", "checkpoint=run/checkpoint.pt", "times=[0.2]", "out=pictures")
    assert list((outside / "pictures").rglob("*.png"))


def test_it_profiles(installed: Path, outside: Path) -> None:
    run(
        installed,
        outside,
        "profile",
        "tool=torch",
        "warmup=1",
        "steps=2",
        "out=profile",
        *SMALL[2:],
        "train.steps=20",
        "train.seconds=null",
    )
    assert (outside / "profile/summary.json").is_file()
