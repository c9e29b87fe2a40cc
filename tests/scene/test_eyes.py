# SPDX-License-Identifier: Apache-2.0
"""A camera without training images: exposure and pose follow the other cameras."""

from dataclasses import replace

import pytest
import torch
from tiny_capture import tiny_capture, tiny_scene

from nurec_lite.evaluation.measure import image_of
from nurec_lite.geometry.camera import Camera
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
    scene.exposure[:, 1] = torch.tensor([[-0.02], [0.3]])  # offsets; the second is another camera's
    scene.calibration.bilateral[0, :, 3] = -0.05  # added to red
    found = image_of(reference_stages(), scene, capture, frame)
    inside = (plain > 0.1).all(-1) & (plain < 1).all(-1)
    shift = torch.tensor([-0.07, -0.02, -0.02])
    assert inside.sum() > 100
    torch.testing.assert_close(found[inside], plain[inside] + shift, atol=1e-5, rtol=0)


def test_a_camera_of_which_nothing_was_learned_is_where_the_others_say_that_the_lidar_is_not() -> None:
    """All cameras of a rig that is turned and moved against its lidar: the second finds the same as the first would."""
    capture, calibration = tiny_capture(), known()
    turn, shift = torch.tensor([1e-3, -2e-3, 3e-3]), torch.tensor([0.03, 0.01, -0.02])
    calibration.exposure_drift[0], calibration.camera_offsets[0] = 0.1, 0.004
    truth = [_as_found(calibration, camera, turn, shift) for camera in capture.cameras]
    calibration.camera_rotations[0], calibration.camera_translations[0] = truth[0]
    found = calibration.completed(capture.cameras)
    for c in (0, 1):
        torch.testing.assert_close(found.camera_rotations[c], truth[c][0], atol=1e-8, rtol=1e-5)
        torch.testing.assert_close(found.camera_translations[c], truth[c][1], atol=1e-7, rtol=1e-5)
    assert found.camera_offsets.tolist() == pytest.approx([0.004, 0.004])
    assert not calibration.camera_rotations[1].any(), "numbers that were learned stay as they were"


def _as_found(
    calibration: Calibration, camera: Camera, turn: torch.Tensor, shift: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """State corrected by the correction that the rig itself would have."""
    like = calibration.rig_rotations
    rig = replace(calibration, rig_rotations=turn.expand_as(like), rig_translations=shift.expand_as(like))
    moved = rig.of(camera, calibration.knots[0])
    return moved.turn, moved.shift


def test_cameras_of_which_something_was_learned_stay_where_they_are() -> None:
    capture, calibration = tiny_capture(), known()
    assert calibration.completed(capture.cameras) is calibration, "nothing was learned of any"
    calibration.exposure_drift[:], calibration.camera_rotations[0] = 0.1, 0.01
    assert calibration.completed(capture.cameras) is calibration
    calibration.exposure_drift[1] = 0
    alone = calibration.completed(capture.cameras[1:])
    assert alone is calibration, "the camera that could tell is not of this capture"


def test_an_image_is_seen_from_where_its_camera_is_believed_to_be() -> None:
    capture, scene = tiny_capture(), tiny_scene()
    scene = replace(scene, exposure=torch.zeros_like(scene.exposure))
    frame = next(f for f in capture.images if f.sensor == capture.cameras[1].name)
    learned = known()
    learned.exposure_drift[0], learned.camera_translations[0] = 1e-9, torch.tensor([0.3, 0.0, 0.0])
    of_all = torch.full_like(learned.exposure_drift, 1e-9)  # so that nothing is to be completed
    moved = replace(learned.completed(capture.cameras), exposure_drift=of_all)
    images = [
        image_of(reference_stages(), replace(scene, calibration=c), capture, frame) for c in (known(), learned, moved)
    ]
    torch.testing.assert_close(images[1], images[2], atol=1e-6, rtol=0)
    assert (images[1] - images[0]).abs().max() > 0.02
