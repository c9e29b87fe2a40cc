# SPDX-License-Identifier: Apache-2.0
"""The slice of PandaSet as tests read it: rays lie on the beams, come in the order of the turn, and boxes hold points."""

import math

import pytest
import torch
from pandaset_drive import needs_pandaset, read_pandaset

from nurec_lite.capture.check import check_capture
from nurec_lite.capture.deskew import world_points
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.lidar import azimuth_elevation
from nurec_lite.scene.points import actors_in, assign_to_actors

pytestmark = needs_pandaset


@pytest.fixture(scope="module")
def drive() -> Capture:
    return read_pandaset()


def test_it_is_a_capture_of_six_cameras(drive: Capture) -> None:
    check_capture(drive, "pandaset")
    assert len(drive.cameras) == 6 and len(drive.images) == 120 and len(drive.sweeps) == 20


def test_rays_lie_on_beams_and_come_as_the_lidar_turns(drive: Capture) -> None:
    frame, lidar = drive.sweeps[3], drive.lidars[0]
    sweep = frame.load()
    sweep = sweep.select(sweep.returned)
    azimuth, elevation = azimuth_elevation(sweep.directions).double().unbind(-1)
    assert torch.rad2deg(elevation - lidar.elevations[sweep.rings]).abs().median() < 0.05
    late = (sweep.times - frame.time_start) / 0.1 - lidar.spin_fraction(azimuth)
    assert (torch.remainder(late + 0.5, 1) - 0.5).abs().quantile(0.95) < 0.03


def test_boxes_of_what_moves_hold_points(drive: Capture) -> None:
    frame = drive.sweeps[10]
    sweep = frame.load()
    sweep = sweep.select(sweep.returned)
    node, _ = assign_to_actors(actors_in(drive.tracks, [frame])[0], sweep, world_points(frame, sweep, drive.lidars[0]))
    assert len(node[node > 0].unique()) >= 10
    assert math.isclose(drive.tracks.sizes[:, 0].median(), 4.5, abs_tol=1.5)
