# SPDX-License-Identifier: Apache-2.0
"""The option `pinned`: the same shots, by one buffer and one copy."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from same_shots import assert_same
from tiny_capture import tiny_config, tiny_shots, tiny_state

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import OptionError
from nurec_lite.base.options import parameters_of
from nurec_lite.opt.lab import pinned
from nurec_lite.opt.lab.pinned import apply, place
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.shots import Shots
from nurec_lite.training.step import step

RAYS = (1, 128, 10**9)  # a sector, some, all


def test_it_needs_a_gpu() -> None:
    with pytest.raises(OptionError, match="'pinned' cannot run here: it is about copies to a GPU; use device=cuda"):
        build_stages({"pinned": parameters_of("pinned")})


def test_the_option_swaps_one_stage() -> None:
    stages = build_stages({"pinned": parameters_of("pinned")}, reference_stages("cuda"))
    assert stages.changes.claims == {"place": "pinned"} and stages.feed.place is place


@pytest.mark.parametrize("rays", RAYS)
@pytest.mark.parametrize(("images", "sweeps"), [((0,), (1,)), ((0,), ()), ((), (1,)), ((0, 1, 2), (3, 4)), ((), ())])
def test_shots_are_bitwise_those_of_the_baseline(images: tuple[int, ...], sweeps: tuple[int, ...], rays: int) -> None:
    shots = tiny_shots(images, sweeps, rays)
    assert_same(place(reference_stages(), tiny_state(), shots), shots)


def test_a_step_s_tensors_lie_in_one_memory() -> None:
    shots = place(reference_stages(), tiny_state(), tiny_shots((0, 1), (2,)))
    memories: list[int] = []
    shots.copied(lambda t: memories.append(t.untyped_storage().data_ptr()) or t)  # type: ignore[func-returns-value]
    assert len(memories) == 2 * 6 + 11 and len(set(memories)) == 1


def test_what_is_on_the_device_already_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """`resident` gives it so; a meta device stands in for the GPU."""
    there = tiny_shots((0,), (1,)).copied(lambda tensor: tensor.to("meta"))
    found = place(reference_stages(), tiny_state(), there)
    assert (
        found.images[0].image is there.images[0].image and found.sweeps[0].sweep.ranges is there.sweeps[0].sweep.ranges
    )


def test_each_step_asks_for_a_buffer_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """No buffer is kept: the allocator knows which one may be written again."""
    asked: list[bool] = []
    empty = torch.empty

    def noted(*size: Any, pin_memory: bool, **rest: Any) -> torch.Tensor:
        asked.append(pin_memory)
        return empty(*size, **rest)

    monkeypatch.setattr(pinned.torch, "empty", noted)
    shots = tiny_shots((0,), (1,))
    first, second = (place(reference_stages(), tiny_state(), shots) for _ in range(2))
    assert asked == [False, False]  # on a CPU nothing is locked
    assert first.images[0].image.data_ptr() != second.images[0].image.data_ptr()


def test_a_step_is_bitwise_that_of_the_baseline() -> None:
    plain, option = tiny_state(tiny_config()), tiny_state(tiny_config())
    step(reference_stages(), plain)
    step(apply(reference_stages()), option)
    for name, value in plain.scene.parameters().items():
        assert torch.equal(value, option.scene.parameters()[name]), name


@pytest.mark.gpu
@pytest.mark.parametrize("others", [(), ("workers",), ("fused_interp", "no_sync")])
def test_on_a_gpu_shots_are_bitwise_the_same_and_buffers_are_not_written_too_early(others: tuple[str, ...]) -> None:
    """Hundreds of shots are under way before the first is read."""
    device, busy = torch.device("cuda"), torch.rand(4096, 4096, device="cuda")
    stages = build_stages({n: parameters_of(n) for n in (*others, "pinned")}, base_stages("native", device))
    state = replace(tiny_state(), device=device)
    for _ in range(50):
        busy = busy @ busy / 4096
    found: list[Shots] = []
    for number in range(200):
        found.append(stages.feed.fetch(stages, replace(state, step=number)))
    for number, shots in enumerate(found):
        assert_same(shots.copied(lambda tensor: tensor.cpu()), state.plan.load(number))
    stages.close()


@pytest.mark.gpu
def test_on_a_gpu_a_step_has_one_copy_and_no_wait() -> None:
    device = torch.device("cuda")
    shots, state = tiny_shots((0,), (1,)), replace(tiny_state(), device=device)
    place(reference_stages("cuda"), state, shots)
    torch.cuda.synchronize()
    with torch.profiler.profile() as profile:
        place(reference_stages("cuda"), state, shots)
        torch.cuda.synchronize()
    copies = [e for e in profile.events() if e.name.startswith("Memcpy HtoD")]
    assert len(copies) == 1 and "Pinned" in copies[0].name
