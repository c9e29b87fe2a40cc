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
    """Path of the compiled library. Of what has been compiled before, only what changed is compiled again."""
    root = resource("kernels")
    folder = build.cache_folder() / f"emulation_{_digest(root)}"
    folder.mkdir(parents=True, exist_ok=True)
    with build._alone(folder / "lock"):
        wanted = {folder / path.relative_to(root): path for path in root.rglob("*/*") if path.is_file()}
        _rewrite(wanted)
        return _compiled(sources(wanted), folder)


def compiled(
    source: Path,  # a .cu file that is no part of kernels/
    folder: Path,  # for all that is made
) -> Path:  # of a library without the operators
    target = folder / "source" / source.name
    _rewrite({target: source})
    return _compiled([target], folder)


def _digest(root: Path) -> str:
    """Of what ninja does not look at."""
    compiler = build._output(*build.find_tools("").compiler, "--version")
    parts = str(root), torch.__version__, str(build._TORCH), compiler, build._processor()
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _rewrite(wanted: dict[Path, Path]) -> None:
    """Targets from sources; what else lies in the targets' folders goes."""
    for folder in {target.parent for target in wanted}:
        folder.mkdir(parents=True, exist_ok=True)
        for path in set(folder.iterdir()) - wanted.keys():
            path.unlink()
    for target, source in wanted.items():
        text = rewritten(source.read_text(), str(source))
        if not target.is_file() or target.read_text() != text:  # what is as it was keeps its time, for ninja
            target.write_text(text)


def sources(rewritten: Iterable[Path]) -> list[Path]:
    """What is compiled of the rewritten files: all CUDA drivers, and the bindings, which call them."""
    found = {kind: {p for p in rewritten if build.kind_of(p) == kind} for kind in ("cpu", "cuda", "torch")}
    return sorted(found["cuda"] | found["torch"] | {path for path in found["cpu"] if path.stem == "check_cpu"})


def _compiled(sources: list[Path], folder: Path) -> Path:
    target = folder / build.LIBRARY
    build.write_units(_units(sources), folder, folder)
    (folder / "build.ninja").write_text(_ninja_file(sources, target))
    ran = subprocess.run([build.find_tools("").ninja, "-C", str(folder)], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise build.BuildError(f"the emulated kernels do not compile:\n{ran.stdout}{ran.stderr}")
    return target


def _units(sources: list[Path]) -> dict[str, build.Unit]:
    """All bindings with their part for CUDA, registered for the CPU."""
    bindings = [path for path in sources if build.kind_of(path) == "torch"]
    return {"bindings.cpp": build.Unit(bindings, "CPU", cuda=True)} if bindings else {}


def _ninja_file(sources: list[Path], target: Path) -> str:
    tools = build.find_tools("")
    compiler, torch_headers = build._quoted(*tools.compiler), build._quoted(str(build._TORCH / "include"))
    headers = f"-I {build._quoted(str(OWN / 'include'))} -isystem {torch_headers}"
    lines = [
        "rule cxx", f"  command = {compiler} $flags {headers} -MMD -MF $out.d -c $in -o $out", "  depfile = $out.d",
        "rule link", f"  command = {compiler} -shared $in -o $out.tmp $flags && mv $out.tmp $out",
    ]  # fmt: skip
    objects = []
    for name in _units(sources):
        objects.append(f"{Path(name).stem}.o")
        lines += [f"build {objects[-1]}: cxx {name}", f"  flags = {FLAGS['torch']}"]
    drivers = [path for path in sources if build.kind_of(path) != "torch"]
    for path in [*drivers, *sorted((OWN / "runtime").glob("*.cpp"))]:
        objects.append(f"{path.parent.parent.name}_{path.parent.name}_{path.stem}.o")
        flags = FLAGS["runtime" if path.parent.parent == OWN else str(build.kind_of(path))]
        lines += [f"build {objects[-1]}: cxx {build._escaped(path)}", f"  flags = {flags}"]
    lines += [f"build {build._escaped(target)}: link {' '.join(objects)}", f"  flags = {build._link_flags(tools)}", ""]
    return "\n".join(lines)
