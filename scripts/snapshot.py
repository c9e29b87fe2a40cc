# SPDX-License-Identifier: Apache-2.0
"""Records the results that a renaming must not change: the bits of short CPU runs, and the machine code of every CUDA kernel.

    python scripts/snapshot.py --out BEFORE.json                       runs and kernels of this tree
    python scripts/snapshot.py --out AFTER.json --before BEFORE.json   compares them, too: prints new names, code 1 if something differs
    python scripts/snapshot.py --out AFTER.json --only kernels         one part; --only runs is the other

A kernel is the instructions that nvcc makes of it for sm_90, with its registers, stack, spills and shared memory. Its name and its file
do not count: kernels are compared as a multiset, and a kernel that has a new name is printed with the old one. No GPU is needed.
A file with the text, flags and compiler of BEFORE.json is not compiled again.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import hashlib
import json
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import torch

from nurec_lite.base.paths import resource
from nurec_lite.base.program import Parser, ends_with_a_sentence
from nurec_lite.native.build import find_tools, flags_of
from scripts.measured import digest, version
from scripts.resources import Usage, own_files, parse, short_name

ARCHITECTURE = "90"
RUNS = {"none": [], "all": ["+opt=all"]}
SMALL = [
    "device=cpu", "data.downscale=6", "data.frames=[0,20]", "model.points=1500", "model.actor_points=50", "model.raised_points=200",
    "model.far_points=100", "train.lidar_rays=512", "train.seconds=null", "train.steps=30", "density.every=10", "density.cap=2200",
]  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    name: str  # without namespaces
    code: str  # digest of its instructions
    usage: tuple[int, int, int, int]  # registers, stack, spills, shared memory


def main() -> int:
    parser = Parser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the JSON file that is written")
    parser.add_argument("--before", type=Path, help="the JSON file of the tree before")
    parser.add_argument("--only", choices=("runs", "kernels"), help="one part alone")
    args = parser.parse_args()
    before = json.loads(args.before.read_text()) if args.before else {}
    found: dict[str, Any] = {}
    with ends_with_a_sentence():
        if args.only != "runs":
            found["kernels"] = kernels_of_tree(before.get("kernels", {}))
        if args.only != "kernels":
            found["runs"] = {name: run_digest(overrides) for name, overrides in RUNS.items()}
    args.out.write_text(json.dumps(found, indent=1) + "\n")
    print(*(lines := compared(before, found)), sep="\n")
    return int(any(line.startswith("differs") for line in lines))


# ---- runs


def run_digest(overrides: list[str]) -> str:
    """Digest of every tensor that a short training leaves in its checkpoint."""
    from nurec_lite.cli.command import composed
    from nurec_lite.train import run
    from nurec_lite.training.folder import CHECKPOINT

    with tempfile.TemporaryDirectory() as folder:
        run(composed("train", [*SMALL, *overrides, f"out={folder}/run"]))
        return digest_of(torch.load(Path(folder) / "run" / CHECKPOINT, weights_only=False))


def digest_of(checkpoint: Any) -> str:
    """Digest of the tensors of a nest of dictionaries and sequences, in their order; keys and other values do not count."""
    found = hashlib.sha256()
    for tensor in tensors_in(checkpoint):
        found.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


# ---- kernels


def kernels_of_tree(
    known: dict[str, Any],  # of another snapshot, by file
) -> dict[str, Any]:  # by file: its digest, and its kernels
    nvcc = find_tools(ARCHITECTURE).nvcc
    assert nvcc is not None
    with ThreadPoolExecutor() as pool:
        return dict(pool.map(lambda file: (file, _kernels_of_file(nvcc, file, known)), own_files()))


def _kernels_of_file(nvcc: str, file: str, known: dict[str, Any]) -> dict[str, Any]:
    flags = [*flags_of(Path(file)).split(), f"-arch=sm_{ARCHITECTURE}", "--resource-usage"]
    own = digest(file, [version(nvcc), *flags], None)
    if known.get(file, {}).get("digest") == own:
        return dict(known[file])
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.cubin"
        command = [nvcc, *flags, "-cubin", "-o", str(out), str(resource("kernels") / file)]
        ran = subprocess.run(command, capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(f"nvcc does not compile {file}:\n{ran.stdout}{ran.stderr}")
        return {"digest": own, "kernels": _entries(parse(ran.stdout + ran.stderr), code_of(out.read_bytes()))}


def _entries(usages: dict[str, dict[str, Usage]], code: dict[str, str]) -> list[list[Any]]:
    """[name, digest of the code, usage] of each kernel."""
    shown = _demangled(list(code))
    return sorted([name, code[m], list(astuple(usages[name][ARCHITECTURE]))] for m, name in shown.items())


def _demangled(mangled: list[str]) -> dict[str, str]:
    ran = subprocess.run(["c++filt", *mangled], capture_output=True, text=True, check=True) if mangled else None
    return {m: short_name(line) for m, line in zip(mangled, ran.stdout.splitlines() if ran else [], strict=True)}


def code_of(
    cubin: bytes,  # an ELF file
) -> dict[str, str]:  # digest of the instructions, by the kernel's mangled name
    prefix = ".text."
    return {
        name.removeprefix(prefix): hashlib.sha256(cubin[offset : offset + size]).hexdigest()
        for name, offset, size in sections(cubin)
        if name.startswith(prefix)
    }


def sections(elf: bytes) -> list[tuple[str, int, int]]:
    """Name, offset and size of each section of a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + size * i) for i in range(count)]
    strings = headers[names][4]

    def text(at: int) -> str:
        return elf[strings + at : elf.index(b"\0", strings + at)].decode()

    return [(text(name), offset, length) for name, _, _, _, offset, length in headers]


# ---- comparison


def compared(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Lines: differences, kernels with another name, and the number of equal ones."""
    lines: list[str] = []
    for name, own in after.get("runs", {}).items():
        old = before.get("runs", {}).get(name)
        lines += [f"{'same' if own == old else 'differs'}: run {name}"] if old else []
    if "kernels" in before and "kernels" in after:
        lines += compared_kernels(kernels_in(before["kernels"]), kernels_in(after["kernels"]))
    return lines


def kernels_in(files: dict[str, Any]) -> list[Kernel]:
    return [Kernel(name, code, tuple(usage)) for file in files.values() for name, code, usage in file["kernels"]]


def compared_kernels(before: list[Kernel], after: list[Kernel]) -> list[str]:
    left, new = Counter(before), Counter(after)
    same = left & new
    gone, come = list((left - same).elements()), list((new - same).elements())
    lines: list[str] = []
    for kernel in come:
        old = next((k for k in gone if (k.code, k.usage) == (kernel.code, kernel.usage)), None)
        if old is None:
            lines.append(f"differs: {kernel.name} has code or resources that no kernel of before has")
            continue
        gone.remove(old)
        lines.append(f"renamed: {old.name} -> {kernel.name}")
    lines += [f"differs: {kernel.name} of before has no counterpart" for kernel in gone]
    return [*lines, f"same: {sum(same.values())} of {len(after)} kernels, with their names"]


if __name__ == "__main__":
    sys.exit(main())
