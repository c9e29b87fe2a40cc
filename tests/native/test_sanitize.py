# SPDX-License-Identifier: Apache-2.0
"""scripts/sanitize.py: its reading of compute-sanitizer's reports, with a stand-in for the program where there is no GPU."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from nurec_lite.base.paths import resource
from nurec_lite.cli.command import composed
from nurec_lite.config import Config
from nurec_lite.splat.tiles import PairList
from scripts import sanitize
from scripts.sanitize import (
    OURS,
    SIZE,
    TOOLS,
    VARIANTS,
    SanitizeError,
    Verdict,
    check,
    find_sanitizer,
    unchecked,
    verdict,
)

FORWARD = "void nurec::cuda::(anonymous namespace)::renderForward_kernel<true>(nurec::cuda::RenderParams)"
SCAN = "void cub::CUB_300000_SM_900::detail::scan::DeviceScanKernel<unsigned int>(unsigned int *)"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"
TORCH_SORT = "void at_cuda_detail::cub::CUB_300000_SM_900::DeviceScanKernel<long>(long *)"


def read(kernel: str, inlined: str = "load3(const float *, long)") -> str:
    """initcheck's report of one reading, in a function that the compiler put into the kernel."""
    return (
        "========= Uninitialized __global__ memory read of size 4 bytes\n"
        f"=========     at {inlined}+0x70 in rows.cuh:12\n"
        "=========     by thread (0,0,0) in block (0,0,0)\n"
        "=========     Access to 0x7f0000000400\n"
        f"=========         Device Frame: {kernel}+0xc0 in render.cu:21\n"
        "========= \n"
    )


def test_summaries() -> None:
    assert verdict("memcheck", "========= ERROR SUMMARY: 0 errors\n", 0) == Verdict(0)
    assert verdict("memcheck", "========= ERROR SUMMARY: 1 error\n", 0) == Verdict(1)
    hazards = "========= RACECHECK SUMMARY: 3 hazards displayed (1 error, 2 warnings)\n"
    assert verdict("racecheck", hazards, 0) == Verdict(3)


def test_a_tool_that_does_not_end_is_no_result() -> None:
    assert verdict("memcheck", "========= COMPUTE-SANITIZER\n", 0) == Verdict(None)
    assert verdict("memcheck", "========= ERROR SUMMARY: 0 errors\n", 1) == Verdict(None)  # the steps failed


def test_errors_count_though_the_steps_died_of_them() -> None:
    assert verdict("memcheck", "========= ERROR SUMMARY: 3 errors\n", 1) == Verdict(3)


def test_initcheck_counts_our_kernels_alone() -> None:
    report = "".join(map(read, (FORWARD, FILL, SCAN, TORCH_SORT))) + "========= ERROR SUMMARY: 4 errors\n"
    assert verdict("initcheck", report, 0) == Verdict(2, elsewhere=2)


def test_initcheck_s_errors_beyond_those_it_prints_are_ours() -> None:
    assert verdict("initcheck", read(FILL) + "========= ERROR SUMMARY: 5 errors\n", 0) == Verdict(4, elsewhere=1)


def test_which_kernels_are_ours() -> None:
    assert [OURS.search(name) is not None for name in (FORWARD, SCAN, FILL, TORCH_SORT)] == [True, True, False, False]


def test_kernels_that_the_steps_leave_out_are_named() -> None:
    left = set(unchecked({FORWARD: 2, SCAN: 1}))
    assert (
        "renderForward_kernel<true>" not in left
        and {"renderForward_kernel<false>", "project_gaussians_kernel<true, false, false>"} <= left
    )


@cache
def config_of(overrides: str) -> Config:
    return composed("train", [*SIZE.split(), *overrides.split()])


@pytest.mark.parametrize(("overrides", "cameras"), VARIANTS)
def test_steps_are_a_configuration_with_relocation(overrides: str, cameras: str) -> None:
    config = config_of(overrides)
    kind, _, more = cameras.partition(", ")
    assert kind in ("rolling", "global", "learned", "distant") and more in ("", "many tiles", "together", "long drive")
    assert (config.device, config.density.every, config.density.start) == ("cuda", 1, 0)
    alone = {"split_backward", "warp_cull"} & set(config.opt) and not {"batch", "fused_project"} & set(config.opt)
    assert config.train.steps == (1 if alone else 2) and ("together" in cameras) == (
        {"warp_cull", "batch"} <= set(config.opt)
    )


def test_variants_that_go_on_from_one_another_keep_moments_of_one_type() -> None:
    kept: dict[tuple[str, ...], set[bool]] = {}
    for overrides, cameras in VARIANTS:
        amp = re.search(r"[\[,]amp[\],]", overrides) is not None
        kept.setdefault(sanitize._same(overrides, cameras), set()).add(amp)
    assert max(map(len, kept.values())) == 1 and {True} in kept.values()


def test_steps_with_an_option_alone() -> None:
    """None is a sentence, not an empty run that finds no error."""
    assert 0 < len(sanitize.those_with("fused_project")) < len(VARIANTS) and sanitize.those_with("") == VARIANTS
    with pytest.raises(SanitizeError, match="--only is 'fused_projekt', which none of the steps has"):
        sanitize.main(["--only", "fused_projekt"])


def test_steps_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU in plain torch: every kind of camera, and gradients reach the poses of both sensors."""
    small = (
        "device=cpu ops=reference data.downscale=8 data.frames=[0,5] model.points=50 train.lidar_rays=16 train.steps=1"
    )
    monkeypatch.setattr(sanitize, "SIZE", f"{small} model.raised_points=5 model.far_points=5 model.actor_points=5")
    monkeypatch.setattr(
        sanitize,
        "VARIANTS",
        [("model.sh_degree=0", cameras) for cameras in ("global, many tiles", "learned", "distant")],
    )
    wanted: list[bool] = []
    wrap = sanitize._with_learned_pose

    def watched(stage: Callable[..., Any]) -> Callable[..., Any]:
        def render(gaussians: Any, view: Any, *rest: Any) -> Any:
            wanted.append(view.T_world_sensor_start.requires_grad)
            return stage(gaussians, view, *rest)

        return wrap(render)

    monkeypatch.setattr(sanitize, "_with_learned_pose", watched)
    sanitize.steps()
    assert wanted == [True, True]


def test_empty_tiles_make_a_large_image_of_a_small_one() -> None:
    table = resource("kernels/raster_tiles/backward_table.h").read_text()
    assert f"MANY_TILES = {sanitize.MANY_TILES};" in table
    pairs = PairList(torch.tensor([[0, 1], [2, -1]]), torch.tensor([0, 3, 5]), torch.arange(5))
    found = sanitize._with_empty_tiles(lambda *given: pairs)(None, None)
    assert found.rays.shape == (sanitize.MANY_TILES, 2) and found.offsets.shape == (sanitize.MANY_TILES + 1,)
    assert torch.equal(found.rays[:2], pairs.rays) and (found.rays[2:] == -1).all()
    assert found.offsets[:4].tolist() == [0, 3, 5, 5] and (found.offsets[3:] == 5).all()
    assert found.gaussians is pairs.gaussians


def tool(folder: Path, report: str) -> str:
    """A program that prints a report at any call."""
    path = folder / "compute-sanitizer"
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{report}\nEND\n")
    path.chmod(0o755)
    return str(path)


def test_a_clean_tool_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tool(tmp_path, "========= ERROR SUMMARY: 0 errors")
    assert check("memcheck", program, {FORWARD: 4, SCAN: 10})
    assert check("synccheck", program, {FORWARD: 4, SCAN: 10})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("memcheck   2 kernels, 14 launches: 0 errors, ")
    assert lines[1].startswith("synccheck  1 kernels, 4 launches: 0 errors, ")
    assert len(lines) == 2


def test_what_a_tool_finds_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tool(tmp_path, f"{read(FORWARD)}========= ERROR SUMMARY: 1 error")
    assert not check("initcheck", program, {FORWARD: 4})
    assert "renderForward_kernel<true>(nurec::cuda::RenderParams)+0xc0" in capsys.readouterr().out


def test_the_program_is_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tool(tmp_path, "")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert find_sanitizer() == program


def test_its_absence_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sanitize, "PLACES", (f"{tmp_path}/none*",))
    with pytest.raises(SanitizeError, match=r"comes with the CUDA toolkit"):
        find_sanitizer()


def test_an_unknown_tool_is_a_sentence() -> None:
    with pytest.raises(SanitizeError, match=f"'leakcheck' is no tool .* {', '.join(TOOLS)}"):
        sanitize.main(["leakcheck"])


@pytest.mark.parametrize("n", [1, 2, 5])
def test_shares_are_all_steps_once(n: int) -> None:
    found = [step for k in range(1, n + 1) for step in sanitize.shared(range(11), f"{k}/{n}")]
    assert sorted(found) == list(range(11))


@pytest.mark.parametrize("share", ["", "0/2", "3/2", "1", "1/2/3", "a/b"])
def test_no_share(share: str) -> None:
    with pytest.raises(sanitize.SanitizeError, match="must be K/N"):
        sanitize.main(["racecheck", "--share", share])
