# SPDX-License-Identifier: Apache-2.0
"""The simulator reads a pixel when the renderer does, for shutters in four directions."""

import pytest
import torch

from nurec_lite.capture.simulate import simulate
from nurec_lite.capture.simulate.drive import Drive, pixel_lines
from nurec_lite.capture.simulate.world import ROLLING, SimulationConfig
from nurec_lite.geometry.camera import pixel_directions
from nurec_lite.splat.views import camera_view


@pytest.mark.parametrize("shutter", ROLLING)
def test_the_renderer_reads_pixels_when_the_simulator_does(shutter: str) -> None:
    config = SimulationConfig(frames=1, width=48, height=25, readout_s=0.1, shutter=shutter)
    drive, frame = Drive(config, "cpu"), simulate(config).images[0]
    view = camera_view(simulate(config), frame, "cpu")
    row, column = torch.meshgrid(torch.arange(config.height), torch.arange(config.width), indexing="ij")
    cast = drive._camera_motion(view.camera, 0).rays(
        pixel_directions(view.camera, torch.float64), pixel_lines(view.camera, row, column)
    )
    rays = view.rays()
    torch.testing.assert_close(rays.directions.double(), cast.directions.flatten(0, 1), atol=1e-6, rtol=0)
    origins = rays.origins.double() + view.centre().double()
    torch.testing.assert_close(origins, cast.origins.flatten(0, 1), atol=2e-5, rtol=0)
    first = {"top_to_bottom": 0, "bottom_to_top": -1, "left_to_right": 0, "right_to_left": config.width - 1}[shutter]
    assert cast.origins.flatten(0, 1)[first, 0] == cast.origins[..., 0].min()  # it drives ahead
