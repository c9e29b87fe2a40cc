# SPDX-License-Identifier: Apache-2.0
"""The simulator's kernels against its torch functions: solids of all kinds, cars that move, lenses, shadows, noise."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from parity import DEVICES

from nurec_lite.capture.simulate import compiled
from nurec_lite.capture.simulate.drive import Drive
from nurec_lite.capture.simulate.world import SimulationConfig
from nurec_lite.native.build import BuildError

STREET = SimulationConfig(
    frames=60, width=96, height=48, samples=2, beams=24, azimuth_steps=180, moving_cars=4, cameras=3
)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("change", "camera", "index"),
    [
        ({}, 0, 3),
        ({"seed": 5, "exposure_drift": 0.5}, 1, 40),
        ({"pattern": "rosette", "shutter": "right_to_left", "readout_s": 0.05}, 1, 10),
        ({"lens": "fisheye", "hfov_deg": 190.0, "readout_s": 0.1, "samples": 1}, 2, 20),
        ({"moving_cars": 0, "parked_cars": 0, "width": 17, "height": 5, "samples": 3}, 0, 0),
    ],
)
def test_images_and_sweeps_are_those_of_torch(device: str, change: dict[str, Any], camera: int, index: int) -> None:
    """At an edge a ray may fall on either side: up to two values in ten thousand differ by more than a step."""
    config = replace(STREET, **change)
    ours, plain = Drive(config, device), Drive(config, device, kernels=False)
    assert ours.kernels
    image, expected = ours.image(camera, index), plain.image(camera, index)
    off = (image.int() - expected.int()).abs()
    assert (off > 1).float().mean() <= 2e-4 and (off > 0).float().mean() < 2e-3
    assert expected.float().std() > 10
    sweep, wanted = ours.sweep(index), plain.sweep(index)
    assert torch.equal(sweep.returned, wanted.returned)
    torch.testing.assert_close(sweep.ranges, wanted.ranges, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(sweep.intensities, wanted.intensities, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_the_tree_passes_over_no_solid(device: str) -> None:
    """A tree of one leaf holds every solid, so that each ray meets them all."""
    drive = Drive(STREET, device)
    found = drive.image(0, 30)
    tables = drive.tables(torch.float32)
    boxes, nodes, order = tables[2:5]
    assert len(nodes) > 100 and sorted(order.tolist()) == sorted(set(order.tolist()))
    tables[2:4] = boxes[:1].contiguous(), torch.tensor([[0, len(order)]], dtype=torch.int32, device=device)
    assert torch.equal(found, drive.image(0, 30))


def test_chunks_of_rows_make_the_same_image(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Drive(STREET, "cpu").image(0, 7)
    monkeypatch.setattr("nurec_lite.capture.simulate.drive._CHUNK", {"cpu": 5 * 96 * 4})
    assert torch.equal(whole, Drive(STREET, "cpu").image(0, 7))


def test_without_a_compiler_torch_casts_the_rays(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise BuildError("no compiler")

    monkeypatch.setattr(compiled.ops, "load", fails)
    drive = Drive(STREET, "cpu")
    assert not drive.kernels and drive.sweep(0).returned.any()
