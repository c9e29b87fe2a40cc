# SPDX-License-Identifier: Apache-2.0
"""The CUDA drivers and their bindings of kernels/, compiled for the CPU: rewritten, over the headers beside this file.

With NUREC_LITE_EMULATE_CUDA=1 in the environment tests/conftest.py calls `install`, and the operators torch.ops.nurec_lite.* of CPU
tensors are then those of the GPU. Operators without a CUDA driver keep that of the CPU.
"""

import hashlib
import os
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import torch
from cuda_rewriting import rewritten

from nurec_lite.base.paths import resource
from nurec_lite.native import build, ops
from nurec_lite.native import stages as native

EMULATED = os.environ.get("NUREC_LITE_EMULATE_CUDA") == "1"
OWN = Path(__file__).parent  # include/ stands in for CUDA's headers, runtime/ runs blocks and threads
_CHECKED = "-fsanitize=alignment,bounds -fno-sanitize-recover=all -Werror=undef"
FLAGS = {  # by kind, as nurec_lite.native.build tells kinds apart
    "cpu": build.FLAGS["cpu"],
    # nvcc includes cuda_runtime.h, too. Nothing is fused: vectors and scalars would be fused in different ways, and where both are of
    # one value, such as g x e of a response, sums of their products that should cancel would not.
    "cuda": f"-O2 -ffp-contract=off -fno-strict-aliasing -std=c++20 -fPIC -include cuda_runtime.h {_CHECKED} -x c++",
    "torch": "-O0 -std=c++20 -fPIC",  # torch's headers take longer than all calls
    "runtime": "-O2 -std=c++20 -fPIC",
}


def install() -> None:
    """The emulated operators instead of the real ones, called as on a GPU; new tensors hold NaN until they are written, as memory may."""
    ops.library = lambda architecture: library()
    native.on_gpu = lambda gaussians: True
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True


@cache
def library() -> Path:
    """Path of the compiled library, whose name is a checksum of the sources. All checkouts share the folder: one compiles only the files
    that differ from another's."""
    root, folder = resource("kernels"), build.cache_folder() / f"emulation_{_digest()}"
    wanted = {folder / path.relative_to(root): path for path in sorted(root.rglob("*/*")) if path.is_file()}
    own = [path.read_bytes() for path in sorted(OWN.rglob("*")) if path.is_file() and path.suffix != ".pyc"]
    names = [str(path.relative_to(root)).encode() for path in wanted.values()]
    kept = folder / f"{_sum(*names, *(path.read_bytes() for path in wanted.values()), *own)}.so"
    folder.mkdir(parents=True, exist_ok=True)
    with build.alone(folder / "lock"):
        if not kept.exists():
            _rewrite(wanted)
            kept.hardlink_to(_compiled(sources(wanted), folder))  # linking makes a new file, and leaves this one
    return kept


def compiled(
    source: Path,  # a .cu file that is no part of kernels/
    folder: Path,  # for all that is made
) -> Path:  # of a library without the operators
    target = folder / "source" / source.name
    _rewrite({target: source})
    return _compiled([target], folder)


def _sum(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _digest() -> str:
    """A checksum of all that decides about an object file and that ninja does not look at."""
    compiler = build._output(*build.find_tools("").compiler, "--version")
    return _sum(*(part.encode() for part in (torch.__version__, compiler, build._processor())))


def _rewrite(wanted: dict[Path, Path]) -> None:
    """Makes targets from sources; other files in the targets' folders go. Messages name a kernel's file as it lies in a checkout."""
    checkout = resource("kernels").parent
    for target, source in wanted.items():
        name = source.relative_to(checkout) if source.is_relative_to(checkout / "kernels") else source
        _write(target, rewritten(source.read_text(), str(name)))
    for folder in {target.parent for target in wanted}:
        for path in set(folder.iterdir()) - wanted.keys():
            path.unlink()


def _write(target: Path, text: str) -> None:
    """A file that is as it was keeps its time, for ninja."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.is_file() or target.read_text() != text:
        target.write_text(text)


def _bring(folder: Path) -> list[Path]:
    """Copies the headers and the sources of the emulation, and links torch's headers, so that no command names a checkout. Returns the
    copied sources."""
    files = [*(OWN / "include").rglob("*.*"), *(OWN / "runtime").glob("*.cpp")]
    targets = [folder / "emulation" / path.relative_to(OWN) for path in files]
    for target, path in zip(targets, files, strict=True):
        _write(target, path.read_text())
    headers = folder / "torch"
    if not headers.exists() or headers.readlink() != build._TORCH / "include":
        headers.unlink(missing_ok=True)
        headers.symlink_to(build._TORCH / "include")
    return sorted(target for target in targets if target.suffix == ".cpp")


def sources(rewritten: Iterable[Path]) -> list[Path]:
    """Rewritten files to compile: all CUDA drivers, and the bindings, which call them."""
    found = {kind: {p for p in rewritten if build.kind_of(p) == kind} for kind in ("cpu", "cuda", "torch")}
    return sorted(found["cuda"] | found["torch"] | {path for path in found["cpu"] if path.stem == "check_cpu"})


def _compiled(sources: list[Path], folder: Path) -> Path:
    target = folder / build.LIBRARY
    build.write_units(_units(sources), folder, folder)
    (folder / "build.ninja").write_text(_ninja_file(sources, _bring(folder), target))
    ran = subprocess.run([build.find_tools("").ninja, "-C", str(folder)], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise build.BuildError(f"the emulated kernels do not compile:\n{ran.stdout}{ran.stderr}")
    return target


def _units(sources: list[Path]) -> dict[str, build.Unit]:
    """All bindings with their part for CUDA, registered for the CPU."""
    bindings = [path for path in sources if build.kind_of(path) == "torch"]
    return {"bindings.cpp": build.Unit(bindings, "CPU", cuda=True)} if bindings else {}


def _ninja_file(sources: list[Path], runtime: list[Path], target: Path) -> str:
    tools = build.find_tools("")
    compiler = build._quoted(*tools.compiler)
    lines = [
        "rule cxx", f"  command = {compiler} $flags -I emulation/include -isystem torch -MMD -MF $out.d -c $in -o $out",
        "  depfile = $out.d",
        "rule link", f"  command = {compiler} -shared $in -o $out.tmp $flags && mv $out.tmp $out",
    ]  # fmt: skip
    flags = {Path(name): FLAGS["torch"] for name in _units(sources)}
    flags |= {path: FLAGS[str(build.kind_of(path))] for path in sources if build.kind_of(path) != "torch"}
    flags |= {path: FLAGS["runtime"] for path in runtime}
    objects = []
    for path, own in flags.items():
        objects.append("_".join((*path.parent.parts[-2:], f"{path.stem}.o")).lstrip("_"))
        lines += [f"build {objects[-1]}: cxx {build._escaped(path)}", f"  flags = {own}"]
    lines += [f"build {build._escaped(target)}: link {' '.join(objects)}", f"  flags = {build._link_flags(tools)}", ""]
    return "\n".join(lines)
