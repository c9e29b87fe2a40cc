# SPDX-License-Identifier: Apache-2.0
"""The CUDA drivers on the CPU (tests/emulation): the tests of parity over them, and the emulation itself on small kernels."""

import ctypes
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from cuda_rewriting import RewritingError, rewritten
from emulation import EMULATED, OWN, compiled

from nurec_lite.native.build import BuildError

TESTS = Path(__file__).parents[1]
PROBE = OWN / "probe.cu"
FILES = {
    "scene/test_parted.py",
    "benchmarks/test_bench_views.py",
    "opt/test_spread_blocks.py",
    "opt/test_paired_images.py",
} | {  # and those that choose between devices
    str(path.relative_to(TESTS))
    for folder in ("native", "opt")
    for path in (TESTS / folder).glob("test_*.py")
    if re.search(r"\bDEVICES\b", path.read_text()) and path != Path(__file__)
}
RENDER = "native/test_parity_render.py"
RUNS = {  # files, which of their tests, and how many must have passed: each kernel, few shapes a kernel
    "render": ([RENDER], "(not cpu-split or test_cameras or test_lidars or few_rays or hundreds) and not trained_scene", 290),
    "others": (  # whole trainings and torch's checks of an operator's declaration take long: each kernel has tests of its own
        sorted(FILES - {RENDER}),
        "not (recorded_steps or steps_with_relocations or steps_are_those_without_it or graph_is_recorded"
        " or its_turns_of_one_launch or own_checks or whole_one or a_step_is or a_step_learns or training_steps or steps_that"
        " or several_rows or tiles_of_any_size or goes_with_batch or draws_anew or hundreds_of_layers or thin_gaussians_are)",
        600,
    ),
    "in a random order": (
        [RENDER, *(f"native/test_{name}.py" for name in ("parity_project", "parity_tiles", "move_actors")),
         "opt/test_split_backward.py"],
        "(test_cameras or test_lidars or hundreds) and (cpu-shared or test_parity_project) or any_length and (129 or 257)"
        " or test_lists_of or test_patterns or test_values", 100,
    ),
}  # fmt: skip
pytestmark = pytest.mark.skipif(EMULATED, reason="starts the emulation itself")


# ---- parity


@pytest.mark.slow
@pytest.mark.every_part
@pytest.mark.parametrize("run", RUNS)
def test_parity(run: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """A process of its own, whose report says how many tests ran. A part of the slow tests has a part of each run."""
    files, which, least = RUNS[run]
    report = tmp_path / "report.xml"
    part = pytestconfig.getoption("--slow-part") or "0/1"
    more = {"NUREC_LITE_EMULATION_SEED": "12345"} if "random" in run else {}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", f"--slow-part={part}", "-k", which,
         *files],
        cwd=TESTS, text=True, capture_output=True, check=False, timeout=3600,
        env=os.environ | {"NUREC_LITE_EMULATE_CUDA": "1", "PYTHONPATH": os.pathsep.join(sys.path)} | more,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-6000:]
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    share = 0.7 / int(part.split("/")[1]) if part != "0/1" else 1  # parts are not of one size
    assert int(suite.attrib["tests"]) - int(suite.attrib["skipped"]) >= share * least, ran.stdout[-2000:]


@pytest.mark.slow
def test_operators_of_tensors_on_the_cpu_are_the_emulated_ones() -> None:
    """1025 colours are nine blocks of 128 threads."""
    code = (
        "import ctypes, emulation, torch; from nurec_lite.native import ops; emulation.install(); ops.load();"
        "torch.ops.nurec_lite.sh_colour(torch.zeros(1025, 4, 3), None, torch.zeros(1025, 3));"
        "library = ctypes.CDLL(str(emulation.library()));"
        "print(ctypes.c_uint64.in_dll(library, 'nurec_emulated_blocks').value)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert ran.stdout.strip() == "9"


# ---- kernels that show the emulation


@dataclass
class Probe:
    library: ctypes.CDLL

    def call(self, name: str, *arguments: object) -> str:
        """The text of the error, or none. Tensors are passed as pointers."""
        function = self.library[name]
        function.restype = ctypes.c_char_p
        given = [ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else a for a in arguments]
        return (function(*given) or b"").decode()

    def run(self, kernel: str, threads: int = 64) -> list[int]:
        out = zeros(256)
        assert self.call("run", kernel.encode(), out, threads) == ""
        return out.tolist()

    def error(self, kernel: str, threads: int = 64) -> str:
        return self.call("run", kernel.encode(), zeros(256), threads)


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder where the emulation is compiled once."""
    return tmp_path_factory.mktemp("objects")


@pytest.fixture(scope="module")
def probe(objects: Path) -> Probe:
    return Probe(ctypes.CDLL(str(compiled(PROBE, objects))))


@pytest.fixture(params=["", "1", "2"], ids=["ascending", "random", "otherwise random"])
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUREC_LITE_EMULATION_SEED", request.param)


def zeros(n: int) -> torch.Tensor:
    return torch.zeros(n, dtype=torch.int32)


def line_of(text: str, nth: int = 1) -> int:
    lines = PROBE.read_text().splitlines()
    return [k for k, line in enumerate(lines, 1) if text in line][nth - 1]


@pytest.mark.usefixtures("order")
def test_threads_that_wait_at_different_barriers(probe: Probe) -> None:
    said = probe.error("two_barriers")
    first, second = line_of("        __syncthreads();"), line_of("        __syncthreads();", 2)
    assert said.startswith("emulated CUDA: kernel, block (0, 0, 0): threads wait for one another for ever:")
    assert f"threads 0-39 wait at __syncthreads ({PROBE}:{first})" in said
    assert f"threads 40-63 wait at __syncthreads ({PROBE}:{second})" in said
    assert probe.run("with_barrier")[:3] == [163, 100, 101]  # an error leaves nothing behind


@pytest.mark.usefixtures("order")
def test_threads_that_have_ended_are_not_waited_for_at_barriers(probe: Probe) -> None:
    found = probe.run("barrier_of_some")
    assert found[:64] == [5, 11] * 32


@pytest.mark.usefixtures("order")
def test_lanes_that_have_ended_are_waited_for_by_their_warp(probe: Probe) -> None:
    said = probe.error("lane_that_left")
    line = line_of("int(threadIdx.x), 1)")
    assert f"threads 32-36, 38-63 wait at __shfl_xor_sync of mask 0xffffffff ({PROBE}:{line})" in said
    assert "threads 0-31, 37 have ended" in said


def test_masks_that_lack_a_lane(probe: Probe) -> None:
    said = probe.error("lane_beside_the_mask")
    assert "lane 0 reads lane 20 at __shfl_sync of mask 0xffff (" in said and "which lacks that lane" in said
    said = probe.error("lane_not_in_its_mask")
    assert "thread 16: lane 16 calls __any_sync of mask 0xffff (" in said and "which lacks it" in said


@pytest.mark.usefixtures("order")
def test_shuffles(probe: Probe) -> None:
    found, t = probe.run("shuffles"), range(64)
    assert found[:64] == [k ^ 5 for k in t]
    assert found[64:128] == [k - 3 if k % 32 >= 3 else k for k in t]
    assert found[128:192] == [k + 3 if k % 8 < 5 else k for k in t]
    assert found[192:] == [k // 16 * 16 + 9 for k in t]


@pytest.mark.usefixtures("order")
def test_votes_and_sums_of_warps(probe: Probe) -> None:
    found = probe.run("votes")
    first, second = (sum(1 << k % 32 for k in warp if k % 3 == 0) for warp in (range(32), range(32, 64)))
    assert [k % 2**32 for k in found[:64]] == [first] * 32 + [second] * 32
    assert found[64:128] == [1] * 32 + [10] * 32
    assert found[128:192] == [sum(range(32))] * 32 + [sum(range(32, 64)) - 320000] * 32


@pytest.mark.usefixtures("order")
def test_parts_of_a_warp_may_meet_alone(probe: Probe) -> None:
    assert probe.run("halves", 32)[:32] == [120] * 16 + [31] * 16


def test_a_missing_barrier_shows_in_a_random_order(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [100 + (t + 63) % 64 for t in range(64)]
    found = {"with": [], "without": []}
    for seed in range(1, 9):
        monkeypatch.setenv("NUREC_LITE_EMULATION_SEED", str(seed))
        for name, results in found.items():
            results.append(probe.run(f"{name}_barrier")[:64])
    assert all(result == expected for result in found["with"])
    assert all(result != expected for result in found["without"])
    assert len({tuple(result) for result in found["without"]}) > 1


@pytest.mark.usefixtures("order")
def test_shared_memory_is_new_in_every_block(probe: Probe) -> None:
    out = zeros(5)
    assert probe.call("run_unwritten", out, 5) == ""
    assert out.tolist() == [10, -2, -2, -2, -2]


def test_instances_of_a_template_have_their_own_shared_memory(probe: Probe) -> None:
    out = zeros(2)
    assert probe.call("run_instances", out) == "" and out.tolist() == [8, 64]


def test_indices_beyond_shared_memory(probe: Probe) -> None:
    assert probe.run("beyond", 4)[0] == 1
    line = line_of("    a[threadIdx.x] = 1;")
    said = probe.error("beyond", 5)
    assert f"thread 4: index 4 lies outside of the array ({PROBE}:{line})" in said


def test_vectors_that_are_not_aligned(probe: Probe) -> None:
    numbers, out = torch.arange(8.0), torch.zeros(1)
    assert "an address is not aligned: its last digit is 4" in probe.call("run_misaligned", numbers, out)
    assert probe.call("run_misaligned", numbers[3:], out) == "" and out[0] == 4


def test_dynamic_shared_memory(probe: Probe) -> None:
    """Integers that are given, the last that is written, and bytes that are allowed; 48 KiB without asking."""
    out = zeros(1)
    assert probe.call("run_dynamic", out, 40, 40, 0) == "" and out[0] == 1
    assert "fills_dynamic writes behind its dynamic shared memory" in probe.call("run_dynamic", out, 40, 41, 0)
    assert "65536 bytes of dynamic shared memory, but cudaFuncSetAttribute allows 49152" in probe.call(
        "run_dynamic", out, 16384, 16384, 0
    )
    assert probe.call("run_dynamic", out, 16384, 16384, 65536) == ""
    assert "no kernel may have" in probe.call("run_dynamic", out, 40, 40, 1 << 18)


@pytest.mark.parametrize(("threads", "said"), [(0, "a block has 0 threads"), (1025, "a block has 1025 threads")])
def test_launches_that_cuda_refuses(threads: int, said: str, probe: Probe) -> None:
    assert said in probe.error("votes", threads)
    assert "a grid must have blocks" in probe.call("run_unwritten", zeros(1), 0)


@pytest.mark.usefixtures("order")
def test_every_thread_of_every_block_runs_once(probe: Probe) -> None:
    grid, block = torch.tensor([3, 2, 2], dtype=torch.int32), torch.tensor([5, 3, 4], dtype=torch.int32)
    out = zeros(12 * 60)
    assert probe.call("run_places", out, grid, block) == ""
    assert out.tolist() == [1000 + 100 * b + t for b in range(12) for t in range(60)]


# ---- CUB


def test_sums_and_selection(probe: Probe) -> None:
    numbers = torch.tensor([3, 0, 4, 1])
    probe.library.exclusive_sum(ctypes.c_void_p(numbers.data_ptr()), ctypes.c_int64(4))
    assert numbers.tolist() == [0, 3, 3, 7]
    flags, chosen, count = torch.tensor([0, 1, 0, 2, 255], dtype=torch.uint8), zeros(5), torch.zeros(1).long()
    probe.library.select_flagged(
        *(ctypes.c_void_p(flags.data_ptr()), ctypes.c_int64(5)),
        *(ctypes.c_void_p(chosen.data_ptr()), ctypes.c_void_p(count.data_ptr())),
    )
    assert count.item() == 3 and chosen.tolist() == [1, 3, 4, 0, 0]


# ---- sources


def body(text: str) -> str:
    first, rest = rewritten(text, "a.cu").split("\n", 1)
    assert first == '#line 1 "a.cu"' and rest.count("\n") == text.count("\n")
    return rest


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("k<<<g, 256, 0, s>>>(p);", 'emulation::launch("k", emulation::Grid(g, 256, 0, s), k, p);'),
        ("if (n) a::k<T><<<1, 2>>>();", 'if (n) emulation::launch("a::k<T>", emulation::Grid(1, 2), a::k<T>);'),
        (
            "else\n  k<3, (A > 2)><<<f(a, b[0]),\n 1>>>(x,\n  (y), z[2]);",
            'else\n  emulation::launch("k<3, (A > 2)>", emulation::Grid(f(a, b[0]),\n 1), k<3, (A > 2)>, x,\n  (y), z[2]);',
        ),
        ("// k<<<1, 1>>>()\n/* __shared__ */ a << 3;", "// k<<<1, 1>>>()\n/* __shared__ */ a << 3;"),
        ("\"k<<<1, 1>>>()\" '\"' 1'000", "\"k<<<1, 1>>>()\" '\"' 1'000"),
        (
            "__shared__ float a[2][N + 1];",
            "static emulation::Shared<float[2][N+1]> a_of_block; auto& a = a_of_block.of_block();",
        ),
        (
            "extern __shared__ __align__(16) Row rows[];",
            "Row* const rows = reinterpret_cast<Row*>(emulation::dynamic_shared);",
        ),
    ],
)
def test_what_is_written_another_way(text: str, expected: str) -> None:
    assert body(text) == expected


def test_several_names_in_one_declaration() -> None:
    found = body("__shared__ Pair<int, 3> a, b[4];")
    assert "Shared<Pair<int, 3>> a_of_block" in found and "Shared<Pair<int, 3>[4]> b_of_block" in found


@pytest.mark.parametrize("text", ["a = <<<1>>>(b);", "k<<<1, 1>>>;", "__shared__ int *a[3], (*f)(int);"])
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(RewritingError, match=r"a\.cu:3: .* which the emulation does not understand"):
        rewritten(f"\n\n{text}", "a.cu")


def test_a_launch_over_several_lines(probe: Probe) -> None:
    out = torch.zeros(1)
    assert probe.call("run_product", out) == "" and out[0] == 12.5


def test_what_the_emulation_lacks_does_not_compile(tmp_path: Path, objects: Path) -> None:
    source = tmp_path / "odd.cu"
    source.write_text("__global__ void k() {\n    __nanosleep(5);\n}\n")
    with pytest.raises(BuildError, match=r"odd\.cu:2:5: error: .__nanosleep. was not declared"):
        compiled(source, objects)
