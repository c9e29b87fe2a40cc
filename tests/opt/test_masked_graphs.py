# SPDX-License-Identifier: Apache-2.0
"""Masks in captured steps, in relocations, and in one launch for all views: masked pixels change no bit."""

from dataclasses import replace

import pytest
import torch
from graph_steps import gpu_state, own, stages_of
from launch_steps import WITHOUT_WAITING, assert_learned_alike, learned, stages_with, state_for
from masked_capture import repainted
from parity import DEVICES
from recorder_standin import install
from stepping import assert_close, steps
from tiny_capture import tiny_state
from warp_tile_scenes import driven

from nurec_lite.training.state import TrainState


def masked_state(seed: int | None) -> TrainState:
    """State of the drive with masks, their pixels by the seed."""
    state = tiny_state()
    state.plan = replace(state.plan, capture=repainted(seed))
    return state


def test_recorded_steps_and_relocations_see_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through relocations at steps 3, 7 and 11, which draw by footprints; in the place of a GPU's recorder is one that works again."""
    install(monkeypatch)
    plain, one, two = masked_state(1), masked_state(1), masked_state(2)
    recorded = [stages_of("cuda_graph") for _ in range(2)]
    steps(stages_of(), plain, 5)
    for stages, state in zip(recorded, (one, two), strict=True):
        steps(stages, state, 5)
    assert_close(one, plain, 1e-4, 1e-6)
    for stages, state in zip(recorded, (one, two), strict=True):
        steps(stages, state, 9)
        assert own(stages).launched >= 2
    assert_close(one, two)
    assert len(one.scene.gaussians) > len(tiny_state().scene.gaussians)


def test_copies_go_where_images_see_them() -> None:
    """A Gaussian that only masked pixels see weighs as little as one that no image sees."""
    masked, whole = masked_state(None), tiny_state()
    weights = [
        stages_of().update.footprints(s.scene, s.plan.capture, s.plan.capture.split.train_images)
        for s in (masked, whole)
    ]
    hidden = (weights[0] == 0) & (weights[1] > 0)
    seen = weights[0] == weights[1]
    assert hidden.sum() > 5 and (seen & (weights[1] > 0)).sum() > 50
    assert bool((weights[0] <= weights[1]).all())


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return driven(request.param)


def test_views_with_masks_in_one_launch(device: torch.device) -> None:
    found = []
    for seed, one_launch in ((1, True), (2, True), (1, False)):
        stages = stages_with(device, WITHOUT_WAITING, images=4, one_launch=one_launch)
        state = state_for(stages, device)
        state.plan = replace(state.plan, capture=repainted(seed))
        found.append(learned(stages, state))
    assert_learned_alike(found[0], found[2], device)
    if device.type == "cpu":  # atomics of a GPU add in any order
        assert all(torch.equal(value, found[1][1][name]) for name, value in found[0][1].items())
    assert_learned_alike(found[0], found[1], device)


@pytest.mark.gpu
def test_a_gpu_s_recordings_see_nothing_of_it() -> None:
    """Two runs differ by the order of sums; those with other pixels under the masks may differ as much."""
    device, names = torch.device("cuda"), ("resident", "warp_cull", "tile_cull", "balanced_tiles")
    states = [gpu_state(every=1000, capture=repainted(seed)) for seed in (1, 1, 2)]
    for k, state in enumerate(states):
        stages = stages_of(*names, *(("cuda_graph",) if k else ()), device=device)
        try:
            steps(stages, state, 16)
            assert not k or own(stages).launched >= 4
        finally:
            stages.close()
    for name, value in states[0].scene.parameters().items():
        for other in states[1:]:
            far = (other.scene.parameters()[name] - value).abs() > 1e-3 * value.abs() + 1e-4
            assert float(far.float().mean()) < 0.05, name
