# SPDX-License-Identifier: Apache-2.0
"""A wheel carries the folders that stand next to the package in a checkout, and nothing that is not needed to run."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from nurec_lite.base.paths import resource

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("conf", "kernels", "data")


@pytest.fixture(scope="module")
def wheel_files(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        return set(wheel.namelist())


@pytest.mark.parametrize("folder", FOLDERS)
def test_wheel_carries_the_folder(wheel_files: set[str], folder: str) -> None:
    assert any(name.startswith(f"nurec_lite/{folder}/") for name in wheel_files)


def test_wheel_carries_every_configuration_and_kernel(wheel_files: set[str]) -> None:
    suffixes = {".yaml", ".cu", ".cuh", ".cpp", ".h"}
    files = [p for folder in ("conf", "kernels") for p in (ROOT / folder).rglob("*") if p.suffix in suffixes]
    missing = {f"nurec_lite/{p.relative_to(ROOT).as_posix()}" for p in files} - wheel_files
    assert not missing


def test_wheel_carries_every_module(wheel_files: set[str]) -> None:
    modules = {p.relative_to(ROOT).as_posix() for p in (ROOT / "nurec_lite").rglob("*.py")}
    assert modules <= wheel_files
    assert {"nurec_lite/py.typed", "nurec_lite/__init__.pyi"} <= wheel_files


def test_wheel_carries_nothing_else(wheel_files: set[str]) -> None:
    tops = {name.split("/")[0] for name in wheel_files}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"hydra_plugins", "nurec_lite"}
    assert {name for name in wheel_files if name.startswith("hydra_plugins/")} == {
        "hydra_plugins/nurec_lite_processes.py"
    }
    assert not any("test" in Path(name).name or "__pycache__" in name for name in wheel_files)


@pytest.mark.parametrize("folder", FOLDERS)
def test_resource_finds_the_folder_in_a_checkout(folder: str) -> None:
    assert resource(folder) == ROOT / folder


def test_resource_finds_the_folder_in_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nurec_lite/conf").mkdir(parents=True)
    (tmp_path / "conf").mkdir()  # somebody else's, next to the package in site-packages
    monkeypatch.setattr("nurec_lite.base.paths.PACKAGE", tmp_path / "nurec_lite")
    assert resource("conf") == tmp_path / "nurec_lite/conf"


def test_resource_says_where_it_looked() -> None:
    with pytest.raises(FileNotFoundError, match=r"'no/such/file' is neither in .* nor next to it"):
        resource("no/such/file")
