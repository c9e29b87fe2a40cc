# SPDX-License-Identifier: Apache-2.0
"""Kernels of both sensors against the reference where camera and lidar see opacities of their own."""

from dataclasses import replace

import pytest
import torch
from parity import DEVICES, Case, background_first
from splat_scenes import CAMERA_MOTION, LIDAR_MOTION, make_camera_view, make_lidar, make_lidar_view
from test_parity_render import assert_parity, camera_case, gradients_of, lidar_case
from tiny_capture import tiny_state

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.options import parameters_of
from nurec_lite.native import ops
from nurec_lite.scene.gaussians import LIDAR_VALUES
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.stages import Stages
from nurec_lite.training.step import render, step

OPTIONS = ("fused_interp", "collect_once", "no_sync")


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    ops.load()
    return torch.device(request.param)


def with_two(case: Case) -> Case:
    """The lidar's own opacity is the former one of both; the camera's is another."""
    g = case.scene.gaussians
    own = torch.cat([g.lidar_logits, g.opacity_logits[:, None]], dim=1)
    other = torch.randn_like(g.opacity_logits)
    return replace(case, scene=replace(case.scene, gaussians=replace(g, lidar_logits=own, opacity_logits=other)))


def seen_by(sensor: str, n: int = 200) -> Case:
    if sensor == "lidar":
        return with_two(lidar_case(make_lidar_view(make_lidar(8, 64), LIDAR_MOTION), n))
    return with_two(camera_case(make_camera_view(33, 31, 30.0, "top_to_bottom", CAMERA_MOTION), n))


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_values_and_gradients(sensor: str, device: torch.device) -> None:
    assert_parity(seen_by(sensor), device)


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_of_gaussians_in_parts(sensor: str, device: torch.device) -> None:
    case = background_first(seen_by(sensor))
    assert_parity(replace(case, still=int((case.scene.gaussians.node == 0).sum())), device)


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_a_sensor_tells_its_own_opacity_alone(sensor: str, device: torch.device) -> None:
    found = gradients_of(seen_by(sensor), device)
    camera, lidar = found["opacity_logits"], found["lidar_logits"][:, LIDAR_VALUES]
    result, other = (camera, lidar) if sensor == "camera" else (lidar, camera)
    assert result.abs().max() > 1e-3 and not other.any()


def with_options(device: torch.device) -> Stages:
    return build_stages({name: parameters_of(name) for name in OPTIONS}, base_stages("native", device))


def test_a_step_of_both_sensors_is_the_reference_s() -> None:
    """With and without the options that collect otherwise, from a scene whose opacities differ."""
    found = []
    for stages in (reference_stages(), base_stages("native", torch.device("cpu")), with_options(torch.device("cpu"))):
        state = tiny_state()
        with torch.no_grad():
            generator = torch.Generator().manual_seed(3)
            logits = state.scene.gaussians.lidar_logits
            logits[:, LIDAR_VALUES] = 2 * torch.randn(len(logits), generator=generator)
        found.append(step(stages.replaced(optimize=lambda state: None), state).terms)
    for terms in found[1:]:
        assert terms.keys() == found[0].keys()
        for name, term in found[0].items():
            torch.testing.assert_close(terms[name], term, rtol=2e-3, atol=1e-6, msg=name)


def test_lists_of_the_lidar_are_those_of_its_own_opacity() -> None:
    """Gaussians that it does not see fill no lists of its own, and those of the camera as before."""
    lengths = []
    for fill in (None, -12.0):
        state, stages = tiny_state(), base_stages("native", torch.device("cpu"))
        if fill is not None:
            with torch.no_grad():
                state.scene.gaussians.lidar_logits[:, LIDAR_VALUES] = fill
        shots = stages.feed.fetch(stages, state)
        lengths.append([listed.capacity for listed in render(stages, state.scene, shots).lists])
    assert lengths[0][0] == lengths[1][0] > 0 and lengths[0][1] > 0 == lengths[1][1]
