# SPDX-License-Identifier: Apache-2.0
"""What a camera sees of which no image was trained on: as the others would."""

from dataclasses import replace

import pytest
import torch
from tiny_capture import tiny_capture, tiny_scene

from nurec_lite.evaluation.measure import image_of
from nurec_lite.scene.calibration import Calibration, none_known
from nurec_lite.training.baseline import reference_stages


def known(grid: tuple[int, ...] | None = None) -> Calibration:
    return none_known(tiny_capture(), 0.5, "cpu", grid)


@pytest.mark.parametrize("part", ["exposure_drift", "vignetting", "bilateral"])
def test_a_camera_of_which_nothing_was_learned_has_the_others_eyes(part: str) -> None:
    calibration = known((2, 2, 2))
    assert [calibration.eyes(c) for c in (0, 1)] == [[0], [1]]  # nothing was learned of any
    getattr(calibration, part)[0] = 0.1
    assert [calibration.eyes(c) for c in (0, 1)] == [[0], [0]]
    getattr(calibration, part)[1] = -0.1
    assert [calibration.eyes(c) for c in (0, 1)] == [[0], [1]]


def test_where_a_camera_sits_is_not_how_it_sees() -> None:
    calibration = known()
    calibration.camera_translations[1], calibration.exposure_drift[0] = 0.01, 0.1
    assert calibration.eyes(1) == [0]


def test_an_image_is_shown_as_the_others_would_see_it() -> None:
    capture, scene = tiny_capture(), tiny_scene()
    names = [camera.name for camera in capture.cameras]
    assert len(names) == 2
    frame = next(f for f in capture.images if f.sensor == names[1])
    scene = replace(scene, calibration=known((2, 2, 2)), exposure=torch.zeros_like(scene.exposure))
    plain = image_of(reference_stages(), scene, capture, frame)
    assert scene.calibration is not None and scene.calibration.bilateral is not None
    scene.exposure[:, 1] = torch.tensor([[-0.02], [0.3]])  # offsets, of which the second is another camera's
    scene.calibration.bilateral[0, :, 3] = -0.05  # added to red
    found = image_of(reference_stages(), scene, capture, frame)
    inside = (plain > 0.1).all(-1) & (plain < 1).all(-1)
    shift = torch.tensor([-0.07, -0.02, -0.02])
    assert inside.sum() > 100
    torch.testing.assert_close(found[inside], plain[inside] + shift, atol=1e-5, rtol=0)
