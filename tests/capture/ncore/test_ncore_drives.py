# SPDX-License-Identifier: Apache-2.0
"""A drive of KITTI goes through NCore: its measurements come back, also where only returns are written, as other converters do."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nurec_lite.capture.deskew import world_points
from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.ncore import write
from nurec_lite.capture.ncore.read import read_ncore
from nurec_lite.capture.types import Capture


@pytest.fixture(scope="module")
def drive(kitti_root: Path) -> Capture:
    return read_kitti_raw(kitti_root, frames=range(2))


def test_a_drive_comes_back(drive: Capture, tmp_path: Path) -> None:
    write.write_ncore(drive, tmp_path / "x.zarr.itar")
    back = read_ncore(tmp_path / "x.zarr.itar")
    for a, b in zip(drive.sweeps, back.sweeps, strict=True):
        one, other = a.load(), b.load()
        assert torch.equal(one.rings, other.rings) and torch.equal(one.returned, other.returned)
        points = [world_points(f, s.select(s.returned), drive.lidars[0]) for f, s in ((a, one), (b, other))]
        assert float((points[0] - points[1]).norm(dim=1).max()) < 1e-3
    images = {(f.sensor, f.index): f for f in back.images}
    for frame in drive.images:
        stored = frame.encoded()
        known = images[frame.sensor, frame.index].encoded()
        assert stored is not None and known is not None and stored.data == known.data
        torch.testing.assert_close(
            images[frame.sensor, frame.index].T_world_rig_start, frame.T_world_rig_start, atol=1e-6, rtol=0
        )


def test_beams_of_a_drive_are_found_again(drive: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beams come from the returns alone, without rows, columns and our own notes."""
    whole = write._rays

    def returns(*given: Any) -> dict[str, Any]:
        rays = whole(*given)
        known = ~np.isnan(rays["distance_m"][0])
        some = {name: v[:, known] if name in ("distance_m", "intensity") else v[known] for name, v in rays.items()}
        return some | {"model_element": None}

    monkeypatch.setattr(write, "_rays", returns)
    monkeypatch.setattr(write, "KEY", "another program")
    write.write_ncore(drive, tmp_path / "x.zarr.itar")
    back = read_ncore(tmp_path / "x.zarr.itar")
    assert len(back.lidars[0].elevations) == 64 and back.lidars[0].clockwise
    for a, b in zip(drive.sweeps, back.sweeps, strict=True):
        one, other = a.load(), b.load()
        known, found = one.select(one.returned), other.select(other.returned)
        assert len(known) == len(found) and float((known.rings == found.rings).double().mean()) > 0.999
        late = [(sweep.times - frame.time_start).sort().values for frame, sweep in ((a, known), (b, found))]
        torch.testing.assert_close(late[1], late[0], atol=2e-6, rtol=0)
        assert 0.8 < int((~other.returned).sum()) / int((~one.returned).sum()) <= 1, (
            "but where returns of the car itself were"
        )
