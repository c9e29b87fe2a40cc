# SPDX-License-Identifier: Apache-2.0
"""Parts of our NCore files that other programs ask for: the list of stores, the world of the capture's files, columns that are moments."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("ncore")
import numpy as np
import torch
from ncore.data.v4 import SequenceComponentGroupsReader, SequenceLoaderV4
from ncore.sensors import StructuredLidarModel
from tiny_capture import Loaded, tiny_capture

from nurec_lite.base.errors import OutputError
from nurec_lite.capture.ncore.offsets import row_offsets
from nurec_lite.capture.ncore.read import read_ncore
from nurec_lite.capture.ncore.write import write_ncore
from nurec_lite.capture.origin import recentred
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.lidar import Lidar, Sweep, unit_directions

OFFSETS = torch.deg2rad(torch.tensor([0.0, 9.0, -9.0, 15.0, -15.0, 3.0, 0.0, 0.0], dtype=torch.float64))
STEPS = 180


def opened(path: Path) -> SequenceLoaderV4:
    return SequenceLoaderV4(SequenceComponentGroupsReader([path]))


def pattern(start: float, clockwise: bool, offsets: torch.Tensor, returned: bool = True) -> Capture:
    """The tiny capture with sweeps of beams that fire together, each beside its column."""
    lidar = replace(tiny_capture().lidars[0], azimuth_steps=STEPS, azimuth_start=start, clockwise=clockwise)
    sweeps = tuple(
        replace(f, load=Loaded(fired(lidar, f.time_start, f.time_end, offsets, returned)))
        for f in tiny_capture().sweeps
    )
    return replace(tiny_capture(), split=None, lidars=(lidar,), sweeps=sweeps)


def fired(lidar: Lidar, start: float, end: float, offsets: torch.Tensor, returned: bool) -> Sweep:
    column, ring = (m.flatten() for m in torch.meshgrid(torch.arange(STEPS), torch.arange(8), indexing="ij"))
    part = (column + 0.5).double() / STEPS
    azimuth = lidar.azimuth_start + (-2 if lidar.clockwise else 2) * math.pi * part + offsets[ring]
    directions = unit_directions(torch.stack([azimuth, lidar.elevations.double()[ring]], dim=1)).float()
    seen = torch.full(part.shape, returned)
    return Sweep(directions, 10.0 * seen, 0.5 * seen, start + (end - start) * part, ring, seen)


@pytest.mark.parametrize("start", [math.pi, -0.8, 2.35, 5.0])
@pytest.mark.parametrize("clockwise", [True, False])
def test_columns_are_moments_of_beams_that_look_aside(tmp_path: Path, start: float, clockwise: bool) -> None:
    capture = pattern(start, clockwise, OFFSETS)
    write_ncore(capture, tmp_path / "x.zarr.itar", image_format="png")
    sensor = opened(tmp_path / "x.zarr.itar").get_lidar_sensor(capture.lidars[0].name)
    model = StructuredLidarModel.maybe_from_parameters(sensor.model_parameters, device="cpu")
    assert model is not None
    elements, directions = sensor.get_frame_ray_bundle_model_element(2), sensor.get_frame_ray_bundle_direction(2)
    assert elements is not None
    rays = model.elements_to_sensor_rays(torch.from_numpy(elements.astype(np.int64))).numpy()
    assert np.abs(rays - directions).max() < 1e-4  # the model sends the rays of the sweep
    assert len(np.unique(elements, axis=0)) == len(elements)
    first, last = sensor.frames_timestamps_us[2].astype(float)
    part = (sensor.get_frame_ray_bundle_timestamp_us(2) - first) / (last - first)
    assert np.abs((elements[:, 1] + 0.5) / STEPS - part).max() < 1 / STEPS
    angles = model.sensor_rays_to_sensor_angles(torch.from_numpy(directions)).sensor_angles
    found = model.sensor_angles_relative_frame_times(angles[elements[:, 0] == 3])  # its map of angles can be made
    assert float((found.double() - torch.from_numpy(part[elements[:, 0] == 3])).abs().median()) < 1 / STEPS


@pytest.mark.parametrize("returned", [True, False])
def test_beams_in_a_plane_have_no_offsets(returned: bool) -> None:
    capture = pattern(math.pi, True, torch.zeros(8).double(), returned)
    frame = capture.sweeps[0]
    found = row_offsets(capture.lidars[0], frame.load(), frame.time_start, frame.time_end)
    assert torch.equal(found, torch.zeros(8).double())


def test_sweeps_without_rays_or_time_have_no_offsets(tmp_path: Path) -> None:
    capture = pattern(math.pi, True, OFFSETS)
    frame = capture.sweeps[0]
    none = frame.load().select(slice(0))
    assert not bool(row_offsets(capture.lidars[0], none, frame.time_start, frame.time_end).any())
    assert not bool(row_offsets(capture.lidars[0], frame.load(), 1.0, 1.0).any())
    empty = replace(capture, sweeps=tuple(replace(f, load=Loaded(none)) for f in capture.sweeps))
    write_ncore(empty, tmp_path / "x.zarr.itar", image_format="png")
    assert len(read_ncore(tmp_path / "x.zarr.itar").sweeps[0].load()) == 0


def test_rays_with_offsets_come_back(tmp_path: Path) -> None:
    capture = pattern(-0.8, True, OFFSETS)
    write_ncore(capture, tmp_path / "x.zarr.itar", image_format="png")
    for a, b in zip(capture.sweeps, read_ncore(tmp_path / "x.zarr.itar").sweeps, strict=True):
        assert torch.equal(a.load().directions, b.load().directions) and torch.equal(a.load().rings, b.load().rings)


def test_the_world_of_the_files_is_known(tmp_path: Path) -> None:
    """The world of a store lies near the drive; world_global is that of the capture's files."""
    far = replace(recentred(tiny_capture(), (-4.5e5, -5.4e6, 100.0)), origin=(0.0, 0.0, 0.0), split=None)
    write_ncore(far, tmp_path / "x.zarr.itar", image_format="png")
    frame = far.sweeps[3]
    sensor = opened(tmp_path / "x.zarr.itar").get_lidar_sensor(frame.sensor)
    stamp = np.array(sensor.frames_timestamps_us[3, 0])
    near, there = (sensor.pose_graph.evaluate_poses("rig", name, stamp) for name in ("world", "world_global"))
    np.testing.assert_allclose(there, frame.T_world_rig_start.numpy(), atol=1e-6)
    assert np.abs(near[:3, 3]).max() < 1000


def test_the_list_opens_the_sequence(tmp_path: Path) -> None:
    write_ncore(tiny_capture(), tmp_path / "x.ncore4.zarr.itar", image_format="png")
    known = json.loads((tmp_path / "x.ncore4.json").read_text())
    assert [store["path"] for store in known["component_stores"]] == ["x.ncore4.zarr.itar"]
    assert opened(tmp_path / "x.ncore4.json").sequence_id == tiny_capture().name
    assert len(read_ncore(tmp_path / "x.ncore4.json").images) == len(tiny_capture().images)
    write_ncore(tiny_capture(), tmp_path / "x.ncore4.zarr.itar", image_format="png")  # ours is replaced
    (tmp_path / "x.ncore4.json").write_text("{}")
    with pytest.raises(OutputError, match=r"x\.ncore4\.json was not written by nurec_lite"):
        write_ncore(tiny_capture(), tmp_path / "x.ncore4.zarr.itar", image_format="png")
