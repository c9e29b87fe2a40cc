# SPDX-License-Identifier: Apache-2.0
"""Registers without a GPU: those of every kernel on five architectures, against kernels/budget.json.

Files that are as they were when the budget was made are not compiled again (scripts/measured.py). With $NUREC_RESOURCES all are, and the
table is written there. Without nvcc these tests skip, or fail if CI is set.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest
from kernel_math import ROWS

from nurec_lite.base.paths import resource
from nurec_lite.native.build import BuildError, find_tools
from scripts import measured, resources
from scripts.resources import (
    ARCHITECTURES,
    Table,
    Usage,
    asked,
    budget_of,
    budget_text,
    cuda_sources,
    excess,
    measure,
    own_files,
    parse,
    read_budget,
    short_name,
    write_table,
)

KERNEL = "_ZN5nurec4cuda12_GLOBAL__N_120renderForward_kernelILb1EEEvi"
SAID = f"""
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '{KERNEL}' for 'sm_80'
ptxas info    : Function properties for {KERNEL}
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Function properties for helper
    99 bytes stack frame, 99 bytes spill stores, 99 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 20480 bytes smem, 536 bytes cmem[0]
ptxas info    : Compiling entry function '{KERNEL}' for 'sm_90'
ptxas info    : Function properties for {KERNEL}
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 33 registers
"""


@pytest.fixture(scope="session")
def nvcc() -> str:
    try:
        found = find_tools(ARCHITECTURES[0]).nvcc
    except BuildError as error:
        absent = pytest.fail if os.environ.get("CI") else pytest.skip
        absent(str(error))
    assert found is not None
    return found


@pytest.fixture(scope="session")
def table(nvcc: str) -> Table:
    """Kernels that have changed since the budget was made; all kernels, if NUREC_RESOURCES asks for the table."""
    own = os.environ.get("NUREC_RESOURCES")
    known = set() if own else measured.unchanged(nvcc, asked, read_budget())
    found = measure(nvcc, files=[file for file in own_files() if file not in known])
    if own:
        write_table(Path(own), found)
    return found


# ---- the kernels


@pytest.mark.slow
def test_kernels_stay_within_their_budget(table: Table) -> None:
    files = {*table, *(file for file in read_budget() if file not in own_files())}
    sentences = excess(table, {file: entry for file, entry in read_budget().items() if file in files})
    assert not sentences, "\n".join([*sentences, "if that is meant: python scripts/resources.py --write"])


@pytest.mark.slow
def test_kernels_are_measured_on_every_architecture(table: Table) -> None:
    declared = sum(
        len(re.findall(r"__global__ ", path.read_text()))
        for path in resource("kernels").rglob("*")
        if path.suffix in (".cu", ".cuh")
    )
    kernels = {kernel.split("<")[0] for kernels in (read_budget() | table).values() for kernel in kernels}
    assert len(kernels) == declared
    assert all(set(usages) == set(ARCHITECTURES) for kernels in table.values() for usages in kernels.values())


@pytest.mark.slow
def test_every_formula_compiles_for_the_device(nvcc: str, tmp_path: Path) -> None:
    """Kernels use but some of them. `math_rows` calls each from a kernel when nvcc compiles it, here to PTX, in a quarter of the time."""
    flags = ["-x", "cu", "-std=c++17", "--expt-relaxed-constexpr", "-arch=sm_90", "-ptx"]
    source = str(ROWS / "math.cpp")
    ran = subprocess.run([nvcc, *flags, source, "-o", str(tmp_path / "math.ptx")], capture_output=True, text=True)
    assert ran.returncode == 0 and "warning" not in ran.stderr, ran.stderr


def test_names_of_kernels_end_alike() -> None:
    """One filter of ncu, `.*_kernel`, then finds all of ours."""
    names = {kernel.split("<")[0] for kernels in read_budget().values() for kernel in kernels}
    assert [name for name in names if not name.endswith("_kernel")] == []


def test_files_with_cub_hold_no_kernels_of_ours() -> None:
    for path in cuda_sources():
        text = path.read_text()
        assert "#include <cub/" not in text or "__global__" not in text, f"{path.name} would not be measured"


# ---- output of ptxas


def test_a_report_is_read() -> None:
    usages = {"80": Usage(40, 16, 20, 20480), "90": Usage(33, 0, 0, 0)}
    assert parse(SAID) == {"renderForward_kernel<true>": usages}
    assert parse("") == {}


@pytest.mark.parametrize(
    ("demangled", "name"),
    [
        (
            "void nurec::cuda::(anonymous namespace)::renderForward_kernel<true>(nurec::cuda::RenderParams)",
            "renderForward_kernel<true>",
        ),
        ("nurec::cuda::rows_kernel(nurec::cuda::RenderParams)", "rows_kernel"),
        ("void nurec::cuda::(anonymous namespace)::k<(nurec::cuda::Sensor)1, 3>(int)", "k<(Sensor)1, 3>"),
    ],
)
def test_names_are_shortened(demangled: str, name: str) -> None:
    assert short_name(demangled) == name


# ---- the budget


def one(**usages: Usage) -> Table:
    return {"a.cu": {"k": {name.removeprefix("sm_"): usage for name, usage in usages.items()}}}


def test_a_budget_is_what_the_kernel_takes_in_steps_of_eight() -> None:
    limits = budget_of(one(sm_80=Usage(33, 0, 4, 128), sm_90=Usage(41, 16), sm_100=Usage(48)))
    common = {"registers": 48, "stack": 16, "spills": 4, "shared": 128}
    assert limits == {"a.cu": {"k": {**common, "sm_80": {"registers": 40}}}}


def test_a_kernel_keeps_its_own_budget() -> None:
    table = one(sm_80=Usage(33, 0, 4, 128), sm_90=Usage(41, 16), sm_100=Usage(48))
    assert excess(table, budget_of(table)) == []
    assert excess(one(sm_80=Usage(40), sm_90=Usage(48)), budget_of(table)) == []


def test_each_limit_holds() -> None:
    limits = budget_of(one(sm_80=Usage(40, 0, 0, 128), sm_90=Usage(48)))
    over = one(sm_80=Usage(41, 8, 4, 256), sm_90=Usage(49))
    assert excess(over, limits) == [
        "k of a.cu has 41 registers on sm_80, but its budget is 40",
        "k of a.cu has 8 bytes of stack on sm_80, but its budget is 0",
        "k of a.cu has 4 bytes of spills on sm_80, but its budget is 0",
        "k of a.cu has 256 bytes of shared memory on sm_80, but its budget is 128",
        "k of a.cu has 49 registers on sm_90, but its budget is 48",
    ]


def test_kernels_without_entry_and_entries_without_kernel() -> None:
    table = one(sm_80=Usage(8))
    renamed = {"a.cu": {"new": table["a.cu"]["k"]}}
    assert excess(renamed, budget_of(table)) == [
        "new of a.cu has no entry in kernels/budget.json",
        "kernels/budget.json has an entry for k of a.cu, which is no more",
    ]
    assert excess({}, budget_of(table)) == ["kernels/budget.json has an entry for k of a.cu, which is no more"]


def test_the_budget_is_written_as_it_is_kept() -> None:
    path = resource("kernels/budget.json")
    assert budget_text(read_budget()) == path.read_text()


# ---- measured files


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """a.cu and b.cu, measured; a.cu includes a header by way of another."""
    for name, text in {
        "one/a.cu": '#include <math.h>\n#include "a.cuh"\n',
        "one/a.cuh": ' # include "../two/far.cuh"\n',
        "two/far.cuh": '#include "../one/a.cuh"\n',
        "two/b.cu": "",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(measured, "resource", lambda name: tmp_path)
    monkeypatch.setattr(measured, "version", lambda nvcc: f"version of {nvcc}")
    limits = {"one/a.cu": {"k": {"registers": 8}}}
    (tmp_path / "measured.json").write_text(measured.text_of("nvcc", asked, ["one/a.cu", "two/b.cu"], limits))
    return tmp_path


LIMITS = {"one/a.cu": {"k": {"registers": 8}}}


def known(limits: measured.Entries = LIMITS, nvcc: str = "nvcc", asked: measured.Asked = asked) -> set[str]:
    return measured.unchanged(nvcc, asked, limits)


def test_what_is_as_it_was_is_known(kernels: Path) -> None:
    assert known() == {"one/a.cu", "two/b.cu"}


@pytest.mark.parametrize("name", ["one/a.cu", "one/a.cuh", "two/far.cuh"])
def test_what_a_file_includes_counts(kernels: Path, name: str) -> None:
    (kernels / name).write_text((kernels / name).read_text() + "int x;\n")
    assert known() == {"two/b.cu"}


@pytest.mark.parametrize("name", ["one/a.cu", "one/a.cuh", "two/far.cuh"])
def test_comments_and_layout_do_not_count(kernels: Path, name: str) -> None:
    (kernels / name).write_text("// first\n\n/* a\n b */" + (kernels / name).read_text() + "  // last\n")
    assert known() == {"one/a.cu", "two/b.cu"}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("int a = 1;  // one\nint b;", "int a\n    = 1; int b;", True),
        ('f("//");', 'f("");', False),
        ("int c = '\"'; // x\n", "int c = '\"';", True),
        ("#define A 1\nint a;", "#define A 1 int a;", False),
        ("#define A \\\n    1\n", "#define A 1\n", True),
        ("a / b", "a // b", False),
    ],
)
def test_code_of(one: str, other: str, same: bool) -> None:
    assert (measured.code_of(one) == measured.code_of(other)) is same


def test_flags_architectures_the_budget_and_the_compiler_count(kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert known({"one/a.cu": {"k": {"registers": 16}}}) == {"two/b.cu"}
    assert known({}) == {"two/b.cu"}
    assert known(nvcc="another") == set()
    assert known(asked=lambda file: asked(file, "-G" if "b.cu" in file else "")) == {"one/a.cu"}
    monkeypatch.setattr(resources, "ARCHITECTURES", ("90",))
    assert known() == set()


def test_files_that_are_no_more_and_no_file_at_all(kernels: Path) -> None:
    (kernels / "two/b.cu").unlink()
    assert known() == {"one/a.cu"}
    (kernels / "measured.json").unlink()
    assert known() == set()
