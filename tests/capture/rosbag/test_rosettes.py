# SPDX-License-Identifier: Apache-2.0
"""Recordings of lidars without rows and columns: Livox's message and clouds, several returns, a table of rays, flash lidars."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_bag import Recording
from tiny_capture import TINY, tiny_capture

from nurec_lite.capture.free_rays import turns_steadily
from nurec_lite.capture.ray_files import read_rays
from nurec_lite.capture.rosbag.read import read_rosbag
from nurec_lite.capture.types import Capture, CaptureError
from nurec_lite.geometry.free_lidar import rosette
from nurec_lite.geometry.lidar import Lidar, Sweep, azimuth_elevation

CAPTURE = tiny_capture(
    replace(TINY, frames=6, cameras=1, width=8, height=6, beams=12, azimuth_steps=96, pattern="rosette")
)


def read(made: Recording, folder: Path, lidar: str) -> Capture:
    (folder / "m.yaml").write_text("cameras: {a: {images: /camera_0/image_raw/compressed, info: /camera_0/camera_info}}\n"
                                   f"poses: {{topic: /odom}}\nlidars: {{lidar: {{{lidar}}}}}\n")  # fmt: skip
    return read_rosbag(made.write(folder / "bag", "mcap"), mapping=folder / "m.yaml")


def table_file(lidar: Lidar, path: Path) -> Path:
    assert lidar.table is not None
    angles = torch.rad2deg(azimuth_elevation(lidar.table.directions.double()))
    np.savetxt(path, torch.cat([angles, lidar.table.fractions[:, None]], dim=1).numpy(), delimiter=",", fmt="%.6f")
    return path


def points_of(sweep: Sweep) -> torch.Tensor:
    hit = sweep.select(sweep.returned)
    return hit.directions.double() * hit.ranges.double()[:, None]


def outside(sweep: Sweep) -> Sweep:
    """The sweep without the points that the reader takes for the vehicle."""
    places = sweep.directions * sweep.ranges[:, None]
    return sweep.select(sweep.returned & ~((places[:, 0].abs() < 2.5) & (places[:, 1].abs() < 1.6)))


@pytest.mark.parametrize("kind", ["message", "cloud"])
def test_returns_and_their_times_are_kept(kind: str, tmp_path: Path) -> None:
    made = Recording(CAPTURE).images().mountings().odometry()
    made = made.livox() if kind == "message" else made.sweeps("livox")
    capture = read_rosbag(made.write(tmp_path / "bag", "mcap"))
    true, sweep = outside(CAPTURE.sweeps[2].load()), capture.sweeps[2].load()
    assert not capture.lidars[0].spins and bool(sweep.returned.all()) and len(sweep) == len(true)
    order = true.times.argsort()
    assert float((points_of(sweep) - points_of(true)[order]).norm(dim=1).max()) < 1e-3
    assert float((sweep.times - true.times[order]).abs().max()) < 2e-6
    assert any("Rays without return are not known" in doubt.sentence for doubt in capture.doubts)


def test_a_table_of_rays_tells_what_did_not_return(tmp_path: Path) -> None:
    table_file(CAPTURE.lidars[0], tmp_path / "rays.csv")
    made = Recording(CAPTURE).images().mountings().odometry().sweeps("livox")
    capture = read(made, tmp_path, "points: /points, rays: rays.csv")
    true, sweep = CAPTURE.sweeps[2].load(), capture.sweeps[2].load()
    gone = len(true) - len(outside(true)) - int((~true.returned).sum())  # the vehicle's own
    assert not any("not known" in doubt.sentence for doubt in capture.doubts)
    assert abs(int((~sweep.returned).sum()) - int((~true.returned).sum())) <= gone + 0.02 * len(true)
    apart = torch.cdist(sweep.directions[~sweep.returned], true.directions[~true.returned]).min(dim=1).values
    assert float((apart < 1e-3).double().mean()) > 0.97


def test_of_several_returns_the_strongest_is_kept(tmp_path: Path) -> None:
    made = Recording(CAPTURE).images().mountings().odometry().sweeps("livox")
    for _, topic, _, message in made.rows:
        if topic == "/points":
            rows = message.data.reshape(-1, message.point_step)
            weak = rows.copy()
            places = np.ascontiguousarray(weak[:, :12]).view("<f4") * 0.5
            weak[:, :12], weak[:, 12:16] = places.view(np.uint8), np.zeros(4, np.uint8)  # nearer, without intensity
            message.data = np.stack([weak, rows], axis=1).reshape(-1)
            message.width, message.row_step = 2 * message.width, 2 * message.row_step
    capture = read_rosbag(made.write(tmp_path / "bag", "mcap"))
    assert len(capture.sweeps[2].load()) == len(outside(CAPTURE.sweeps[2].load()))


def test_a_flash_lidar_sees_all_at_its_stamp(tmp_path: Path) -> None:
    made = Recording(CAPTURE).images().mountings().odometry().sweeps("plain")
    capture = read(made, tmp_path, "points: /points, spins: false")
    frame = capture.sweeps[2]
    assert frame.time_start == frame.time_end and bool((frame.load().times == frame.time_start).all())
    assert any("count as measured at its stamp" in doubt.sentence for doubt in capture.doubts)


def test_only_a_lidar_that_spins_turns_steadily() -> None:
    time = torch.linspace(0, 1, 4000).double()
    beams = 0.2 * torch.rand(4000).double()  # of a column, at slightly other azimuths
    assert turns_steadily(3.0 - 2 * math.pi * time + beams, time)
    assert turns_steadily(2.1 * time - 1 + beams, time)  # a mirror that sweeps 120 degrees
    assert not turns_steadily(azimuth_elevation(rosette(4000, 1.2, (31, -20)).directions.double())[:, 0], time)
    assert not turns_steadily(torch.sin(400 * time), time)  # lines, one above the other


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1 2", "2 columns"),
        ("1 2 x", "no table of numbers"),
        ("0 0 2", "ray 1 is 0 0 2"),
        ("# none", "has 0 rays"),
        ("0 nan 0", "ray 1"),
    ],
)
def test_tables_that_are_none_are_refused(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "rays.txt").write_text(text)
    with pytest.raises(CaptureError, match=sentence):
        read_rays(tmp_path / "rays.txt")
