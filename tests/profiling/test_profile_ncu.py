# SPDX-License-Identifier: Apache-2.0
"""Figures of a kernel from the counters of ncu, against values computed by hand, and the files with them."""

import csv
import io
import json
from pathlib import Path

import pytest
from ncu_page import DFMA, FADD, FFMA, FMUL, NVTX, page, write_page

from nurec_lite.profiling.names import readable, short_name
from nurec_lite.profiling.ncu.csv import read_launches
from nurec_lite.profiling.ncu.kernel import Kernel, kernel, roof, verdict
from nurec_lite.profiling.ncu.report import Profile, by_name, headline, kernels_csv, markdown, write_report
from nurec_lite.profiling.ncu.words import (
    limited_by,
    occupancy_words,
    roofline_words,
    scaled,
    shared_words,
    stall_words,
    verdict_words,
)

SOL, MEMORY = (
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
)


def kernels(folder: Path, *launches: dict[str, str], **options: tuple[str, ...]) -> list[Kernel]:
    text = page(*launches, **options)  # type: ignore[arg-type]
    return [kernel(launch) for launch in read_launches(write_page(folder / "ncu.csv", text))]


@pytest.fixture
def blend(tmp_path: Path) -> Kernel:
    return kernels(tmp_path, {})[0]


def profile(*found: Kernel) -> Profile:
    return Profile("2025.3.1", "python -m nurec_lite.profile tool=ncu", {"device": "a GPU"}, 10, ("A note.",), found)


def test_launch(blend: Kernel) -> None:
    assert (blend.id, blend.name, blend.range) == (0, "blend<3>", "step/render")
    assert (blend.grid, blend.block, blend.waves) == ((78, 24, 1), (16, 16, 1), 3.5)
    assert blend.ms == pytest.approx(2.0)
    assert (blend.registers, blend.spill_instructions) == (64, 42)
    assert (blend.shared_static, blend.shared_dynamic, blend.shared_driver) == (1024, 2048, 1024)


def test_occupancy_and_what_limits_it(blend: Kernel) -> None:
    assert (blend.occupancy_theoretical, blend.occupancy_achieved) == (50, 37.5)
    assert blend.occupancy_limits == {"registers": 4, "shared memory": 7, "blocks": 32, "warps": 8}
    assert blend.limiters == ("registers",)
    assert occupancy_words(blend) == (
        "50.0 % theoretical, 37.5 % achieved; limited by registers "
        "(blocks a multiprocessor: registers 4, shared memory 7, blocks 32, warps 8)"
    )


def test_few_long_blocks_leave_multiprocessors_empty(tmp_path: Path) -> None:
    slow = {"sm__throughput.avg.pct_of_peak_sustained_elapsed": "9"}
    even, tail = kernels(tmp_path, slow, slow | {"sm__cycles_active.avg": "1,750"})
    (unknown,) = kernels(tmp_path, slow, without=("gpc__cycles_elapsed.max",))
    assert (even.sm_active, tail.sm_active, unknown.sm_active) == (90, 17.5, None)
    assert verdict_words(tail).endswith(
        "; a multiprocessor has work for only 17.5 % of the launch, on average: some blocks are long"
    )
    assert "multiprocessor" not in verdict_words(even) + verdict_words(unknown)


def test_two_resources_limit_alike_and_full_occupancy_is_not_limited(tmp_path: Path) -> None:
    both = {"launch__occupancy_limit_registers": "4", "launch__occupancy_limit_warps": "4"}
    tied, full = kernels(tmp_path, both, {"sm__maximum_warps_per_active_cycle_pct": "100"})
    assert tied.limiters == ("registers", "warps") and limited_by(tied) == "registers and warps"
    assert limited_by(full) == "nothing"


def test_memory(blend: Kernel) -> None:
    assert (blend.dram_read_bytes, blend.dram_write_bytes, blend.dram_bytes_per_s) == (1.5e9, 5e8, 1e12)
    assert (blend.sol_dram, blend.sol_l2, blend.sol_l1, blend.l2_hit, blend.l1_hit) == (20, 12, 25, 80, 60)


def test_shared_memory_conflicts_are_set_against_wavefronts(blend: Kernel) -> None:
    assert (blend.shared_requests, blend.shared_wavefronts, blend.shared_conflicts) == (1250, 2000, 750)
    assert shared_words(blend) == "1.25 k requests in 2 k wavefronts, 750 of them for bank conflicts (37.5 %)"


def test_flop_intensity_and_ceilings(blend: Kernel) -> None:
    """1e9 + 2e9 + 2 * 3.5e9 operations in 2 ms, at 1 TB/s; peaks 2 * 10000 * 1 GHz and 2000 B * 2 GHz."""
    assert (blend.fp32_flop, blend.fp64_flop, blend.fp16_flop) == (10e9, 9, None)
    assert blend.flop_per_s == pytest.approx(5e12) and blend.intensity == pytest.approx(5.0)
    assert blend.peak_flop_per_s == pytest.approx(2e13) and blend.peak_bytes_per_s == pytest.approx(4e12)
    assert roof(blend) == pytest.approx(2e13)  # the ridge lies at 5 FLOP a byte
    assert roofline_words(blend) == "5 TFLOP/s at 5 FLOP a byte of DRAM, 25.0 % of the roofline's limit"


def test_flop_from_rates_where_counts_are_missing(tmp_path: Path) -> None:
    """(500 + 1000 + 2 * 1750) a cycle at 1 GHz, as ncu's own chart has it."""
    (found,) = kernels(tmp_path, {}, without=(FADD, FMUL, FFMA))
    assert found.fp32_flop is None and found.flop_per_s == pytest.approx(5e12)


def test_stalls_are_sorted_and_issuing_is_none(blend: Kernel) -> None:
    assert list(blend.stalls.items()) == [("long_scoreboard", 12.5), ("barrier", 4.0), ("wait", 2.5)]
    assert stall_words(blend, 1) == [
        "12.5 cycles (62 %) for data from global or local memory (L1, L2 or DRAM) (`long_scoreboard`)"
    ]


@pytest.mark.parametrize(
    ("compute", "memory", "expected"),
    [
        (59.9, 59.9, "latency-bound"), (60.0, 20.0, "compute-bound"), (20.0, 60.0, "memory-bound"),
        (65.0, 60.0, "balanced"), (60.0, 69.9, "balanced"), (60.0, 70.0, "memory-bound"), (70.0, 60.0, "compute-bound"),
        (79.9, 75.0, "balanced"), (80.0, 79.0, "compute-bound"), (85.0, 90.0, "memory-bound"),
        (None, 90.0, None), (90.0, None, None),
    ],
)  # fmt: skip
def test_verdict(compute: float | None, memory: float | None, expected: str | None) -> None:
    assert verdict(compute, memory) == expected


def test_verdict_in_words(tmp_path: Path) -> None:
    latency, memory, small, unknown = kernels(
        tmp_path, {}, {MEMORY: "90"}, {"launch__waves_per_multiprocessor": "0.25"}, {SOL: "n/a"}
    )
    assert latency.verdict == "latency-bound" and "compute (41.5 %) and memory (25.0 %)" in verdict_words(latency)
    assert verdict_words(memory) == (
        "memory is at 90.0 % of its peak, compute at 41.5 %; that is near the limit of the hardware"
    )
    assert verdict_words(small).endswith("the grid is small (0.25 waves), most of the GPU has no block")
    assert unknown.verdict is None and verdict_words(unknown).startswith("no verdict")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("void blend<3>(Params, int)", "blend<3>"),
        ("tile(float *, int)", "tile"),
        ("void (anonymous namespace)::sort<unsigned int, (int)4>(Keys<4>)", "sort<unsigned int, (int)4>"),
        ("void at::f<at::Fill<float>, std::array<char *, 1ul>>(int, T2)", "at::f<at::Fill<float>, std::array<char *, 1ul>>"),
        ("void <unnamed>::blend<3>(Params)", "blend<3>"),
        ("void unnamed>::blend<3>(Params)", "blend<3>"),  # as ncu's CSV has it
        ("Größe::点<ü>(int)", "Größe::点<ü>"),
        ("plain", "plain"),
    ],
)  # fmt: skip
def test_names_lose_result_and_arguments(name: str, expected: str) -> None:
    assert short_name(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("void nurec::cuda::<unnamed>::renderBackward<(bool)0>(nurec::cuda::RenderParams)", "renderBackward<0>"),
        ("nurec::cuda::(anonymous namespace)::emit_kernel(long)", "emit_kernel"),
        ("void at::native::vectorized_gather_kernel<(int)16, long>(char *)", "vectorized_gather_kernel<16, long>"),
        ("void cub::CUB_300001_SM_900::detail::sort<(unsigned int)4>(int)", "cub::sort<4>"),
        ("Größe::点<ü>(int)", "Größe::点<ü>"),
    ],
)
def test_readable_names_lose_what_most_kernels_share(name: str, expected: str) -> None:
    assert readable(name) == expected and readable(name, 5) == expected[:4] + "…"


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ('"7 <default domain>:step/backward/blend:none:none"', "step/backward/blend"),
        ("<default domain>:step:none,<default domain>:step/a/b,<default domain>:step/a", "step/a/b"),
        ('"7 nurec_lite:step/backward/blend:none:none:ARGB:4288048318:REGISTERED:none"', "step/backward/blend"),
        ('"7 nurec_lite:step:none","7 CCCL:cub::sort:none","7 nurec_lite:step/a:none"', "step/a"),
        ("other:epoch 3:none", None),
        ("", None),
    ],
)
def test_the_innermost_range(tmp_path: Path, cell: str, expected: str | None) -> None:
    assert kernels(tmp_path, {NVTX: cell})[0].range == expected


def test_missing_figures_are_none_and_never_zero(tmp_path: Path) -> None:
    kept = ("ID", "Kernel Name", "gpu__time_duration.sum")
    without = tuple(name for name in csv.reader(io.StringIO(page({}))).__next__() if name not in kept)
    (found,) = kernels(tmp_path, {}, without=without)
    absent = {k: v for k, v in vars(found).items() if k not in ("id", "name", "ms")}
    assert all(v is None or v == {} or v == () for v in absent.values()) and found.ms == pytest.approx(2.0)
    text = markdown(profile(found))
    row = next(line for line in text.splitlines() if line.startswith("| `blend<3>`"))
    assert row.count("not measured") == 12 and " 0 " not in row
    assert "its limit was not measured" in text and "no verdict" in text


def test_one_missing_summand_makes_the_sum_unknown(tmp_path: Path) -> None:
    (found,) = kernels(tmp_path, {"smsp__inst_executed_op_shared_atom.sum": "", DFMA: "n/a"})
    assert found.shared_requests is None and found.fp64_flop is None and found.shared_wavefronts == 2000


def test_kernels_without_single_precision_have_no_place_on_the_roofline(tmp_path: Path) -> None:
    (found,) = kernels(tmp_path, {FADD: "0", FMUL: "0", FFMA: "0"})
    assert (found.flop_per_s, found.intensity) == (0, 0)
    assert "no place on the roofline" in roofline_words(found)


def test_no_traffic_leaves_the_intensity_open(tmp_path: Path) -> None:
    (found,) = kernels(tmp_path, {"dram__bytes.sum.per_second": "0"})
    assert found.intensity is None and roof(found) is None
    assert roofline_words(found) == "5 TFLOP/s; its arithmetic intensity was not measured"


def test_launches_of_a_kernel_stand_together_the_longest_first(tmp_path: Path) -> None:
    found = kernels(
        tmp_path,
        {"ID": "0", "Kernel Name": "short(int)", "gpu__time_duration.sum": "10"},
        {"ID": "1", "gpu__time_duration.sum": "3000"},
        {"ID": "2", "gpu__time_duration.sum": "5000"},
        {"ID": "3", "Kernel Name": "unknown(int)", "gpu__time_duration.sum": ""},
    )
    groups = by_name(found)
    assert {name: [k.id for k in group] for name, group in groups.items()} == {
        "blend<3>": [2, 1],
        "short": [0],
        "unknown": [3],
    }
    assert headline(found).splitlines()[0] == "blend<3>: 0.005 ms, latency-bound, 64 registers, occupancy 37.5 %"


def test_files_of_a_profile(tmp_path: Path) -> None:
    found = kernels(tmp_path, {}, {"ID": "1", "Kernel Name": 'odd|"name", ü(int)', FADD: ""})
    write_report(tmp_path, profile(*found))
    content = json.loads((tmp_path / "kernels.json").read_text())
    assert (content["format"], content["tool"], content["tool_version"], content["steps"]) == (1, "ncu", "2025.3.1", 10)
    assert content["environment"] == {"device": "a GPU"} and content["notes"] == ["A note."]
    first, second = content["kernels"]
    assert first["registers"] == 64 and isinstance(first["registers"], int) and first["fp32_flop"] == 10_000_000_000
    assert first["stalls"] == {"long_scoreboard": 12.5, "barrier": 4.0, "wait": 2.5} and second["fp32_flop"] is None
    rows = list(csv.DictReader((tmp_path / "kernels.csv").read_text().splitlines()))
    assert (
        rows[0]["block"] == "16 16 1"
        and rows[0]["blocks_by_shared_memory"] == "7"
        and rows[0]["limiters"] == "registers"
    )
    assert rows[1]["name"] == 'odd|"name", ü' and rows[1]["fp32_flop"] == "" and rows[0]["stall_barrier"] == "4.0"


def test_columns_of_the_table_that_only_some_launches_have(tmp_path: Path) -> None:
    column = "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio"
    found = kernels(tmp_path, {}, {"ID": "1", column: "3"})
    rows = list(csv.DictReader(kernels_csv(found).splitlines()))
    assert [row["stall_gmma"] for row in rows] == ["", "3.0"]


def test_summary(tmp_path: Path) -> None:
    text = markdown(profile(*kernels(tmp_path, {}, {"ID": "1", "Kernel Name": "a|b(int)"})))
    assert "- Nsight Compute 2025.3.1; device a GPU\n- A note." in text
    assert (
        "| `blend<3>` | 1 | 2 ms | latency-bound | 64 | 1\u202f024 static + 2\u202f048 dynamic B | 50.0 % | 37.5 % | registers "
        "| 41.5 % | 25.0 % | 20.0 % | 5 TFLOP/s | 5 |" in text
    )
    assert "| `a\\|b` |" in text and "\n## `blend<3>`\n" in text
    assert "- Launch: 2 ms, grid 78 x 24 x 1, block 16 x 16 x 1, 3.5 waves, in step/render" in text
    assert "- Stalls: a warp issues every 20 cycles and waits 12.5 cycles (62 %) for data" in text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "not measured"), (0.0, "0 B"), (999.0, "999 B"), (1500.0, "1.5 kB"), (999_999.0, "1000 kB"),
        (3.35e12, "3.35 TB"), (5e15, "5000 TB"),
    ],
)  # fmt: skip
def test_scaled(value: float | None, expected: str) -> None:
    assert scaled(value, "B") == expected
