# SPDX-License-Identifier: Apache-2.0
"""A capture that was written as a recording is read again: the same images, rays, poses and times."""

import pickle
from pathlib import Path

import pytest
import torch
from tiny_bag import DRIVERS, Recording, street
from tiny_capture import tiny_capture

from nurec_lite.capture.rosbag.read import read_rosbag
from nurec_lite.capture.types import Capture, ImageFrame
from nurec_lite.geometry.lidar import Sweep

CAPTURE = tiny_capture()
READOUT = CAPTURE.images[0].time_end - CAPTURE.images[0].time_start
STORAGES = {"ros1": ("a.bag", ""), "ros1-lz4": ("a.bag", "lz4"), "ros1-bz2": ("a.bag", "bz2"), "sqlite3": ("a", ""),
            "sqlite3-message": ("a", "message"), "mcap": ("a", ""), "mcap-storage": ("a", "storage")}  # fmt: skip


def written(recording: Recording, folder: Path, kind: str = "mcap") -> Path:
    name, compression = STORAGES[kind]
    return recording.write(folder / name, kind.split("-")[0], compression)


def mapped(folder: Path, text: str) -> Path:
    path = folder / "mapping.yaml"
    path.write_text(text)
    return path


def pairs(read: Capture) -> list[tuple[ImageFrame, ImageFrame]]:
    """Images that were read, and those that were written."""
    mine, true = (sorted(c.images, key=lambda f: (f.sensor, f.index)) for c in (read, CAPTURE))
    return list(zip(mine, true, strict=True))


def assert_same_rays(read: Sweep, true: Sweep) -> None:
    """Each return of the capture is there within a millimetre, at its time."""
    true, read = true.select(true.returned), read.select(read.returned)
    places = true.directions.double() * true.ranges.double()[:, None]
    found = read.directions.double() * read.ranges.double()[:, None]
    near = torch.cdist(places, found).min(dim=1)
    assert len(read) == len(true) and float(near.values.max()) < 1e-3
    assert float((read.times[near.indices] - true.times).abs().max()) < 1e-6
    both = torch.stack([read.intensities[near.indices], true.intensities])
    assert (
        float((both[0] - both[1]).abs().max()) < 0.01 or float(both.corrcoef()[0, 1]) > 0.999
    )  # some drivers count photons


def assert_same_sweeps(read: Capture) -> None:
    assert len(read.sweeps) == len(CAPTURE.sweeps)
    for mine, true in zip(read.sweeps[:3], CAPTURE.sweeps, strict=False):
        assert_same_rays(mine.load(), true.load())


@pytest.mark.parametrize("kind", STORAGES)
def test_every_container_gives_the_capture_back(kind: str, tmp_path: Path) -> None:
    read = read_rosbag(written(street(CAPTURE, ros1=kind.startswith("ros1")), tmp_path, kind))
    assert [c.name for c in read.cameras] == [c.name for c in CAPTURE.cameras] and not read.doubts
    for mine, true in pairs(read):
        assert torch.equal(mine.load(), true.load()) and abs(mine.time_mid - true.time_mid) < 1e-6
    assert_same_sweeps(read)


def test_cameras_poses_and_mountings_are_those_of_the_capture(tmp_path: Path) -> None:
    text = "cameras:\n" + "".join(
        f"  {c.name}: {{images: /{c.name}/image_raw/compressed, info: /{c.name}/camera_info, shutter: top_to_bottom, readout: {READOUT}}}\n"
        for c in CAPTURE.cameras
    )
    text += "lidars: {lidar: {points: /points}}\nposes: {topic: /odom}\n"
    path = written(street(CAPTURE), tmp_path)
    read = read_rosbag(path, mapping=mapped(tmp_path, text))
    for mine, true in zip(read.cameras, CAPTURE.cameras, strict=True):
        for key in ("fx", "fy", "cx", "cy", "width", "height"):
            assert getattr(mine, key) == pytest.approx(getattr(true, key))
        assert float((mine.T_rig_cam - true.T_rig_cam).abs().max()) < 1e-6
        assert mine.distortion[:2] == pytest.approx(true.distortion[:2]) if true.distortion else not mine.distortion
    assert float((read.lidars[0].T_rig_lidar - CAPTURE.lidars[0].T_rig_lidar).abs().max()) < 1e-6
    for mine, true in pairs(read):
        assert mine.time_start == pytest.approx(true.time_start, abs=1e-6) and mine.time_end == pytest.approx(
            true.time_end, abs=1e-6
        )
        for key in ("T_world_rig_start", "T_world_rig_end"):
            assert float((getattr(mine, key) - getattr(true, key)).abs().max()) < 1e-4


@pytest.mark.parametrize("driver", DRIVERS)
def test_every_driver_s_points_are_the_capture_s_rays(driver: str, tmp_path: Path) -> None:
    read = read_rosbag(written(street(CAPTURE, driver=driver), tmp_path))
    assert_same_sweeps(read)
    lidar, true = read.lidars[0], CAPTURE.lidars[0]
    assert lidar.clockwise == true.clockwise and lidar.azimuth_steps == true.azimuth_steps
    wanted = true.elevations.sort(descending=True).values
    assert float((lidar.elevations - wanted).abs().max()) < 1e-4


def test_rays_that_did_not_return_are_found_again(tmp_path: Path) -> None:
    read = read_rosbag(written(street(CAPTURE), tmp_path))
    mine, true = read.sweeps[4].load(), CAPTURE.sweeps[4].load()
    assert len(mine) == len(true) and int(mine.returned.sum()) == int(true.returned.sum())
    lost = true.select(~true.returned)
    apart = torch.cdist(lost.directions.double(), mine.directions[~mine.returned].double()).min(dim=1)
    assert float(apart.values.max()) < 0.03  # radians; rays are 0.098 apart
    off = mine.times[~mine.returned][apart.indices] - lost.times
    assert float(off.abs().max()) < 0.002


def test_frames_pickle(tmp_path: Path) -> None:
    """Loader processes get them so."""
    read = read_rosbag(written(street(CAPTURE), tmp_path))
    image, sweep = pickle.loads(pickle.dumps((read.images[0], read.sweeps[0])))
    assert torch.equal(image.load(), pairs(read)[0][1].load()) and image.encoded() is not None and len(sweep.load())
