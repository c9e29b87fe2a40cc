# SPDX-License-Identifier: Apache-2.0
"""The option `fused_project`, as a training runs it: steps learn the same as without it. CUDA's drivers alone have it: on a CPU these are
the emulated ones. Single views and their gradients: tests/native/test_backward_epilogue.py."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from block_lists import flags_of
from launch_steps import assert_ended_alike, assert_learned_alike, learned, state_for
from parity import DEVICES
from recorder_standin import install
from stepping import cramped, everything, no_sync_of, steps
from tiny_capture import tiny_shots, tiny_state
from torch import Tensor
from warp_tile_scenes import PLAN, driven

from benchmarks.common.feeding import idle
from benchmarks.opt import bench_fused_project
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import OptionError
from nurec_lite.base.options import parameters_of
from nurec_lite.base.transfer import HostFuture
from nurec_lite.config import DensityConfig
from nurec_lite.native.bind import native_stages
from nurec_lite.native.operators.visible_blocks import BlockSpheres, no_spheres
from nurec_lite.opt.all import fused_project
from nurec_lite.training import unseen
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import TrainState


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return driven(request.param)


# ---- steps

NEEDED = ("fused_interp", "collect_once", "warp_cull")
ALL = (
    "fused_interp", "collect_once", "no_sync", "warp_cull", "tile_cull", "balanced_tiles", "fused_adam", "fused_ssim", "fused_sky",
    "fused_colour", "fused_activate", "fused_range", "fused_harmonics",
)  # fmt: skip
FORMS = {"": NEEDED, "activated": (*NEEDED, "fused_activate"), "all": ALL}


def stages_with(device: torch.device, names: tuple[str, ...], **own: dict[str, Any]) -> Stages:
    """Stages of a machine with a GPU."""
    base = replace(base_stages("native", device).compiled(PLAN_OF_A_GPU, native_stages), device="cuda")
    given = {name: parameters_of(name) | own.get(name, {}) for name in names}
    return build_stages(given, base)


PLAN_OF_A_GPU = replace(PLAN, warp_tiles=False, tight_lists=False)


@pytest.mark.parametrize("own", [False, True], ids=["", "own opacities"])
@pytest.mark.parametrize("calibrate", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_a_step_learns_what_it_does_without(form: str, calibrate: bool, own: bool, device: torch.device) -> None:
    """Regularisers, corrected sensors, actors; parameters without a gradient have none."""
    names = tuple(name for name in FORMS[form] if name not in ("fused_harmonics", "no_sync"))
    found, expected = (
        learned(stages, state_for(stages, device, calibrate, own_opacities=own))
        for stages in (stages_with(device, (*names, *more)) for more in (("fused_project",), ()))
    )
    assert_learned_alike(found, expected, device)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("form", FORMS)
def test_on_a_long_drive_regularisers_leave_unseen_gaussians_alone(
    form: str, ranks: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With several ranks it is done after their exchange, since another one may see a Gaussian."""
    names = tuple(name for name in FORMS[form] if name not in ("fused_harmonics", "no_sync"))
    found = []
    for long in (False, True):
        monkeypatch.setattr(unseen, "LONG", 0 if long else 1000)
        for more in (("fused_project",), ()):
            stages = replace(stages_with(device, (*names, *more)), ranks=ranks)
            found.append(learned(stages, state_for(stages, device), number=1))
    assert_learned_alike(found[2], found[3], device)
    short, long = (gradients["opacity_logits"] for _, gradients in (found[0], found[2]))
    hidden = (found[2][1]["means"] == 0).all(1)
    assert short.all() and hidden.any() and not hidden.all()
    assert torch.equal(long != 0, ~hidden.view_as(long))


BELOW = 256  # first Gaussians, a block, under the ground


def underground(
    stages: Stages,
    device: torch.device,
    noise: float = 0.0,
    calibrate: bool = False,
    own_opacities: bool = True,
    sweep: bool = False,
) -> TrainState:
    """A state whose first block no view sees, before a step with a sweep or without."""
    state = state_for(stages, device, calibrate, own_opacities=own_opacities)
    state.config.density.noise, state.plan = noise, replace(state.plan, sweeps_every=2)
    stages.feed.schedule(stages, state)
    with torch.no_grad():
        state.scene.gaussians.means[:BELOW, 2] -= 300
    # a busy GPU would say only after the step which Gaussians move, and until then all blocks count
    for _ in range(2):
        for stage in stages.changes.capturable:
            stage.graph_key(state.scene)
        idle(device)
    state.step = 0 if sweep else 1
    return state


def image_step(stages: Stages, state: TrainState) -> list[Tensor | None]:
    """Learns from an image; returns the visible blocks before the update and after the step."""
    found: list[Tensor | None] = []
    inner = stages.update.noise

    def noise(state: TrainState) -> None:
        found.append(state.visible_blocks)
        inner(state)

    stages = stages.replaced(noise=noise)
    stages.update.learn(stages, state, stages.feed.fetch(stages, state))
    return [*found, state.visible_blocks]


@pytest.fixture
def every_drive_is_long() -> Iterator[None]:
    with unseen.every_drive_is_long():
        yield


WITH: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {  # other options, and arguments of a state
    "an image": ((), {}),
    "an image and a sweep": ((), {"sweep": True}),
    "a sweep by the camera's opacities": ((), {"sweep": True, "own_opacities": False}),
    "two images and two sweeps in a launch": (("batch",), {"sweep": True}),
    "corrected poses": ((), {"calibrate": True}),
    "the camera's opacities": ((), {"own_opacities": False}),
    "moments of bfloat16": (("amp",), {}),
    "two images in a launch": (("batch",), {}),
}


@pytest.mark.usefixtures("every_drive_is_long")
@pytest.mark.parametrize("kind", WITH)
def test_a_long_drive_passes_blocks_by(kind: str, device: torch.device) -> None:
    """A step without noise learns the same as one that reads all Gaussians."""
    ended, (others, of_state) = [], WITH[kind]
    batch = {"images": 2, "sweeps": 2}
    for more in (("fused_project",), ()):
        stages = stages_with(device, (*ALL, *more, *others), **({"batch": batch} if "batch" in others else {}))
        state = underground(stages, device, **of_state)
        ended.append((image_step(stages, state), everything(state)))
    (inside, after), none = ended[0][0], ended[1][0]
    assert inside is not None and after is None and none == [None, None]
    visible = flags_of(inside)
    assert not visible[0] and visible[1:].any()
    for name, value in ended[1][1].items():
        own, plain = ended[0][1][name].detach().double(), value.detach().double()
        off = float((own - plain).norm())
        assert off <= (1e-2 if device.type == "cuda" else 3e-5) * float(plain.norm()) + 1e-9, f"{name}: {off}"


@pytest.mark.usefixtures("every_drive_is_long")
def test_all_blocks_count_until_the_host_knows_which_gaussians_move(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their number comes from the device later. Results are the same."""
    ended = []
    for late in (False, True):
        if late:
            monkeypatch.setattr(HostFuture, "done", lambda _: False)
        stages = stages_with(device, (*ALL, "fused_project"))
        state = underground(stages, device)
        inside, _ = image_step(stages, state)
        assert inside is not None and bool(flags_of(inside)[0]) is late
        ended.append(state)
    assert_ended_alike(ended[1], ended[0])


@pytest.mark.usefixtures("every_drive_is_long")
def test_recorded_steps_of_a_long_drive_find_blocks_at_each_launch(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each image sees others; steps with a sweep come in between."""
    if device.type == "cpu":
        install(monkeypatch)
    runs = []
    for more in ((), ("cuda_graph",)):
        stages = stages_with(device, (*ALL, "fused_project", *more))
        runs.append(underground(stages, device))
        steps(stages, runs[-1], 16)
    assert stages.update.learn.launched >= 1  # type: ignore[attr-defined]
    assert_ended_alike(runs[1], runs[0])


@pytest.mark.usefixtures("every_drive_is_long")
@pytest.mark.parametrize("added", [0, 120])
@pytest.mark.parametrize("recorded", [False, True])
def test_spheres_of_hidden_blocks_change_nothing(
    recorded: bool, added: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relocations bring dead Gaussians of a hidden block to the surface, in place or into a larger store."""
    if device.type == "cpu":
        install(monkeypatch)
    runs, inner, reset = [], BlockSpheres._reset, []
    monkeypatch.setattr(BlockSpheres, "_reset", lambda known, g: (reset.append(1), inner(known, g))[1])
    for kept in (True, False):
        if not kept:
            monkeypatch.setattr(BlockSpheres, "of", lambda _, g: no_spheres(g))
        stages = stages_with(device, (*ALL, "fused_project", *(("cuda_graph",) if recorded else ())))
        state = underground(stages, device)
        most = len(state.scene.gaussians) + added
        state.config.density = DensityConfig(every=4, start=0, stop=1, growth=1.1, cap=most, noise=0)
        with torch.no_grad():
            for logits in (state.scene.gaussians.opacity_logits, state.scene.gaussians.lidar_logits):
                logits[: BELOW // 2] = -9
        steps(stages, state, 20)
        runs.append(state)
        assert recorded == (getattr(stages.update.learn, "launched", 0) > 0)
    assert len(runs[0].scene.gaussians) == most and len(reset) > 3
    if device.type == "cuda":
        assert_ended_alike(*runs)
    else:
        assert all(a.equal(b) for a, b in zip(everything(runs[0]).values(), everything(runs[1]).values(), strict=True))


@pytest.mark.usefixtures("every_drive_is_long")
def test_noise_leaves_blocks_out_of_view_alone(device: torch.device) -> None:
    stages = stages_with(device, (*ALL, "fused_project"))
    state = underground(stages, device, noise=1e4)
    before = state.scene.gaussians.means.detach().clone()
    image_step(stages, state)
    moved = (state.scene.gaussians.means != before).any(1)
    assert not moved[:BELOW].any() and moved[BELOW:].any()


LEFT_OUT = {
    "fused_activate": ("fused_activate",),
    "fused_adam": ("fused_adam", "fused_harmonics"),
    "colours in kernels": ("fused_colour", "fused_harmonics"),
}


@pytest.mark.usefixtures("every_drive_is_long")
@pytest.mark.parametrize("left_out", [*LEFT_OUT, "another rank"])
def test_all_blocks_count_where_a_kernel_reads_them(left_out: str, device: torch.device) -> None:
    """Rows of hidden blocks are unwritten, and such a kernel would read them."""
    names = tuple(name for name in ALL if name not in LEFT_OUT.get(left_out, ()))
    stages = stages_with(device, (*names, "fused_project"))
    stages = replace(stages, ranks=2 if left_out == "another rank" else 1)
    state = underground(stages, device)
    assert image_step(stages, state) == [None, None]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("images", "sweeps"), [((0,), ()), ((), (0,)), ((0, 1), (0, 1))], ids=str)
def test_steps_of_other_views(
    images: tuple[int, ...], sweeps: tuple[int, ...], form: str, device: torch.device
) -> None:
    """Parameters without a gradient have none: else Adam would go on with its momentum."""
    if device.type == "cuda":
        pytest.skip("these shots lie on the CPU")
    names, found = tuple(name for name in FORMS[form] if name != "fused_harmonics"), []
    for more in (("fused_project",), ()):
        stages, state = stages_with(device, (*names, *more)), tiny_state()
        stages = stages.replaced(optimize=lambda state: None, noise=lambda state: None)
        stages.update.learn(stages, state, tiny_shots(images, sweeps))
        found.append(state.scene.parameters())
    for name, plain in found[1].items():
        own, expected = found[0][name].grad, plain.grad
        assert (own is None) == (expected is None), name
        if own is not None and expected is not None:
            assert float((own - expected).norm()) <= 3e-5 * float(expected.norm()) + 1e-9, name


def test_steps_that_grow_and_that_are_done_again(device: torch.device) -> None:
    """With all that goes before it, relocation and growth."""
    runs = {}
    for name, more in (("plain", ()), ("own", ("fused_project",)), ("cramped", ("fused_project",))):
        stages = stages_with(device, (*ALL, *more), balanced_tiles={"part": 64})
        state = state_for(stages, device)
        state.config.density.every = 4
        steps(cramped(stages, {3}) if name == "cramped" else stages, state, 10)
        runs[name] = state
        assert no_sync_of(stages).redone >= (name == "cramped")
    assert len(runs["own"].scene.gaussians) == len(runs["plain"].scene.gaussians) > len(tiny_state().scene.gaussians)
    for name in ("own", "cramped"):
        assert all(value.isfinite().all() for value in everything(runs[name]).values())


def test_it_goes_with_recorded_steps(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    if device.type == "cpu":
        install(monkeypatch)
    runs = []
    for more in ((), ("cuda_graph",)):
        stages = stages_with(device, (*ALL, "fused_project", *more))
        state = state_for(stages, device)
        steps(stages, state, 8)
        runs.append(state)
    assert stages.update.learn.launched >= 1  # type: ignore[attr-defined]
    assert_ended_alike(runs[1], runs[0])


@pytest.mark.gpu
def test_it_goes_with_side_streams() -> None:
    device, runs = driven("cuda"), []
    for more in ((), ("side_streams",), ("side_streams", "cuda_graph")):
        stages = stages_with(device, (*ALL, "fused_project", *more))
        state = state_for(stages, device)
        steps(stages, state, 8)
        runs.append(state)
    assert_ended_alike(runs[1], runs[0])
    assert_ended_alike(runs[2], runs[0])


def test_one_launch_of_batch_finishes_by_itself(device: torch.device) -> None:
    own = {"images": 2, "sweeps": 2}
    found, expected = (
        learned(stages, state_for(stages, device))
        for stages in (stages_with(device, (*NEEDED, *more, "batch"), batch=own) for more in (("fused_project",), ()))
    )
    assert_learned_alike(found, expected, device)


def test_it_needs_three_others_before_it(device: torch.device) -> None:
    stages = stages_with(device, (*NEEDED, "fused_project"))
    assert stages.plan is not None and stages.plan.deferred_backward
    with pytest.raises(OptionError, match="requires 'collect_once'"):
        stages_with(device, ("fused_interp", "warp_cull", "fused_project"))
    with pytest.raises(OptionError, match="name these first"):
        stages_with(device, ("fused_interp", "warp_cull", "fused_project", "collect_once"))


def test_a_cpu_does_not_have_it() -> None:
    assert "use device=cuda" in str(fused_project.unavailable(base_stages("native", torch.device("cpu"))))


# ---- its benchmark

SMALL = ["--device", "cpu", "--sizes", "300x10", "--seen", "44,20", "--rounds", "2", "--warmup", "1", "--copy-mib", "1"]


def test_the_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    driven("cpu")
    out = tmp_path / "out.json"
    assert bench_fused_project.main([*SMALL, "--out", str(out)]) == 0
    report = json.loads(out.read_text())
    assert {row["version"] for row in report["rows"]} == {"plain", "fused"}
    assert "fused" in capsys.readouterr().out


def test_the_benchmark_does_not_time_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driven("cpu")
    backward = bench_fused_project.backward

    def wrong(version: str, *rest: Any) -> list[Tensor]:
        return [1.01 * t if version == "fused" else t for t in backward(version, *rest)]

    monkeypatch.setattr(bench_fused_project, "backward", wrong)
    assert bench_fused_project.main([*SMALL, "--out", str(tmp_path / "out.json")]) == 1
