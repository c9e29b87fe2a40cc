# SPDX-License-Identifier: Apache-2.0
"""CXX and CUDAHOSTCXX may be several words: launchers, a compiler whose path has spaces, flags."""

import shlex
import shutil
from pathlib import Path

import pytest
import torch
from small_kernels import COMPILER, answer, script, small_kernels

from nurec_lite.native import build
from nurec_lite.native.build import LIBRARY, BuildError, library


@pytest.fixture(autouse=True)
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = small_kernels(tmp_path)
    monkeypatch.setattr(build, "resource", lambda name: root)
    monkeypatch.setenv("NUREC_LITE_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("g++ -m64", [COMPILER, "-m64"]),
        ("{0}/ccache g++", ["{0}/ccache", COMPILER]),
        ("'{0}/my tools/ccache' g++ -m64 -g", ["{0}/my tools/ccache", COMPILER, "-m64", "-g"]),
        ("{0}/my tools/g++", ["{0}/my tools/g++"]),
        ("'{0}/my tools/g++' -m64", ["{0}/my tools/g++", "-m64"]),
        ("env VARIABLE=1 g++", [shutil.which("env"), "VARIABLE=1", COMPILER]),
    ],
)
def test_the_compiler_may_be_several_words(
    given: str, words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("ccache", "my tools/ccache"):
        script(tmp_path / name, 'exec "$@"')
    script(tmp_path / "my tools/g++", f'exec {COMPILER} "$@"')
    monkeypatch.setenv("CXX", given.format(tmp_path))
    assert build.find_tools("").compiler == tuple(word.format(tmp_path) for word in words)
    assert answer(library()) == 42


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ("ccache-9 g++", "ccache-9"),
        ("env g++-99 -m64", "g\\+\\+-99"),
        ("/my tools/g++ -m64", "/my"),
        ("it's", "it's"),
        ("-m64", "-m64"),
    ],
)
def test_a_word_of_the_compiler_that_is_missing_is_named(
    given: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", given)
    with pytest.raises(
        BuildError, match=rf"^the C\+\+ compiler {missing} is missing.*, or run with ops=reference$"
    ) as caught:
        library()
    assert ("put quotes around a path with spaces" in str(caught.value)) == (" " in given)


@pytest.mark.parametrize(
    ("cxx", "host", "expected"),
    [
        ("{0}/ccache g++ -m64", "", ["-ccbin", COMPILER, "-Xcompiler=-m64"]),
        ("g++", "'{0}/my tools/g++' -m64", ["-ccbin", "{0}/my tools/g++", "-Xcompiler=-m64"]),
        ("g++", "{0}/ccache g++", ["-ccbin", COMPILER]),
    ],
)
def test_nvcc_calls_the_compiler_itself(
    cxx: str, host: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """nvcc takes one program, so no launcher stands before the compiler."""
    for name in ("ccache", "my tools/g++", "cuda/bin/nvcc"):
        script(tmp_path / name, 'exec "$@"')
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    monkeypatch.setenv("CXX", cxx.format(tmp_path))
    monkeypatch.setenv("CUDAHOSTCXX", host.format(tmp_path))
    tools = build.find_tools("90")
    words = [word.format(tmp_path) for word in expected]
    assert build.host_flags(tools) == words
    assert f"nvcc {shlex.join(words)} -gencode" in build.ninja_file(tools, tmp_path / LIBRARY)


def toolkit(home: Path) -> Path:
    """A folder with a program nvcc, as a toolkit or pip's wheels lay it out."""
    script(home / "bin/nvcc", "exit 0")
    (home / "lib").mkdir()
    (home / "lib/libcudart_static.a").touch()
    return home


def test_nvcc_of_pips_wheels_is_found_before_the_systems(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = toolkit(tmp_path / "site/nvidia/cu13")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    tools = build.find_tools("90")
    assert tools.nvcc == str(home / "bin/nvcc") and tools.cuda_home == home and tools.cuda_lib == home / "lib"


def test_a_named_toolkit_comes_before_wheels_and_wheels_of_another_cuda_are_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    toolkit(tmp_path / "site/nvidia/cu13")
    named = toolkit(tmp_path / "own")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert build.find_tools("90").cuda_home != tmp_path / "site/nvidia/cu13"
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setenv("CUDA_HOME", str(named))
    assert build.find_tools("90").cuda_home == named
