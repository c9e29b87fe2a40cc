# SPDX-License-Identifier: Apache-2.0
"""The option `warp_cull`: a field of the plan, and training steps with it and with the options that need it. That warp tiles, lists and
segments compute the same: tests/native/test_warp_tiles.py."""

from dataclasses import replace

import pytest
import torch
from emulation import EMULATED
from parity import DEVICES, drivers_of
from tiny_capture import tiny_config, tiny_state

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import OptionError
from nurec_lite.base.options import parameters_of
from nurec_lite.native.bind import native_stages
from nurec_lite.native.plan import CUDA_PLAN
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import StepResult
from nurec_lite.training.step import step

THREE = ("warp_cull", "tile_cull", "balanced_tiles")


def for_a_gpu() -> Stages:
    """Stages of a CPU, called a GPU's."""
    return replace(base_stages("native", torch.device("cpu")), device="cuda")


def test_the_option_sets_a_field_of_the_plan() -> None:
    stages = build_stages({"warp_cull": {}}, for_a_gpu())
    assert stages.changes.claims == {"plan.warp_tiles": "warp_cull"}
    assert (
        stages.plan is not None
        and stages.plan.warp_tiles
        and not stages.plan.tight_lists
        and stages.plan.segment_entries == 1 << 30
    )
    for stage in (stages.render.tile, stages.render.render_camera, stages.render.render_lidar):
        assert stage.keywords["plan"] == stages.plan  # type: ignore[attr-defined]


def test_it_needs_a_gpu() -> None:
    with pytest.raises(
        OptionError, match="'warp_cull' cannot run here: it is about the warps of a GPU; use device=cuda"
    ):
        build_stages({"warp_cull": {}}, base_stages("native", torch.device("cpu")))


def test_it_needs_compiled_kernels() -> None:
    with pytest.raises(OptionError, match="'warp_cull' cannot run here: it changes compiled kernels; use ops=native"):
        build_stages({"warp_cull": {}}, reference_stages("cuda"))


def test_it_goes_with_the_options_of_other_kernels() -> None:
    """Its own stage takes the place of theirs: fields of the plan stay as they are."""
    names = ("split_backward", "launch_bounds", *THREE)
    plan = build_stages({n: parameters_of(n) for n in names}, for_a_gpu()).plan
    assert plan is not None and plan.backward == (True, True, False)
    assert plan.warp_tiles and plan.tight_lists and plan.segment_entries == 384


@pytest.mark.parametrize("order", [THREE, THREE[::-1], (*THREE[1:], THREE[0])], ids=str)
def test_the_order_of_the_three_does_not_matter(order: tuple[str, ...]) -> None:
    plan = build_stages({n: parameters_of(n) for n in order}, for_a_gpu()).plan
    assert plan == replace(for_a_gpu().plan, warp_tiles=True, tight_lists=True, segment_entries=384)  # type: ignore[type-var]


# ---- training


def trained(device: torch.device, coarse: float, **options: dict[str, int]) -> list[StepResult]:
    """Two steps on the drivers of a GPU; the first is of a reduced image if it is coarse."""
    stages = replace(base_stages("native", device).compiled(CUDA_PLAN, native_stages), device="cuda")
    config = tiny_config()
    state = tiny_state(replace(config, train=replace(config.train, coarse=coarse)))
    stages, found = build_stages(options, stages), []
    for state.step in range(2):
        state.progress = coarse * state.step
        found.append(step(stages, state))
    return found


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    found = torch.device(request.param)
    if drivers_of(found) == "cpu" or (found.type == "cuda" and not EMULATED):
        pytest.skip("runs over the CUDA drivers on the CPU: set NUREC_LITE_EMULATE_CUDA=1")
    return found


@pytest.mark.parametrize("coarse", [0.0, 0.5])
def test_training_steps(device: torch.device, coarse: float) -> None:
    """Culled and cut lists change sums by rounding alone, which Adam makes as large as an update where a gradient is near zero: of the
    second step's terms 1e-3. Both tiles and warp tiles list by bounds of seven points, and a Gaussian may reach a little beyond; a
    tile shows that to all of its 256 rays, a warp tile to its 32: 1 % of a term (measured in
    the first step: 0.08 % of the ray drop's, less of others)."""
    baseline, one = trained(device, coarse), trained(device, coarse, warp_cull={})
    three = trained(device, coarse, warp_cull={}, tile_cull={}, balanced_tiles={"part": 8})
    for k, (plain, bundled, culled) in enumerate(zip(baseline, one, three, strict=True)):
        assert plain.terms.keys() == culled.terms.keys()
        for name, term in plain.terms.items():
            assert float(culled.terms[name]) == pytest.approx(float(bundled.terms[name]), rel=1e-3 if k else 1e-5), name
            assert float(bundled.terms[name]) == pytest.approx(float(term), rel=1e-2), name
