# SPDX-License-Identifier: Apache-2.0
"""The KITTI reader on a tiny drive that the tests write: exact values, and a sentence for every broken file."""

import math
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from nurec_lite.capture.images import block_mean
from nurec_lite.capture.kitti_raw import IMAGE_DELAY, read_kitti_raw
from nurec_lite.capture.kitti_sweeps import beam_elevations, find_rings, make_sweep, missing_angles, survey
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.lidar import azimuth_elevation, unit_directions
from nurec_lite.geometry.se3 import quat_rotate

N_FRAMES, N_BEAMS, STEPS = 3, 64, 120  # rays every 3 degrees
DRIVE = "2030_01_02/2030_01_02_drive_0007_sync"

CALIBRATION = {
    "calib_imu_to_velo.txt": "R: 1 0 0 0 1 0 0 0 1\nT: -0.5 0.25 -1.0\n",
    "calib_velo_to_cam.txt": "calib_time: today\nR: 0 -1 0 0 0 -1 1 0 0\nT: 0 -0.125 -0.25\n",
    "calib_cam_to_cam.txt": (
        "R_rect_00: 1 0 0 0 1 0 0 0 1\n"
        "S_rect_02: 12 8\nP_rect_02: 10 0 6 5 0 10 4 0 0 0 1 0\n"
        "S_rect_03: 12 8\nP_rect_03: 10 0 6 -5 0 10 4 0 0 0 1 0\n"
    ),
}


def ring_angles(skip: Callable[[Tensor, int], Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """Angles [n, 2] of rays as a file stores them, and their rings [n]; `skip(azimuth in degrees, ring)` leaves some out."""
    angles, rings = [], []
    for ring in range(N_BEAMS):
        degrees = torch.arange(STEPS, dtype=torch.float64) * 360 / STEPS + 0.5
        if skip is not None:
            degrees = degrees[~skip(degrees, ring)]
        azimuth = torch.deg2rad((degrees + 180) % 360 - 180)
        angles.append(torch.stack([azimuth, torch.full_like(azimuth, math.radians(2 - 0.4 * ring))], dim=1))
        rings.append(torch.full((len(azimuth),), ring))
    return torch.cat(angles), torch.cat(rings)


def points_of(angles: Tensor, distance: float = 20.0) -> Tensor:  # [n, 4]
    return torch.cat([unit_directions(angles) * distance, torch.full((len(angles), 1), 0.5)], dim=1).double()


def stamp(seconds: float) -> str:
    return f"2030-01-02 10:00:{30 + seconds:012.9f}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three frames, 0.1 s apart; the rig drives east at 10 m/s."""
    drive = tmp_path / DRIVE
    for name, text in CALIBRATION.items():
        (drive.parent / name).parent.mkdir(parents=True, exist_ok=True)
        (drive.parent / name).write_text(text)
    times = {"velodyne_points/timestamps": 0.0, "velodyne_points/timestamps_start": -0.05}
    times |= {"velodyne_points/timestamps_end": 0.05, "oxts/timestamps": 0.012}
    times |= {"image_02/timestamps": 0.0105, "image_03/timestamps": 0.0105}
    for name, shift in times.items():
        (drive / name).parent.joinpath("data").mkdir(parents=True, exist_ok=True)
        (drive / f"{name}.txt").write_text("".join(stamp(0.1 * i + shift) + "\n" for i in range(N_FRAMES)))
    points = points_of(ring_angles(lambda azimuth, ring: (azimuth > 100) & (azimuth < 110))[0])
    rng = np.random.default_rng(0)
    for i in range(N_FRAMES):
        (drive / f"velodyne_points/data/{i:010d}.bin").write_bytes(points.numpy().astype("<f4").tobytes())
        longitude = math.degrees((10 * 0.1 * i) / 6378137.0 / math.cos(math.radians(49)))
        (drive / f"oxts/data/{i:010d}.txt").write_text(f"49 {8 + longitude:.14f} 100 0 0 0 1 2 3\n")
        for camera in ("image_02", "image_03"):
            pixels = rng.integers(0, 256, (8, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(drive / f"{camera}/data/{i:010d}.png")
    return tmp_path


def label(frame: int, x: float, y: float, z: float, yaw: float, kind: str = "Car") -> str:
    return f"{frame} 3 {kind} 0 0 -1 0 0 9 9 1.5 1.8 4.2 {x} {y} {z} {yaw}\n"  # height 1.5, width 1.8, length 4.2


# ---- sweeps


def test_rings_survive_noise_gaps_and_empty_rings() -> None:
    def skip(degrees: Tensor, ring: int) -> Tensor:
        start = 20 + 30 * (ring % 5)
        return ((degrees > start) & (degrees < start + 200)) | torch.tensor(ring < 2)

    angles, rings = ring_angles(skip)
    noisy = angles[:, 0] + torch.deg2rad(0.01 * torch.randn(len(angles), dtype=torch.float64))
    assert torch.equal(find_rings(noisy), rings)


def test_ring_boundary_with_noise_around_azimuth_zero() -> None:
    degrees = torch.tensor([10.0, 180, -0.01, 0.005, -0.002, 0.01, 90, 270, -0.5])
    assert find_rings(torch.deg2rad(degrees).double(), n_beams=2).tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 1]


def test_beam_elevations() -> None:
    angles, rings = ring_angles(lambda degrees, ring: torch.full_like(degrees, ring in (0, 30), dtype=torch.bool))
    expected = torch.deg2rad(2 - 0.4 * torch.arange(64, dtype=torch.float64))
    torch.testing.assert_close(beam_elevations(angles[:, 1], rings), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("gap", [(100, 130), (-1, 20), (170, 200), (350, 361), (1, 359)])
def test_missing_rays_restore_the_ring(gap: tuple[float, float]) -> None:
    whole, whole_rings = ring_angles()
    kept, rings = ring_angles(lambda degrees, ring: (degrees > gap[0]) & (degrees < gap[1]) & torch.tensor(ring != 5))
    angles, new_rings = missing_angles(kept, rings)
    both, both_rings = torch.cat([kept, angles]), torch.cat([rings, new_rings])
    key = (both_rings * 1000 + torch.rad2deg(both[:, 0]) % 360).sort().values
    torch.testing.assert_close(key, whole_rings * 1000 + torch.rad2deg(whole[:, 0]) % 360)


def test_missing_rays_interpolate_the_elevation() -> None:
    angles = torch.deg2rad(torch.tensor([[0, 1.0], [1, 1], [2, 1], [6, 3], [7, 3]], dtype=torch.float64))
    new = torch.rad2deg(missing_angles(angles, torch.zeros(5, dtype=torch.long))[0])
    torch.testing.assert_close(new[:3], torch.tensor([[3, 1.5], [4, 2], [5, 2.5]], dtype=torch.float64))
    assert len(new) == 3 + 352


def test_sweep_times_and_order() -> None:
    angles, rings = ring_angles(lambda degrees, ring: (degrees > 100) & (degrees < 110))
    sweep = make_sweep(points_of(angles), forward_time=7.0, period=0.1)
    assert len(sweep) == N_BEAMS * STEPS and int((~sweep.returned).sum()) == N_BEAMS * 3
    found = azimuth_elevation(sweep.directions.double())
    torch.testing.assert_close(sweep.times, 7 - 0.1 * found[:, 0] / (2 * math.pi), atol=1e-8, rtol=0)
    left, right = (sweep.times[(found[:, 0] - side).abs() < 0.1] for side in (math.pi / 2, -math.pi / 2))
    assert left.max() < 7 < right.min()  # it turns clockwise: first the left side, then the right one
    assert (torch.diff(sweep.rings * 7 + found[:, 0] % (2 * math.pi)) > 0).all()
    assert torch.equal(sweep.rings[sweep.returned], rings)


def test_own_vehicle_is_left_out(tmp_path: Path) -> None:
    """Neither its returns nor the directions that it blocks are rays of the sweep."""

    def blocked(degrees: Tensor, ring: int) -> Tensor:
        return (degrees > 150) & (degrees < 210) & torch.tensor(ring > 40)

    angles, rings = ring_angles(blocked)
    points = points_of(angles)
    mirror = (rings == 50) & (angles[:, 0].abs() < 0.02)
    points[mirror, :3] /= 10
    (tmp_path / "0.bin").write_bytes(points.numpy().astype("<f4").tobytes())
    sweep = make_sweep(points, 0.0, 0.1, True, survey([tmp_path / "0.bin"])[1])
    assert int(mirror.sum()) == 1 and int(sweep.returned.sum()) == len(points) - 1
    # between the rings' own gaps of 3 degrees nothing is seen either, so only few missing rays may be left beside the hole
    assert int((~sweep.returned).sum()) <= 2 * 23


# ---- the whole drive


def test_times_poses_and_calibration(root: Path) -> None:
    capture = read_kitti_raw(root)
    assert [f.time_mid for f in capture.sweeps] == pytest.approx([0.0, 0.1, 0.2], abs=1e-9)
    assert [f.time_start for f in capture.images[:3]] == pytest.approx(
        [0.0105 - IMAGE_DELAY + 0.1 * i for i in range(3)]
    )
    first = capture.sweeps[0]  # oxts is stamped 12 ms later, where the world has its origin
    torch.testing.assert_close(first.T_world_rig_start[:3, 3], torch.tensor([-0.62, 0, 0]).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(first.T_world_rig_end[:3, 3], torch.tensor([0.38, 0, 0]).double(), atol=1e-5, rtol=0)
    left, right = capture.cameras
    assert (left.cx, left.cy, left.fx) == (6.5, 4.5, 10.0)
    torch.testing.assert_close(left.T_rig_cam[:3, 3] - right.T_rig_cam[:3, 3], torch.tensor([0, 1.0, 0]).double())
    torch.testing.assert_close(left.T_rig_cam[:3, 3], torch.tensor([0.5 + 0.25, -0.25 + 0.5, 1 - 0.125]).double())
    torch.testing.assert_close(capture.lidars[0].T_rig_lidar[:3, 3], torch.tensor([0.5, -0.25, 1]).double())


def test_frames_select_without_moving_the_clock(root: Path) -> None:
    whole, part = read_kitti_raw(root), read_kitti_raw(root, frames=(1, 2), image_delay=0.0)
    assert [f.index for f in part.sweeps] == [1] and [f.index for f in part.images] == [1, 1]
    assert part.sweeps[0].time_start == whole.sweeps[1].time_start
    assert torch.equal(part.sweeps[0].T_world_rig_end, whole.sweeps[1].T_world_rig_end)
    assert part.images[0].time_start == pytest.approx(0.1105, abs=1e-9)


def test_loaders_pickle(root: Path) -> None:
    capture = read_kitti_raw(root)
    for frame in (capture.images[0], capture.sweeps[0]):
        again = pickle.loads(pickle.dumps(frame))
        assert len(again.load()) == len(frame.load())


def test_poses_file_is_of_the_lidar(root: Path) -> None:
    path = root / "poses.txt"
    path.write_text(
        "".join(f"0 -1 0 {10 + i} 1 0 0 0 0 0 1 0\n" for i in range(3))
    )  # faces y, drives along x: sideways
    capture = read_kitti_raw(root, poses_file=path)
    T = capture.sweeps[2].T_world_rig_start  # at 0.15 s
    torch.testing.assert_close(T[:3, 3], torch.tensor([0, -1.5, 0]).double(), atol=1e-6, rtol=0)


def test_images_shrink_by_the_mean_of_blocks(root: Path) -> None:
    image = read_kitti_raw(root).images[0].load()
    small = read_kitti_raw(root, downscale=3).images[0].load()
    assert small.shape == (2, 4, 3)
    mean = image[:6].double().view(2, 3, 4, 3, 3).mean(dim=(1, 3))
    assert torch.equal(small.double(), (mean + 0.5).floor())
    assert torch.equal(block_mean(image, 1), image)


# ---- tracks


def test_labels_become_boxes_in_the_world(root: Path) -> None:
    """A car 9.75 m ahead of camera 0 and 5 m left of it, facing like the rig: yaw is about the camera's y, from its x."""
    path = root / "labels.txt"
    dont_care = "0 -1 DontCare -1 -1 -10 1 2 3 4 -1000 -1000 -1000 -10 -1 -1 -1\n"
    path.write_text(
        label(0, -5, 1.5, 9.75, -math.pi / 2) + dont_care + label(2, -5, 1.5, 7.75, -math.pi / 2) + label(9, 0, 0, 9, 0)
    )
    tracks = read_kitti_raw(root, tracks_file=path).tracks
    assert tracks.ids == ("3",) and tracks.classes == ("Car",) and tracks.offsets == (0, 2)
    assert tracks.sizes.tolist() == [[4.2, 1.8, 1.5]]
    in_lidar = torch.tensor([10.0, 5.0, -0.75 - 0.125])  # camera 0 lies 0.25 m behind the lidar and 0.125 m below it
    time = -math.atan2(5, 10) / (2 * math.pi) * 0.1
    assert tracks.times[0] == pytest.approx(time, abs=1e-9)
    expected = in_lidar + torch.tensor([0.5 + 10 * (time - 0.012), -0.25, 1])
    torch.testing.assert_close(tracks.translations[0], expected.double(), atol=1e-4, rtol=0)
    forward, up = (quat_rotate(tracks.quaternions[0], torch.tensor(v).double()) for v in ([1.0, 0, 0], [0, 0, 1.0]))
    torch.testing.assert_close(forward, torch.tensor([1.0, 0, 0]).double(), atol=1e-6, rtol=0)
    torch.testing.assert_close(up, torch.tensor([0, 0, 1.0]).double(), atol=1e-6, rtol=0)


def test_tracklets_agree_with_labels(root: Path) -> None:
    path = root / "labels.txt"
    path.write_text(label(1, -5, 1.5, 9.75, -math.pi / 2 - 0.3))
    a = read_kitti_raw(root, tracks_file=path).tracks
    item = "<h>1.5</h><w>1.8</w><l>4.2</l><first_frame>1</first_frame>"
    pose = "<tx>10</tx><ty>5</ty><tz>-1.625</tz><rx>0</rx><ry>0</ry><rz>0.3</rz>"
    (root / DRIVE / "tracklet_labels.xml").write_text(
        f"<boost><tracklets><count>1</count><item><objectType>Car</objectType>{item}"
        f"<poses><count>1</count><item>{pose}</item></poses></item></tracklets></boost>"
    )
    b = read_kitti_raw(root).tracks
    assert b.classes == ("Car",)
    for name in ("times", "translations", "quaternions", "sizes"):
        torch.testing.assert_close(getattr(a, name), getattr(b, name), atol=1e-6, rtol=0)


# ---- what a user can break


def cut(path: str) -> Callable[[Path], None]:
    return lambda root: (root / DRIVE / path).write_bytes((root / DRIVE / path).read_bytes()[:-5])


def put(path: str, text: str) -> Callable[[Path], None]:
    return lambda root: (root / DRIVE / path).write_text(text) and None


def remove(path: str) -> Callable[[Path], None]:
    return lambda root: (root / DRIVE / path).unlink()


BROKEN = [
    (remove("../calib_cam_to_cam.txt"), "calib_cam_to_cam.txt cannot be read; put"),
    (put("../calib_cam_to_cam.txt", "R_rect_00: 1 0 0 0 1 0 0 0 1\n"), "lacks 'P_rect_02'"),
    (put("../calib_velo_to_cam.txt", "R: 1 0 0\nT: 0 0 0\n"), "calib_velo_to_cam.txt lacks 'R' with 9 numbers"),
    (put("image_02/timestamps.txt", stamp(0) + "\n"), "image_02/timestamps.txt has no time stamp"),
    (put("velodyne_points/timestamps.txt", stamp(0) + "\n"), "timestamps.txt has no time stamp"),
    (put("velodyne_points/timestamps.txt", "\n"), "timestamps.txt is empty"),
    (put("velodyne_points/timestamps_end.txt", "noon\n"), "timestamps_end.txt holds a line that is no time stamp"),
    (remove("oxts/timestamps.txt"), "oxts/timestamps.txt cannot be read; restore"),
    (put("oxts/data/0000000001.txt", "49 8 nan 0 0 0\n"), "does not begin with 6 finite numbers"),
    (cut("velodyne_points/data/0000000000.bin"), "0000000000.bin is .* truncated"),
    (put("velodyne_points/data/0000000000.bin", 32 * "\0"), "0000000000.bin holds no finite point"),
    (put("image_02/data/0000000000.png", "no image"), "0000000000.png is no image"),
    (put("tracklet_labels.xml", "<boost>"), "tracklet_labels.xml is not a KITTI tracklet file"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "message"), BROKEN, ids=[message for _, message in BROKEN])
def test_broken_drive(root: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(root)
    with pytest.raises(CaptureError, match=message):
        read_kitti_raw(root)


def test_image_of_another_size(root: Path) -> None:
    capture = read_kitti_raw(root)
    for number in (0, 1):
        Image.new("RGB", (10, 8)).save(root / DRIVE / f"image_02/data/{number:010d}.png")
    with pytest.raises(CaptureError, match=r"0000000001.png is 10x8 pixels, but the calibration is for 12x8"):
        capture.images[1].load()
    with pytest.raises(CaptureError, match=r"0000000000.png is 10x8"):
        read_kitti_raw(root)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 0 0 0 0 1 0 0 0 0 1 0\n", "has 1 rows, but 3 are needed"),
        ("1 0 0 nan 0 1 0 0 0 0 1 0\n" * 3, "12 finite numbers"),
        ("1 0 0 0 0 1 0 0\n" * 3, "12 finite numbers"),
        ("1 0 0 x\n" * 3, "no number"),
        ("2 0 0 0 0 1 0 0 0 0 1 0\n" * 3, "not a rotation"),
    ],
)
def test_broken_poses_file(root: Path, text: str, message: str) -> None:
    (root / "poses.txt").write_text(text)
    with pytest.raises(CaptureError, match=message):
        read_kitti_raw(root, poses_file=root / "poses.txt")


def test_broken_names(root: Path) -> None:
    with pytest.raises(CaptureError, match="holds no folder"):
        read_kitti_raw(root / "nowhere")
    with pytest.raises(CaptureError, match="holds no folder"):
        read_kitti_raw(root, drive=8)
    with pytest.raises(CaptureError, match="image_00/data does not exist"):
        read_kitti_raw(root, cameras=("image_00",))
    with pytest.raises(CaptureError, match="no file of the frames 5 to 8"):
        read_kitti_raw(root, frames=(5, 9))
    with pytest.raises(CaptureError, match=r"nowhere.txt cannot be read"):
        read_kitti_raw(root, tracks_file=root / "nowhere.txt")
    (root / "labels.txt").write_text("1 2 Car 3\n")
    with pytest.raises(CaptureError, match=r"labels.txt line 1 is not a KITTI tracking label"):
        read_kitti_raw(root, tracks_file=root / "labels.txt")
    (root / "2030_01_02/2030_01_02_drive_0008_sync").mkdir()
    with pytest.raises(CaptureError, match="holds 2 drives"):
        read_kitti_raw(root)
    assert read_kitti_raw(root, date="2030_01_02", drive="0007").name == "2030_01_02_drive_0007"
