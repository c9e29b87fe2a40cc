# SPDX-License-Identifier: Apache-2.0
"""Compiles kernels/ into one shared library at first use, and keeps it in the user's cache under a hash of all that went in.

Processes that need it at the same time take turns with a lock that the system releases when its holder ends, however it ends.
"""

import hashlib
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from nurec_lite.base.paths import resource
from nurec_lite.native.cache import alone, cache_folder, exposed, private_folder, say, unkept
from nurec_lite.native.compilers import BuildError, Toolchain, find_tools, host_flags

LIBRARY = "nurec_lite.so"
SUM = f"{LIBRARY}.sha256"  # digest of the library when it was made
_TORCH = Path(torch.__file__).parent
_FAST = "-O3 -march=native -fno-math-errno -fopenmp -std=c++17 -fPIC"
# With a vector exp; inputs are checked to be finite. No formula may be put in another order: GCC made e x (g x e) into
# g (e . e) - e (g . e), which cancels.
_FASTEST = f"{_FAST} -ffast-math -fno-associative-math"
_CUDA = "-O3 -std=c++17 -Xcompiler -fPIC --expt-relaxed-constexpr -lineinfo"
FLAGS = {  # by kind, or by file where one needs its own
    "cpu": _FAST,
    "raster_tiles/render_forward_cpu.cpp": _FASTEST,
    # a product of vectors along one line is 0 only if no product in it is fused with a difference
    "raster_tiles/render_backward_cpu.cpp": f"{_FASTEST} -ffp-contract=off",
    "torch": "-O2 -std=c++20 -fPIC",
    "cuda": _CUDA,
    "raster_warps/bin/one_view.cu": f"{_CUDA} --use_fast_math",  # bounds, which have some slack
    "raster_warps/bin/tile_lists.cu": f"{_CUDA} --use_fast_math",
    "raster_tiles/count_pairs.cu": f"{_CUDA} --use_fast_math",  # decides as the next two do
    "raster_warps/backward/gaussian_backward.cu": f"{_CUDA} --use_fast_math",
    "project/project.cu": f"{_CUDA} --use_fast_math",  # bounds, too
    "project/project_lens.cu": f"{_CUDA} --use_fast_math",
    "raster_warps/blend/segments_forward.cu": f"{_CUDA} --use_fast_math",
    "raster_warps/blend/segments_backward.cu": f"{_CUDA} --use_fast_math",
    "raster_tiles/render_forward.cu": f"{_CUDA} --use_fast_math",
    "raster_tiles/render_backward.cu": f"{_CUDA} --use_fast_math",
    "raster_tiles/render_backward_shared.cu": f"{_CUDA} --use_fast_math",
    "raster_tiles/render_backward_camera.cu": f"{_CUDA} --use_fast_math",
    "raster_tiles/render_backward_lidar.cu": f"{_CUDA} --use_fast_math",
    "raster_tiles/render_backward_split.cu": f"{_CUDA} --use_fast_math",
    "raster_warps/views/view_blend.cu": f"{_CUDA} --use_fast_math",
    "raster_warps/views/view_project.cu": f"{_CUDA} --use_fast_math",
    "raster_warps/views/view_project_lens.cu": f"{_CUDA} --use_fast_math",
    "raster_warps/views/many_views.cu": f"{_CUDA} --use_fast_math",
}
_EVERY = 15.0  # seconds between two lines that say how far it is
_ENGLISH = {"LC_ALL": "C"}  # the output of compilers is searched for errors


def library(architecture: str = "") -> Path:
    """Path of the compiled library, built if it is not there yet; BuildError if it cannot be."""
    tools = find_tools(architecture)
    folder = _folder(tools)
    try:
        if not _whole(folder):
            with alone(folder / "lock") as lock:
                if not _whole(folder):  # another process may have built it meanwhile
                    _clear(folder)
                    _build(tools, folder, lock)
    except OSError as error:
        raise unkept(folder, error) from error
    return folder / LIBRARY


def built(architecture: str) -> Path | None:
    """Path of the library if `library` has nothing to compile."""
    try:
        folder = _folder(find_tools(architecture))
    except (BuildError, OSError):
        return None
    return folder / LIBRARY if _whole(folder) else None


def _folder(tools: Toolchain) -> Path:
    return private_folder(cache_folder(), fingerprint(tools))


def _whole(folder: Path) -> bool:
    """Whether the library is whole, and no other user could write it: a full disk or a power cut may leave half of it, and loading
    that crashes."""
    try:
        if any(exposed(folder / name) for name in (LIBRARY, SUM)):
            return False
        return (folder / SUM).read_text() == _sum(folder / LIBRARY)
    except (OSError, UnicodeDecodeError):
        return False


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _clear(folder: Path) -> None:
    """Removes the object files of a damaged library, since they may be damaged, too. An interrupted build keeps its
    files."""
    if os.path.lexists(folder / LIBRARY):
        say(f"the compiled kernels in {folder} are damaged, or of an older version; making them anew")
        for path in folder.iterdir():
            if path.name != "lock" and (path.is_file() or path.is_symlink()):
                path.unlink()


def kind_of(path: Path) -> str | None:
    """Returns cpu for a driver by OpenMP, cuda for one of the GPU, torch for a binding of an operator; None for a header."""
    if path.suffix == ".cu":
        return "cuda"
    if path.suffix != ".cpp":
        return None
    return "torch" if path.name.startswith("torch_") else "cpu"


def needs_nvcc(path: Path) -> bool:
    return kind_of(path) == "cuda"


def flags_of(path: Path) -> str:
    """Compiler flags of a source; its path is relative to kernels/."""
    return FLAGS.get(str(path), FLAGS[str(kind_of(path))])


def sources(tools: Toolchain) -> list[Path]:
    """Sources to compile, relative to kernels/."""
    return [path for path in _files(tools) if kind_of(path)]


def _files(tools: Toolchain) -> list[Path]:
    """Sources and headers, relative to kernels/, but for sources that need a compiler that is not there."""
    root = resource("kernels")
    found = [p.relative_to(root) for p in sorted(root.rglob("*/*")) if p.suffix in (".cuh", ".h", ".cpp", ".cu")]
    return [path for path in found if tools.nvcc or not needs_nvcc(path)]


def fingerprint(tools: Toolchain) -> str:
    """Hash of sources, flags, compilers, torch, and the processor that -march=native stands for."""
    root, digest = resource("kernels"), hashlib.sha256()
    for path in _files(tools):
        digest.update(str(path).encode() + b"\0" + (root / path).read_bytes() + b"\0")
    versions = [_output(*tools.compiler, "--version"), _output(tools.nvcc, "--version") if tools.nvcc else ""]
    host = [_output(*tools.host, "--version"), *tools.host[1:]] if tools.host not in ((), tools.compiler) else []
    parts = [str(FLAGS), _link_flags(tools), torch.__version__, tools.architecture, _processor(), *versions]
    parts += [*tools.compiler[1:], *host]
    digest.update("\0".join(parts).encode())
    return digest.hexdigest()[:16]


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | _ENGLISH).stdout


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())
    except OSError:
        return platform.machine()


@dataclass(frozen=True)
class Unit:
    """A source that includes bindings: torch's headers take ten times as long to compile as a binding."""

    bindings: list[Path]
    device: str  # CPU or CUDA: it registers the operators of this device
    cuda: bool  # with NUREC_CUDA, the part of a binding that calls CUDA drivers; else the part that calls those of the CPU

    def text(self, root: Path) -> str:
        defines = ["#define NUREC_CUDA\n"] * self.cuda + [f"#define NUREC_DEVICE {self.device}\n"]
        return "".join(defines + [f'#include "{root / path}"\n' for path in self.bindings])


def binding_units(tools: Toolchain, root: Path) -> dict[str, Unit]:
    """All bindings for the CPU, and with nvcc those that have a part for CUDA, by the name of the source that includes them."""
    bindings = [path for path in sources(tools) if kind_of(path) == "torch"]
    units = {"bindings_cpu.cpp": Unit(bindings, "CPU", cuda=False)} if bindings else {}
    both = [path for path in bindings if has_cuda(root / path)]
    return units | ({"bindings_cuda.cpp": Unit(both, "CUDA", cuda=True)} if both and tools.nvcc else {})


def has_cuda(binding: Path) -> bool:
    return "NUREC_CUDA" in binding.read_text()


def write_units(units: dict[str, Unit], root: Path, folder: Path) -> None:
    for name, unit in units.items():
        text = unit.text(root)
        if not (folder / name).is_file() or (folder / name).read_text() != text:
            (folder / name).write_text(text)


def ninja_file(tools: Toolchain, target: Path) -> str:
    """Commands for ninja: one a source file that is no binding, one for all bindings of a kind, and the link."""
    root, compiler = resource("kernels"), _quoted(*tools.compiler)
    lines = [
        "rule cxx", f"  command = {compiler} $flags -MMD -MF $out.d -c $in -o $out", "  depfile = $out.d",
        "rule link", f"  command = {compiler} -shared $in -o $out $flags",
    ]  # fmt: skip
    if tools.nvcc:
        gencode = f"-gencode arch=compute_{tools.architecture},code=sm_{tools.architecture}"
        nvcc = _quoted(tools.nvcc, *host_flags(tools))
        lines += ["rule nvcc", f"  command = {nvcc} {gencode} $flags -c $in -o $out"]
    objects = []
    for name, unit in binding_units(tools, root).items():
        objects.append(f"{Path(name).stem}.o")
        lines += [f"build {objects[-1]}: cxx {name}", f"  flags = {_flags(tools, unit.bindings[0])}"]
    for path in (path for path in sources(tools) if kind_of(path) != "torch"):
        objects.append("_".join((*path.parent.parts, f"{path.stem}.o")))
        rule = "nvcc" if path.suffix == ".cu" else "cxx"
        lines += [f"build {objects[-1]}: {rule} {_escaped(root / path)}", f"  flags = {_flags(tools, path)}"]
    lines += [f"build {_escaped(target)}: link {' '.join(objects)}", f"  flags = {_link_flags(tools)}", ""]
    return "\n".join(lines)


def _escaped(path: Path) -> str:
    return str(path).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


def _quoted(*words: str) -> str:
    """Quotes words for the shell that ninja calls, and for ninja."""
    return shlex.join(words).replace("$", "$$")


def _flags(tools: Toolchain, path: Path) -> str:
    flags = flags_of(path)
    if kind_of(path) != "torch":
        return flags
    homes = [_TORCH, *([tools.cuda_home] if tools.nvcc else [])]
    return " ".join([flags, *(f"-isystem {_quoted(str(home / 'include'))}" for home in homes)])


def _link_flags(tools: Toolchain) -> str:
    """Link flags, with torch's own libstdc++ by name: some compilers link theirs statically, and errors of the library then crash."""
    lib = _TORCH / "lib"
    flags = (
        f"-L{_quoted(str(lib))} {_quoted(f'-Wl,-rpath,{lib}')} -ltorch -ltorch_cpu -lc10 -fopenmp -lm -l:libstdc++.so.6"
    )
    if tools.nvcc:
        cuda = _quoted(str(tools.cuda_lib))
        flags += f" -ltorch_cuda -lc10_cuda -L{cuda} -lcudart_static -ldl -lrt -lpthread"
    return flags


def _build(tools: Toolchain, folder: Path, lock: int) -> None:
    """Builds the library in a folder of its own; it takes its name when it is whole. Ninja holds the lock, too: if this process is
    killed, ninja goes on, and the next process waits for it and finds its work."""
    temporary, units = folder / f"{LIBRARY}.tmp", binding_units(tools, resource("kernels"))
    write_units(units, resource("kernels"), folder)
    commands = ninja_file(tools, temporary)
    n = sum(line.startswith("build ") for line in commands.splitlines())
    say(f"compiling the kernels, {n} steps (once; kept in {folder})")
    (folder / "build.ninja").write_text(commands)
    command = [tools.ninja, "-C", str(folder), *(["-j", os.environ["MAX_JOBS"]] if "MAX_JOBS" in os.environ else [])]
    environment = os.environ | _ENGLISH | {"NINJA_STATUS": "[%f/%t] "}
    log, last_shown = list[str](), time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, pass_fds=[lock]
    ) as ran:
        assert ran.stdout is not None
        for line in ran.stdout:
            log.append(line)
            last_shown = _progress(line, last_shown)
    (folder / "build.log").write_text("".join(log))
    if ran.returncode:
        raise BuildError(_explained(log, folder))
    (folder / SUM).write_text(_sum(temporary))
    for path in (temporary, folder / SUM):
        path.chmod(0o755)
    temporary.replace(folder / LIBRARY)
    say("kernels are compiled")


def _progress(line: str, last_shown: float) -> float:
    """Prints ninja's progress: at once on a terminal, now and then into a file. Returns the time of the last print."""
    if not line.startswith("["):
        return last_shown
    if sys.stderr.isatty():
        print(f"\r{line.split()[0]} kernels compiled ", end="", file=sys.stderr, flush=True)
    elif time.monotonic() - last_shown > _EVERY:
        say(f"{line.split()[0]} kernels compiled")
        return time.monotonic()
    return last_shown


def _explained(log: list[str], folder: Path) -> str:
    found = (line.strip() for line in log if re.search(r"\berror\b|cannot find", line, re.IGNORECASE))
    error = next(found, log[-1].strip() if log else "ninja failed")
    return f"the kernels do not compile here ({error}); see {folder / 'build.log'}, or run with ops=reference"
