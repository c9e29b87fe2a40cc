# SPDX-License-Identifier: Apache-2.0
"""Finding nsys and ncu: PATH, the usual places, versions, and the message if there is none."""

from pathlib import Path

import pytest

from nurec_lite.profiling.errors import ProfileError
from nurec_lite.profiling.record.tools import PLACES, check_version, find_tool, tool_version

NSYS_SAYS = "NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0"
NCU_SAYS = (
    "NVIDIA (R) Nsight Compute Command Line Profiler\nCopyright (c) 2018-2025\nVersion 2025.3.1.0 (build 36) (public)"
)


def program(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that PATH consists of, beside the system's own programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def test_program_on_path_comes_first(empty_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLACES, "nsys", (f"{tmp_path}/opt/*/nsys",))
    mine = program(empty_path / "nsys", NSYS_SAYS)
    program(tmp_path / "opt/2026.1/nsys", NSYS_SAYS)
    assert find_tool("nsys") == mine


def test_newest_of_the_usual_place(empty_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLACES, "ncu", (f"{tmp_path}/nothing/*/ncu", f"{tmp_path}/opt/*/ncu"))
    for version in ("2024.9.2", "2024.10.1", "2023.4.0"):
        program(tmp_path / f"opt/{version}/ncu", NCU_SAYS)
    (tmp_path / "opt/2025.1.0").mkdir()
    (tmp_path / "opt/2025.1.0/ncu").write_text("not to be executed")
    assert find_tool("ncu") == tmp_path / "opt/2024.10.1/ncu"


@pytest.mark.parametrize(
    ("name", "package"), [("nsys", "NVIDIA Nsight Systems .*tool=torch"), ("ncu", "NVIDIA Nsight Compute .*tool=torch")]
)
def test_absent(empty_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str) -> None:
    monkeypatch.setitem(PLACES, name, ("/nowhere/*/tool", "/nowhere/either"))
    with pytest.raises(
        ProfileError, match=rf"{name} is neither on PATH nor in /nowhere/\*/tool or .*install {package}"
    ):
        find_tool(name)


@pytest.mark.parametrize(("says", "version"), [(NSYS_SAYS, (2025, 3, 1, 90)), (NCU_SAYS, (2025, 3, 1, 0))])
def test_version(tmp_path: Path, says: str, version: tuple[int, ...]) -> None:
    assert tool_version(program(tmp_path / "tool", says)) == version


def test_no_version(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"tool --version says 'out of order' and no version; install it again"):
        tool_version(program(tmp_path / "tool", "out of order"))


def test_a_broken_program(tmp_path: Path) -> None:
    path = tmp_path / "tool"
    path.write_bytes(b"\x7fELF nothing")
    path.chmod(0o755)
    with pytest.raises(ProfileError, match="tool cannot be run"):
        tool_version(path)


def test_too_old(tmp_path: Path) -> None:
    old = program(tmp_path / "nsys", "NVIDIA Nsight Systems version 2021.3.1.54-ee9c30a")
    with pytest.raises(ProfileError, match=r"nsys is version 2021\.3\.1\.54, but 2022\.4 or newer is needed; install"):
        check_version("nsys", old)
    assert check_version("nsys", program(tmp_path / "new", NSYS_SAYS)) == (2025, 3, 1, 90)
