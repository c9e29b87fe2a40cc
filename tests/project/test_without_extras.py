# SPDX-License-Identifier: Apache-2.0
"""Without the packages of extras, and without gsplat, the files of tests load: their tests skip, and say which package is missing."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MISSING = (
    "gsplat", "ncore", "cbor2", "rosbags", "viser", "grpc", "google", "carla_driver_interface", "pxr", "tinyusdz", "gaussforge",
    "trimesh", "tensorboard", "OpenEXR", "pyarrow", "submitit",
)  # fmt: skip
PLUGIN = f"""
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {MISSING} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
"""


@pytest.mark.slow
def test_all_files_load(tmp_path: Path) -> None:
    (tmp_path / "without.py").write_text(PLUGIN)
    collect = "import sys, pytest; sys.path.insert(0, sys.argv[1]); sys.exit(pytest.main(sys.argv[2:]))"
    options = ["-p", "without", "--collect-only", "-q", "-rs", "-n", "0"]
    ended = subprocess.run(
        [sys.executable, "-c", collect, str(tmp_path), *options], cwd=ROOT, text=True, capture_output=True
    )
    assert ended.returncode == 0, ended.stdout[-4000:]
    named = {package for package in MISSING if f"could not import '{package}" in ended.stdout}
    assert {"ncore", "rosbags", "viser", "google", "trimesh", "tensorboard", "pyarrow", "gsplat"} <= named
