# SPDX-License-Identifier: Apache-2.0
"""Compiling kernels at first use: once, whole or not at all, and a sentence with the remedy when it cannot be. On a folder of two files."""

import fcntl
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_kernels import ANSWER, COMPILER, answer, script, small_kernels

from nurec_lite.native import build
from nurec_lite.native.build import LIBRARY, BuildError, Toolchain, fingerprint, library

FORK = multiprocessing.get_context("fork")
PATIENCE = 600  # seconds, on a machine that does much else


@pytest.fixture(autouse=True)
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small stand-in for kernels/, and an empty cache."""
    root = small_kernels(tmp_path)
    monkeypatch.setattr(build, "resource", lambda name: root)
    monkeypatch.setenv("NUREC_LITE_CACHE", str(tmp_path / "cache"))
    return root


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that writes a line into this file for each source that it compiles, and takes half a second longer."""
    log = tmp_path / "calls"
    log.touch()
    lines = (f'case " $* " in *" -c "*) echo "$*" >> "{log}"; sleep 0.5;; esac', f'exec {COMPILER} "$@"')
    monkeypatch.setenv("CXX", str(script(tmp_path / "slow-g++", *lines)))
    return log


def compiled(log: Path) -> list[str]:
    """Names of the objects, in any order."""
    return sorted(line.split()[-1] for line in log.read_text().splitlines())


# ---- built and kept


def test_it_is_built_and_kept(calls: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first = library()
    assert first.parent.parent == tmp_path / "cache" and answer(first) == 42
    assert compiled(calls) == ["bindings_cpu.o", "first_one_cpu.o"]
    said = capfd.readouterr().err
    assert f"compiling the kernels, 3 steps (once; kept in {first.parent})" in said and "kernels are compiled" in said
    assert library() == first
    assert len(compiled(calls)) == 2
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[: len(data) // 2], lambda data: data[:-1] + b"x"]
)
def test_a_damaged_library_is_made_anew(damage: Callable[[bytes], bytes], capfd: pytest.CaptureFixture[str]) -> None:
    """Loading half of one is a bus error. The objects behind it are damaged, too."""
    path = library()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    for made in path.parent.glob("*.o"):
        made.write_bytes(damage(made.read_bytes()))
    capfd.readouterr()
    assert library() == path and answer(path) == 42
    assert "are damaged, or of an older version; making them anew" in capfd.readouterr().err


def test_a_library_without_its_sum_is_made_anew() -> None:
    path = library()
    path.with_name(build.SUM).unlink()
    assert library() == path and path.with_name(build.SUM).is_file()


def test_the_cache_lies_in_the_user_s_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NUREC_LITE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert build.cache_folder() == tmp_path / "xdg" / "nurec_lite"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert build.cache_folder() == tmp_path / ".cache" / "nurec_lite"


def test_a_changed_header_builds_anew_and_both_are_kept(kernels: Path) -> None:
    old = library()
    (kernels / "first/one.h").write_text("#define ANSWER_OF_HEADER 43\n")
    new = library()
    assert old != new and (answer(old), answer(new)) == (42, 43)


def test_folders_may_have_any_name(kernels: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kernels, cache, compiler and torch, with spaces, dollars, colons and quotes."""
    odd = tmp_path / "it's a $odd: folder"
    shutil.copytree(kernels, odd / "kernels")
    monkeypatch.setattr(build, "resource", lambda name: odd / "kernels")
    monkeypatch.setenv("NUREC_LITE_CACHE", str(odd / "cache"))
    monkeypatch.setenv("CXX", str(script(odd / "g++", f'exec {COMPILER} "$@"')))
    (odd / "torch").symlink_to(Path(torch.__file__).parent)
    monkeypatch.setattr(build, "_TORCH", odd / "torch")
    (kernels / "first/torch_two.cpp").write_text("#include <c10/macros/Macros.h>\n")
    assert answer(library()) == 42


def test_max_jobs_reach_ninja(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ninja = script(
        tmp_path / "bin/ninja", f'echo "$@" > "{tmp_path}/seen"', f'exec "{build.find_tools("").ninja}" "$@"'
    )
    monkeypatch.setattr(sys, "executable", str(ninja.parent / "python"))
    monkeypatch.setenv("MAX_JOBS", "1")
    assert answer(library()) == 42 and (tmp_path / "seen").read_text().strip().endswith("-j 1")


# ---- the fingerprint


def tools() -> Toolchain:
    return Toolchain("/bin/ninja", (COMPILER,), None, "")


def test_the_fingerprint_stays_the_same() -> None:
    assert fingerprint(tools()) == fingerprint(tools()) and len(fingerprint(tools())) == 16


SOURCES = (
    "first/one_cpu.cpp first/one.h first/torch_two.cpp math/four.cuh math/new.cuh first/new_cpu.cpp first/more/new.cpp"
)


@pytest.mark.parametrize("name", SOURCES.split())
def test_the_fingerprint_knows_every_source(name: str, kernels: Path) -> None:
    before = fingerprint(tools())
    (kernels / name).parent.mkdir(exist_ok=True)
    with (kernels / name).open("a") as file:
        file.write(" ")
    assert fingerprint(tools()) != before


@pytest.mark.parametrize("name", ["README.md", "second/three.cu", "new.cpp"])
def test_the_fingerprint_leaves_out_what_is_not_compiled(name: str, kernels: Path) -> None:
    before = fingerprint(tools())
    (kernels / name).parent.mkdir(exist_ok=True)
    (kernels / name).write_text("other")
    assert fingerprint(tools()) == before


def test_a_renamed_source_is_another_one(kernels: Path) -> None:
    before = fingerprint(tools())
    (kernels / "first/one_cpu.cpp").rename(kernels / "first/uno_cpu.cpp")
    assert fingerprint(tools()) != before


@pytest.mark.parametrize(
    "what",
    [
        "flags",
        "link flags",
        "torch",
        "torch's folder",
        "processor",
        "compiler",
        "its flags",
        "nvcc",
        "GPU",
        "its compiler",
    ],
)
def test_the_fingerprint_knows(what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before, other = fingerprint(tools()), tools()
    version = script(tmp_path / "version", "echo 99")
    if what == "flags":
        monkeypatch.setitem(build.FLAGS, "cpu", build.FLAGS["cpu"] + " -g")
    elif what == "link flags":
        monkeypatch.setattr(build, "_link_flags", lambda tools: "-lother")
    elif what == "torch":
        monkeypatch.setattr(torch, "__version__", "99.0")
    elif what == "torch's folder":
        monkeypatch.setattr(build, "_TORCH", tmp_path)
    elif what == "processor":
        monkeypatch.setattr(build, "_processor", lambda: "flags: none")
    elif what == "compiler":
        other = replace(other, compiler=(str(version),))
    elif what == "its flags":
        other = replace(other, compiler=(COMPILER, "-m64"))
    elif what == "its compiler":
        before = fingerprint(replace(other, nvcc=str(version), architecture="90", host=(COMPILER,)))
        other = replace(other, nvcc=str(version), architecture="90", host=(str(version),))
    else:
        other = replace(other, nvcc=str(version), architecture="90")
        before = fingerprint(replace(other, architecture="80")) if what == "GPU" else before
    assert fingerprint(other) != before


# ---- missing tools


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(script(tmp_path / "bin/ninja").parent / "python"))
    with pytest.raises(
        BuildError, match=r"C\+\+ compiler g\+\+ is missing: .*apt-get install g\+\+.* or run with ops=reference"
    ):
        library()


def test_the_compiler_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(BuildError, match="compiler no-such-compiler is missing"):
        library()
    monkeypatch.setenv("CXX", "")  # as if it were not set
    assert build.find_tools("").compiler == (COMPILER,)


def test_without_ninja(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=r"ninja.* is missing: pip install ninja, or run with ops=reference"):
        library()


def test_ninja_is_found_beside_the_interpreter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment need not be activated."""
    found = build.find_tools("").ninja
    ninja = script(tmp_path / "env/bin/ninja", f'exec "{found}" "$@"')
    monkeypatch.setattr(sys, "executable", str(ninja.parent / "python"))
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
    assert build.find_tools("").ninja == str(ninja)
    assert answer(library()) == 42


def test_ninja_on_the_path_will_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ninja = script(tmp_path / "other/ninja")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python"))
    monkeypatch.setenv("PATH", f"{ninja.parent}:{os.environ['PATH']}")
    assert build.find_tools("").ninja == str(ninja)


def test_without_nvcc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build.Path, "is_file", lambda path: path.name == "ninja")  # nor in /usr/local/cuda
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "nvcc" else f"/usr/bin/{name}")
    with pytest.raises(
        BuildError, match=r"nvcc.* is missing: .* set CUDA_HOME, or run with device=cpu or ops=reference"
    ):
        build.find_tools("90")
    assert build.find_tools("").nvcc is None


def test_with_nvcc_kernels_for_the_gpu_are_compiled_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvcc = script(tmp_path / "my cuda/bin/nvcc")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "my cuda"))
    found = build.find_tools("90")
    assert found.nvcc == str(nvcc) and found.cuda_home == tmp_path / "my cuda"
    names = " ".join(p.name for p in build.sources(found))
    assert names == "one_cpu.cpp torch_two.cpp torch_two_devices.cpp three.cu"
    text = build.ninja_file(found, tmp_path / LIBRARY)
    assert "build bindings_cpu.o" in text and "build bindings_cuda.o" in text
    assert "arch=compute_90,code=sm_90" in text and f"-isystem '{tmp_path}/my cuda/include'" in text


# ---- failures


def test_an_error_of_the_compiler_is_reported_and_leaves_nothing(kernels: Path, calls: Path) -> None:
    (kernels / "first/one_cpu.cpp").write_text("int a;\n#error broken on purpose\n")
    for _ in range(2):  # and again at the next try
        with pytest.raises(
            BuildError, match=r"do not compile here \(.*error.*broken on purpose\); see .*build\.log, or run with ops=r"
        ) as caught:
            library()
    log = Path(str(caught.value).split("see ")[1].split(",")[0])
    assert "broken on purpose" in log.read_text() and not (log.parent / LIBRARY).exists()
    (kernels / "first/one_cpu.cpp").write_text(ANSWER.replace("ANSWER_OF_HEADER", "44"))
    assert answer(library()) == 44


def test_an_error_of_the_linker_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    links = build._link_flags(tools())
    monkeypatch.setattr(build, "_link_flags", lambda tools: links + " -lno_such_library")
    with pytest.raises(BuildError, match=r"\(.*no_such_library.*\); see .*build\.log"):
        library()


def test_errors_are_found_in_any_language(kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    (kernels / "first/one_cpu.cpp").write_text("#error broken on purpose\n")
    with pytest.raises(BuildError, match="error: #error broken on purpose"):
        library()


def test_what_is_half_built_is_no_library(calls: Path) -> None:
    folder = build.cache_folder() / fingerprint(build.find_tools(""))
    folder.mkdir(parents=True)
    (folder / f"{LIBRARY}.tmp").write_bytes(b"half")
    (folder / "first_one_cpu.o").write_bytes(b"half")
    (folder / "build.ninja").write_text("half")
    assert answer(library()) == 42 and compiled(calls) == ["bindings_cpu.o", "first_one_cpu.o"]


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("NUREC_LITE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(
        BuildError, match=r"cannot be kept in .*cache.* \(Not a directory\): set NUREC_LITE_CACHE .* ops=reference"
    ):
        library()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_of_someone_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o500)
    monkeypatch.setenv("NUREC_LITE_CACHE", str(tmp_path / "theirs"))
    with pytest.raises(BuildError, match=r"cannot be kept in .*theirs.* \(Permission denied\)"):
        library()


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(build.Path, "write_text", full)
    with pytest.raises(BuildError, match="No space left on device"):
        library()


# ---- several processes


def test_two_processes_build_once(calls: Path) -> None:
    others = [FORK.Process(target=library, daemon=True) for _ in range(2)]
    for other in others:
        other.start()
    assert answer(library()) == 42
    for other in others:
        other.join(PATIENCE)
        assert other.exitcode == 0
    assert compiled(calls) == ["bindings_cpu.o", "first_one_cpu.o"]


def test_a_lock_that_nobody_holds_blocks_nothing(tmp_path: Path) -> None:
    folder = build.cache_folder() / fingerprint(build.find_tools(""))
    folder.mkdir(parents=True)
    (folder / "lock").write_text("4711")
    assert answer(library()) == 42


def test_a_waiting_process_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    folder = build.cache_folder() / fingerprint(build.find_tools(""))
    folder.mkdir(parents=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = FORK.Process(target=library, daemon=True)
        waiting.start()
        said, deadline = "", time.monotonic() + PATIENCE
        while "another process compiles the kernels" not in said and time.monotonic() < deadline:
            time.sleep(0.05)
            said += capfd.readouterr().err
        waits = waiting.is_alive() and not (folder / LIBRARY).exists()
        fcntl.flock(lock, fcntl.LOCK_UN)  # the child has inherited the file, so closing it would not do
    waiting.join(PATIENCE)
    assert "waiting for it" in said and waits
    assert waiting.exitcode == 0 and answer(folder / LIBRARY) == 42


def test_a_killed_process_leaves_its_lock_to_ninja_and_then_to_nobody(calls: Path) -> None:
    """Two ninjas in one folder would write the same objects at once."""
    killed = FORK.Process(target=library, daemon=True)
    killed.start()
    deadline = time.monotonic() + PATIENCE
    while not calls.read_text() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert killed.pid is not None
    os.kill(killed.pid, signal.SIGKILL)
    killed.join(10)
    folder = build.cache_folder() / fingerprint(build.find_tools(""))
    with (folder / "lock").open("w") as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert answer(library()) == 42


def test_a_build_from_the_command_line_of_another_python() -> None:
    """The real kernels, in a process of its own whose PATH lacks the environment: found in the cache or built."""
    code = "from nurec_lite.native import ops; ops.load(); import torch; print(torch.ops.nurec_lite.render.default._schema.name)"
    environment = {k: v for k, v in os.environ.items() if k not in ("NUREC_LITE_CACHE", "VIRTUAL_ENV")}
    environment["PATH"] = "/usr/local/bin:/usr/bin:/bin"
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert ran.stdout.strip() == "nurec_lite::render", ran.stderr
