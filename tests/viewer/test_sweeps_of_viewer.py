# SPDX-License-Identifier: Apache-2.0
"""Points of a sweep in the viewer: measured ones in orange, rendered ones in blue along the same rays, and errors by colour."""

import numpy as np
import pytest
import torch
from tiny_capture import tiny_capture

from nurec_lite.capture.deskew import world_points
from nurec_lite.cli.reconstruction import Reconstruction
from nurec_lite.evaluation.pictures import MEASURED, RENDERED
from nurec_lite.output.sweeps import rendered_sweeps
from nurec_lite.viewer import sweeps
from nurec_lite.viewer.sweeps import ERRORS, POINTS, clouds_of, sweep_at


def test_points_are_where_the_lidar_and_the_scene_have_them(run: Reconstruction) -> None:
    frame = sweep_at(run.capture, "lidar", 0.42)
    clouds = clouds_of(run, run.scene, frame, "rendered over measured", True)
    (answer,) = rendered_sweeps(run.stages, run.scene, run.capture, [frame])
    measured = world_points(frame, frame.load(), tiny_capture().lidar("lidar"))[frame.load().returned]
    assert clouds.measured is not None and clouds.rendered is not None
    for (points, colours), expected, colour in (
        (clouds.measured, measured, MEASURED), (clouds.rendered, answer.points_world(), RENDERED),
    ):  # fmt: skip
        torch.testing.assert_close(torch.from_numpy(points), expected.float())
        assert (colours == np.array(colour)).all() and len(points) > 50


def test_errors_are_those_of_rays_that_returned_in_both(run: Reconstruction) -> None:
    frame = sweep_at(run.capture, "lidar", 0.42)
    clouds = clouds_of(run, run.scene, frame, "error of the range", True)
    (answer,) = rendered_sweeps(run.stages, run.scene, run.capture, [frame])
    both = answer.rays.returned & answer.sweep.returned
    wrong = (answer.rays.ranges - answer.sweep.ranges).abs()[both].numpy()
    assert clouds.rendered is None and clouds.measured is not None
    np.testing.assert_array_equal(clouds.measured[1], ERRORS.paint(wrong))


@pytest.mark.parametrize(("shown", "kinds"), [*zip(POINTS, ["", "m", "r", "mr", "m"], strict=True)])
def test_each_choice_draws_its_clouds(run: Reconstruction, shown: str, kinds: str) -> None:
    clouds = clouds_of(run, run.scene, sweep_at(run.capture, "lidar", 0.42), shown, True)
    assert (clouds.measured is not None, clouds.rendered is not None) == ("m" in kinds, "r" in kinds)


def test_a_large_sweep_is_thinned(monkeypatch: pytest.MonkeyPatch, run: Reconstruction) -> None:
    frame = sweep_at(run.capture, "lidar", 0.42)
    whole = clouds_of(run, run.scene, frame, "measured", True).measured
    monkeypatch.setattr(sweeps, "MOST_POINTS", 100)
    some = clouds_of(run, run.scene, frame, "measured", True).measured
    assert whole is not None and some is not None and len(some[0]) <= 100 < len(whole[0])
    assert set(map(tuple, some[0])) <= set(map(tuple, whole[0]))
