# SPDX-License-Identifier: Apache-2.0
"""Registers, stack, spills and shared memory of every kernel for five architectures, as ptxas counts them: without a GPU.

    python scripts/resources.py [--out FILE.json] [--fast-math]    the table, and the kernels that exceed kernels/budget.json
    python scripts/resources.py --write                            makes the present figures the budget; files that are as they were when
                                                                   it was made are not compiled again (scripts/measured.py)

Files that include CUB hold no kernels of ours and are left out. Flags are those of the build, nurec_lite/native/build.py.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from nurec_lite.base.paths import resource
from nurec_lite.base.program import Parser, ends_with_a_sentence
from nurec_lite.native.build import find_tools, flags_of
from nurec_lite.profiling import names
from scripts import measured

ARCHITECTURES = ("80", "89", "90", "100", "120")
BUDGET = "kernels/budget.json"
STEP = 8  # registers are handed to threads in eights


@dataclass(frozen=True)
class Usage:
    registers: int = 0  # a thread
    stack: int = 0  # bytes a thread
    spills: int = 0  # bytes stored and loaded
    shared: int = 0  # bytes a block, static


Table = dict[str, dict[str, dict[str, Usage]]]  # by file, kernel and architecture
Limits = dict[
    str, dict[str, dict[str, int | dict[str, int]]]
]  # by file and kernel: limits, or sm_90: limits that differ


def measure(
    nvcc: str,
    extra: str = "",  # flags
    files: Sequence[str] | None = None,  # relative to kernels/; None: all
) -> Table:
    files = own_files() if files is None else files
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda file: _measure_file(nvcc, file, extra), files)
        return dict(zip(files, found, strict=True))


def own_files() -> list[str]:
    """Those with kernels of ours."""
    own = [path for path in cuda_sources() if "#include <cub/" not in path.read_text()]
    return [str(path.relative_to(resource("kernels"))) for path in own]


def cuda_sources() -> list[Path]:
    return sorted(resource("kernels").rglob("*.cu"))


def asked(
    file: str,  # relative to kernels/
    extra: str = "",  # flags
) -> list[str]:
    """Arguments of nvcc for a file."""
    targets = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in ARCHITECTURES]
    return [*f"{flags_of(Path(file))} {extra}".split(), *targets, "--resource-usage"]


def _measure_file(nvcc: str, file: str, extra: str) -> dict[str, dict[str, Usage]]:
    source = resource("kernels") / file
    with tempfile.TemporaryDirectory() as folder:
        out = ["-fatbin", "-o", f"{folder}/out.fatbin", str(source)]
        ran = subprocess.run([nvcc, *asked(file, extra), *out], capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(f"nvcc does not compile {source.name}:\n{ran.stdout}{ran.stderr}")
    return parse(ran.stdout + ran.stderr)


def parse(
    text: str,  # output of ptxas
) -> dict[str, dict[str, Usage]]:  # by kernel and architecture
    table: dict[str, dict[str, Usage]] = {}
    entry = architecture = function = ""
    usage = Usage()
    for line in text.splitlines():
        if found := re.search(r"Compiling entry function '(\w+)' for 'sm_(\w+)'", line):
            entry, architecture = found.groups()
        elif found := re.search(r"Function properties for (\w+)", line):
            function = found[1]
        elif (
            found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)
        ) and (function == entry):
            usage = Usage(stack=int(found[1]), spills=int(found[2]) + int(found[3]))
        elif found := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            usage = replace(usage, registers=int(found[1]), shared=int(shared[1]) if shared else 0)
            table.setdefault(entry, {})[architecture] = usage
    return dict(sorted((name, table[mangled]) for mangled, name in _names(list(table)).items()))


def _names(mangled: list[str]) -> dict[str, str]:
    """`renderForward_kernel<true>` of `void nurec::cuda::(anonymous namespace)::renderForward_kernel<true>(nurec::cuda::RenderParams)`."""
    shown = subprocess.run(["c++filt", *mangled], capture_output=True, text=True, check=True) if mangled else None
    return {m: short_name(line) for m, line in zip(mangled, shown.stdout.splitlines() if shown else [], strict=True)}


def short_name(demangled: str) -> str:
    return names.short_name(demangled).replace("nurec::cuda::", "").replace("nurec::", "")


def budget_of(table: Table) -> Limits:
    """Limits that the table just meets: those of the architecture that needs most, and of others that need fewer registers."""
    limits: Limits = {}
    for file, kernels in table.items():
        for kernel, usages in kernels.items():
            most = {field: max(getattr(u, field) for u in usages.values()) for field in asdict(Usage())}
            most["registers"] = _rounded(most["registers"])
            entry: dict[str, int | dict[str, int]] = dict(most)
            for architecture, usage in usages.items():
                if _rounded(usage.registers) < most["registers"]:
                    entry[f"sm_{architecture}"] = {"registers": _rounded(usage.registers)}
            limits.setdefault(file, {})[kernel] = entry
    return limits


def budget_text(limits: Limits) -> str:
    """JSON with a line a kernel."""
    files = []
    for file, kernels in limits.items():
        lines = ",\n".join(f"  {json.dumps(kernel)}: {json.dumps(entry)}" for kernel, entry in kernels.items())
        files.append(f" {json.dumps(file)}: {{\n{lines}\n }}")
    return "{\n" + ",\n".join(files) + "\n}\n"


def _rounded(registers: int) -> int:
    return -(-registers // STEP) * STEP


def excess(table: Table, limits: Limits) -> list[str]:
    """A sentence for every limit that a kernel exceeds, every kernel without limits, and every entry without its kernel."""
    sentences = []
    for file, kernels in table.items():
        for kernel, usages in kernels.items():
            entry = limits.get(file, {}).get(kernel)
            if entry is None:
                sentences.append(f"{kernel} of {file} has no entry in {BUDGET}")
                continue
            sentences += [s for a, u in usages.items() for s in _over(f"{kernel} of {file}", a, u, entry)]
    gone = [
        (file, kernel) for file, kernels in limits.items() for kernel in kernels if kernel not in table.get(file, {})
    ]
    return sentences + [f"{BUDGET} has an entry for {kernel} of {file}, which is no more" for file, kernel in gone]


def _over(kernel: str, architecture: str, usage: Usage, entry: dict[str, int | dict[str, int]]) -> list[str]:
    own = entry.get(f"sm_{architecture}", {})
    assert isinstance(own, dict)
    allowed = entry | own
    return [
        f"{kernel} has {value} {UNITS[field]} on sm_{architecture}, but its budget is {allowed[field]}"
        for field, value in asdict(usage).items()
        if value > allowed[field]
    ]


UNITS = {
    "registers": "registers", "stack": "bytes of stack", "spills": "bytes of spills", "shared": "bytes of shared memory",
}  # fmt: skip


def read_budget() -> Limits:
    limits: Limits = json.loads(resource(BUDGET).read_text())
    return limits


def write_table(path: Path, table: Table) -> None:
    plain = {f: {k: {a: asdict(u) for a, u in us.items()} for k, us in ks.items()} for f, ks in table.items()}
    path.write_text(json.dumps(plain, indent=1) + "\n")


def print_table(table: Table) -> None:
    print(
        f"{'registers a thread on':40}" + "".join(f"{'sm_' + a:>8}" for a in ARCHITECTURES) + "   stack  spills  shared"
    )
    for file, kernels in table.items():
        print(file)
        for kernel, usages in kernels.items():
            worst = [max(getattr(u, field) for u in usages.values()) for field in ("stack", "spills", "shared")]
            registers = "".join(f"{usages[a].registers:8}" for a in ARCHITECTURES)
            print(f"  {kernel:38}{registers}" + "".join(f"{w:8}" for w in worst))


def main() -> int:
    parser = Parser(__doc__)
    parser.add_argument("--write", action="store_true", help="make the present figures the budget")
    parser.add_argument("--out", type=Path, help="write the table as JSON, too")
    parser.add_argument("--fast-math", action="store_true", help="compile all files with --use_fast_math")
    args = parser.parse_args()
    with ends_with_a_sentence():
        nvcc = find_tools(ARCHITECTURES[0]).nvcc
    assert nvcc is not None
    extra = "--use_fast_math" if args.fast_math else ""
    before = read_budget()
    same = measured.unchanged(nvcc, lambda file: asked(file, extra), before) if args.write else set()
    table = measure(nvcc, extra, [file for file in own_files() if file not in same])
    print_table(table)
    if args.out:
        write_table(args.out, table)
    if args.write:
        limits = dict(sorted((budget_of(table) | {file: before[file] for file in same if file in before}).items()))
        (resource("kernels") / "budget.json").write_text(budget_text(limits))
        known = measured.text_of(nvcc, lambda file: asked(file, extra), {*table, *same}, limits)
        (resource("kernels") / measured.MEASURED).write_text(known)
        return 0
    sentences = excess(table, before)
    print(*sentences, sep="\n")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
