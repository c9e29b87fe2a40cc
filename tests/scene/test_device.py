# SPDX-License-Identifier: Apache-2.0
"""A scene is made on the device that it is for: everything that it takes is there, and it is the scene that a CPU makes."""

from dataclasses import fields

import pytest
import torch
from elsewhere import DEVICE, Elsewhere, Other
from tiny_capture import tiny_capture, tiny_config, tiny_scene
from torch import Tensor

from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.scene.init import make_scene


def held(value: Tensor) -> Tensor:
    assert isinstance(value, Elsewhere)
    return value.held


def test_the_other_device_does_not_mix_with_the_cpu() -> None:
    with Other():
        x = torch.arange(4, device=DEVICE)
        assert x.device == DEVICE and (x + x).sum().item() == 12 and x.to("cpu").tolist() == [0, 1, 2, 3]
        x[1:].mul_(torch.tensor(2))
        assert held(x).tolist() == [0, 2, 4, 6]
        with pytest.raises(AssertionError, match="both devices"):
            x + torch.arange(4)


def test_the_scene_of_another_device_is_that_of_the_cpu() -> None:
    with Other():
        scene = make_scene(tiny_capture(), tiny_config().model, 0, DEVICE)
    expected = tiny_scene()
    for field in fields(Gaussians):
        torch.testing.assert_close(held(getattr(scene.gaussians, field.name)), getattr(expected.gaussians, field.name))
    for name in ("sky", "track_translations", "track_quaternions", "exposure"):
        assert torch.equal(held(getattr(scene, name)), getattr(expected, name)), name
    assert all(isinstance(getattr(scene.tracks, name), Elsewhere) for name in ("sizes", "times", "translations"))
