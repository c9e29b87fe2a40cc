# SPDX-License-Identifier: Apache-2.0
"""The reader that docs/your-data.md shows reads a folder as it says."""

import json
import math
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image

from nurec_lite.capture.check import check_capture
from nurec_lite.capture.deskew import world_points
from nurec_lite.capture.pack import read_pack
from nurec_lite.geometry.lidar import unit_directions

PAGE = Path(__file__).resolve().parents[2] / "docs/your-data.md"
SPEED, TURN = 8.0, 0.1


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    text = next(code for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "reader.py" in code)
    assert len(text.splitlines()) <= 60, "it is said to be short"
    module = ModuleType("reader")
    monkeypatch.setitem(sys.modules, "reader", module)
    exec(text, module.__dict__)
    return module


def write_folder(folder: Path, elevations: torch.Tensor) -> None:
    """A drive along x over flat ground, 2 m below."""
    times = np.arange(0, 0.65, 0.05)
    poses = [[t, 1, 0, 0, SPEED * t, 0, 1, 0, 0, 0, 0, 1, 0] for t in times]
    for name in ("images", "sweeps"):
        (folder / name).mkdir(parents=True)
    np.savetxt(folder / "poses.txt", poses)
    axes = [[0, 0, 1, 0.5], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]]
    camera = {"width": 40, "height": 30, "fx": 30.0, "fy": 30.0, "cx": 20.0, "cy": 15.0, "T_rig_cam": axes}
    (folder / "camera.json").write_text(json.dumps(camera))
    azimuth = math.pi - (torch.arange(360).double() + 0.5) * math.pi / 180
    angles = torch.stack(torch.meshgrid(azimuth, elevations, indexing="ij"), dim=-1).view(-1, 2)
    share, ways = (math.pi - angles[:, 0]) / math.tau, unit_directions(angles)
    down = (ways[:, 2] < -0.05) & ((angles[:, 0] - 1).abs() > 0.1)  # something black on the left returns nothing
    points = ways[down] * (-2 / ways[down, 2])[:, None]
    for k in range(5):
        rows = torch.cat([points, torch.full((len(points), 1), 0.5), (TURN * (k + share[down]))[:, None]], dim=1)
        np.save(folder / f"sweeps/{TURN * k:.1f}.npy", rows.float().numpy() if k else rows.numpy())
        Image.fromarray(np.full((30, 40, 3), 40 * k, np.uint8)).save(folder / f"images/{TURN * k + 0.05:.2f}.jpg")


def test_the_reader_of_the_page_reads_a_folder(
    reader: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path / "mine", reader.LIDAR.elevations)
    capture = reader.read(tmp_path / "mine")
    check_capture(capture, "mine")
    assert len(capture.images) == len(capture.sweeps) == 5 and capture.images[4].time_start == pytest.approx(0.45)
    frame = capture.sweeps[2]
    sweep = frame.load()
    known = sweep.select(sweep.returned)
    assert float((world_points(frame, known, reader.LIDAR)[:, 2] + 2).abs().max()) < 1e-3
    lost = sweep.select(~sweep.returned)
    beams = int((reader.LIDAR.elevations < -0.06).sum())
    assert len(lost) == pytest.approx(beams * 0.2 * 360 / math.tau, rel=0.1), (
        "the gap is filled with rays that did not return"
    )
    assert bool(((lost.times > 0.2) & (lost.times < 0.3)).all())
    reader.write_pack(capture, tmp_path / "mine.pack")
    assert len(read_pack(tmp_path / "mine.pack").sweeps) == 5
