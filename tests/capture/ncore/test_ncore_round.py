# SPDX-License-Identifier: Apache-2.0
"""A capture that is written as NCore v4 comes back as it was, and the format's own library reads the same from it."""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("ncore")
import numpy as np
import torch
from ncore.data.v4 import SequenceComponentGroupsReader, SequenceLoaderV4
from ncore.sensors import CameraModel
from pack_parts import make_capture
from tiny_capture import Loaded, tiny_capture

from nurec_lite import pack
from nurec_lite.base.errors import ConfigError, OutputError
from nurec_lite.capture.deskew import world_points
from nurec_lite.capture.ncore.boxes import turned
from nurec_lite.capture.ncore.models import euler_of
from nurec_lite.capture.ncore.read import read_ncore
from nurec_lite.capture.ncore.write import ncore_path, write_ncore
from nurec_lite.capture.origin import in_users_world, recentred
from nurec_lite.capture.pack import read_pack, write_pack
from nurec_lite.capture.trajectory import AnyFrame, trajectory_of
from nurec_lite.capture.types import Capture, CaptureError, Doubt, UnusedFrame
from nurec_lite.geometry.camera import SHUTTERS, Camera, project_points
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.se3 import quat_to_matrix, rotvec_to_quat

US = 0.51e-6  # seconds: NCore's times are whole microseconds


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("written") / "tiny.ncore4.zarr.itar"
    write_ncore(tiny_capture(), found, image_format="png")
    return found


@pytest.fixture(scope="module")
def back(path: Path) -> Capture:
    return read_ncore(path)


@pytest.fixture(scope="module")
def loader(path: Path) -> SequenceLoaderV4:
    return SequenceLoaderV4(SequenceComponentGroupsReader([path]))


def by_sensor(frames: Sequence[AnyFrame]) -> list[AnyFrame]:
    return sorted(frames, key=lambda frame: (frame.sensor, frame.index))


def test_frames_are_the_same(back: Capture) -> None:
    for kind in ("images", "sweeps"):
        before, after = by_sensor(getattr(tiny_capture(), kind)), by_sensor(getattr(back, kind))
        assert [(f.sensor, f.index) for f in before] == [(f.sensor, f.index) for f in after]
        for a, b in zip(before, after, strict=True):
            assert abs(a.time_start - b.time_start) < US and abs(a.time_end - b.time_end) < US
            torch.testing.assert_close(b.T_world_rig_start, a.T_world_rig_start, atol=1e-9, rtol=0)
            torch.testing.assert_close(b.T_world_rig_end, a.T_world_rig_end, atol=1e-9, rtol=0)


def test_images_are_the_same(back: Capture) -> None:
    for a, b in zip(by_sensor(tiny_capture().images), by_sensor(back.images), strict=True):
        assert torch.equal(a.load(), b.load())


def test_rays_are_the_same(back: Capture) -> None:
    lidar = back.lidars[0]
    for name in ("T_rig_lidar", "elevations"):
        assert torch.equal(getattr(lidar, name), getattr(tiny_capture().lidars[0], name))
    for a, b in zip(tiny_capture().sweeps, back.sweeps, strict=True):
        one, other = a.load(), b.load()
        for name in ("directions", "ranges", "intensities", "rings", "returned"):
            assert torch.equal(getattr(one, name), getattr(other, name)), name
        assert float((one.times - other.times).abs().max()) < US
        points = [world_points(f, s.select(s.returned), lidar) for f, s in ((a, one), (b, other))]
        assert float((points[0] - points[1]).norm(dim=1).max()) < 1e-3


def test_tracks_are_the_same(back: Capture) -> None:
    a, b = tiny_capture().tracks, back.tracks
    assert (a.ids, a.classes, a.offsets, a.margin) == (b.ids, b.classes, b.offsets, b.margin)
    torch.testing.assert_close(b.times, a.times.double(), atol=US, rtol=0)
    torch.testing.assert_close(b.sizes, a.sizes.double(), atol=1e-9, rtol=0)
    torch.testing.assert_close(b.translations, a.translations.double(), atol=1e-9, rtol=0)
    turns = [quat_to_matrix(t.quaternions.double()) for t in (a, b)]
    torch.testing.assert_close(turns[1], turns[0], atol=1e-6, rtol=0)


def test_cameras_are_the_same_to_single_precision(back: Capture) -> None:
    for a, b in zip(tiny_capture().cameras, back.cameras, strict=True):
        assert (a.name, a.width, a.height, a.shutter) == (b.name, b.width, b.height, b.shutter)
        torch.testing.assert_close(b.T_rig_cam, a.T_rig_cam.double(), atol=1e-12, rtol=0)
        assert (b.fx, b.fy, b.cx, b.cy) == pytest.approx((a.fx, a.fy, a.cx, a.cy), rel=1e-6)


@pytest.mark.parametrize("names", [("camera_1", "camera_0"), ("camera_1",)])
def test_cameras_in_any_order(path: Path, names: tuple[str, ...]) -> None:
    part = read_ncore(path, cameras=names, lidars=("lidar",)).with_split("interp")
    assert tuple(c.name for c in part.cameras) == names and {f.sensor for f in part.images} == set(names)
    assert part.split is not None and len(part.split.test_images) == 2 * len(names)


# ---- the format's own library


def test_its_library_finds_the_frames_and_poses(loader: SequenceLoaderV4) -> None:
    capture = tiny_capture()
    assert loader.camera_ids == sorted(c.name for c in capture.cameras) and loader.lidar_ids == [
        s.name for s in capture.lidars
    ]
    for frame in capture.images:
        sensor = loader.get_camera_sensor(frame.sensor)
        stamps = sensor.frames_timestamps_us[frame.index]
        assert (
            np.abs(stamps.astype(float) * 1e-6 - [frame.time_start, frame.time_end]).max() < 1 + US
        )  # begins at 1 s where 0 would be negative
        found = loader.pose_graph.evaluate_poses("rig", "world", stamps)
        want = torch.stack([frame.T_world_rig_start, frame.T_world_rig_end]).numpy()
        np.testing.assert_allclose(found, want, atol=1e-6)
        assert np.array_equal(np.asarray(sensor.get_frame_image(frame.index)), frame.load().numpy())


def test_its_library_puts_points_on_the_path(loader: SequenceLoaderV4) -> None:
    """The path has the poses of all sensors; that of a sweep alone is a straight line from its start to its end."""
    capture = tiny_capture()
    path = trajectory_of(capture)
    lidar, sensor = capture.lidars[0], loader.get_lidar_sensor(capture.lidars[0].name)
    for frame in capture.sweeps[:3]:
        sweep = frame.load()
        cloud = sensor.get_frame_point_cloud(frame.index, motion_compensation=True, with_start_points=False).xyz_m_end
        T = loader.pose_graph.evaluate_poses(sensor.sensor_id, "world", sensor.frames_timestamps_us[frame.index, 1])
        theirs = cloud[sweep.returned.numpy()] @ T[:3, :3].T + T[:3, 3]
        known = sweep.select(sweep.returned)
        T_world_lidar = path.at(known.times) @ lidar.T_rig_lidar.double()
        ours = (T_world_lidar[:, :3] @ with_one(known.directions.double() * known.ranges[:, None])[..., None])[..., 0]
        assert np.abs(theirs - ours.numpy()).max() < 1e-3


def with_one(points: torch.Tensor) -> torch.Tensor:  # [n, 3] -> [n, 4]
    return torch.cat([points, torch.ones_like(points[:, :1])], dim=1)


def test_its_library_finds_the_boxes(loader: SequenceLoaderV4) -> None:
    tracks, found = tiny_capture().tracks, list(loader.get_cuboid_track_observations())
    assert len(found) == len(tracks.times) and {box.track_id for box in found} == set(tracks.ids)
    assert {box.reference_frame_id for box in found} == {
        "rig"
    }  # programs that know no box of the world read these, too
    sweeps = loader.get_lidar_sensor(loader.lidar_ids[0]).frames_timestamps_us.tolist()
    for box in found:  # the rig stands where the sweep ends
        ends = [last for first, last in sweeps if first <= box.timestamp_us <= last]
        assert box.reference_frame_timestamp_us == min(ends, default=box.timestamp_us)
    there = [box.transform("world", box.timestamp_us, loader.pose_graph).bbox3 for box in found]
    np.testing.assert_allclose([box.centroid for box in there], tracks.translations.double().numpy(), atol=1e-5)
    turns = quat_to_matrix(turned(torch.tensor([box.rot for box in there], dtype=torch.float64)))
    torch.testing.assert_close(turns, quat_to_matrix(tracks.quaternions.double()), atol=1e-5, rtol=0)


def test_its_library_knows_rows_and_columns(loader: SequenceLoaderV4) -> None:
    lidar = tiny_capture().lidars[0]
    model = loader.get_lidar_sensor(lidar.name).model_parameters
    assert (model.n_rows, model.n_columns) == (len(lidar.elevations), lidar.azimuth_steps)
    reader = loader.get_lidar_sensor(lidar.name).ray_bundle_reader
    stamp = loader.get_lidar_sensor(lidar.name).frames_timestamps_us[0, 1].item()
    row, column = reader.get_frame_ray_bundle_data(stamp, "model_element").T
    x, y, z = reader.get_frame_ray_bundle_data(stamp, "direction").T.astype(float)
    assert np.abs(np.arctan2(z, np.hypot(x, y)) - model.row_elevations_rad[row]).max() < 1e-5
    away = (np.arctan2(y, x) - model.column_azimuths_rad[column] + math.pi) % (2 * math.pi) - math.pi
    assert np.abs(away).max() < 1.01 * math.pi / model.n_columns


@pytest.mark.parametrize("shutter", SHUTTERS)
def test_its_cameras_project_as_ours_do(tmp_path: Path, shutter: str) -> None:
    like = tiny_capture().cameras[0]
    camera: Camera = replace(like, shutter=shutter, distortion=(0.1, -0.02, 1e-3, 2e-3, 0.003))
    capture = replace(
        tiny_capture(),
        split=None,
        cameras=(camera,),
        images=tuple(f for f in tiny_capture().images if f.sensor == like.name)[:2],
    )
    write_ncore(capture, tmp_path / "x.zarr.itar")
    model = CameraModel.from_parameters(
        SequenceLoaderV4(SequenceComponentGroupsReader([tmp_path / "x.zarr.itar"]))
        .get_camera_sensor(like.name)
        .model_parameters,
        device="cpu",
    )
    points = torch.tensor([[0.1, 0.2, 3], [-1, 0.4, 5], [2, -0.5, 9]])
    theirs = model.camera_rays_to_image_points(points).image_points
    torch.testing.assert_close(theirs, project_points(camera, points.double())[0].float(), atol=1e-3, rtol=0)
    assert read_ncore(tmp_path / "x.zarr.itar").cameras[0].shutter == shutter


# ---- differences between drives


def test_a_drive_far_away_and_before_time_0(tmp_path: Path) -> None:
    """Poses come back in the user's world, and times as they were."""
    far = recentred(tiny_capture(), (-4.5e5, -5.4e6, 100.0))
    early = replace(
        far, split=None, searched=True, doubts=(Doubt("x", False, "Something.", "do it"),), sweeps=(), lidars=(),
        images=tuple(replace(f, time_start=f.time_start - 3.25, time_end=f.time_end - 3.25) for f in far.images),
        tracks=replace(far.tracks, times=far.tracks.times - 3.25), left_out=(UnusedFrame(far.cameras[0].name, 99, -1.5),),
    )  # fmt: skip
    write_ncore(replace(early, origin=(0.0, 0.0, 0.0)), tmp_path / "x.zarr.itar")
    back = read_ncore(tmp_path / "x.zarr.itar")
    for a, b in zip(by_sensor(early.images), by_sensor(back.images), strict=True):
        assert abs(a.time_start - b.time_start) < US
        torch.testing.assert_close(b.T_world_rig_start, a.T_world_rig_start, atol=1e-8, rtol=0)
    torch.testing.assert_close(back.tracks.translations, early.tracks.translations.double(), atol=1e-8, rtol=0)
    assert back.doubts == early.doubts and back.left_out == early.left_out and back.searched
    assert in_users_world(back).origin == (0.0, 0.0, 0.0)


def test_files_of_the_source_go_in_as_they_are(tmp_path: Path) -> None:
    write_pack(tiny_capture(), tmp_path / "x.pack", quality=60)
    source = read_pack(tmp_path / "x.pack")
    write_ncore(source, tmp_path / "x.zarr.itar")
    for a, b in zip(by_sensor(source.images), by_sensor(read_ncore(tmp_path / "x.zarr.itar").images), strict=True):
        one, other = a.encoded(), b.encoded()
        assert one is not None and other is not None and one.data == other.data


def test_tracks_that_reach_beyond_the_frames_end_with_them(tmp_path: Path) -> None:
    whole = tiny_capture()
    part = replace(whole, split=None, images=whole.images[:4], sweeps=whole.sweeps[:2])
    write_ncore(part, tmp_path / "x.zarr.itar")
    tracks = read_ncore(tmp_path / "x.zarr.itar").tracks
    last = max(f.time_end for f in (*part.images, *part.sweeps))
    assert float(tracks.times.max()) <= last + 0.11 < float(whole.tracks.times.max())
    assert len(set(tracks.ids)) == len(tracks)


def test_sensors_that_disagree_on_the_path_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"two sensors put the rig .* m apart at .* s, but NCore has one path"):
        write_ncore(make_capture(), tmp_path / "x.zarr.itar")
    assert not list(tmp_path.iterdir())


def wrong(change: Callable[[Sweep], dict[str, torch.Tensor]]) -> Capture:
    """The tiny capture with another first sweep."""
    frame = tiny_capture().sweeps[0]
    sweep = replace(frame, load=Loaded(replace(frame.load(), **change(frame.load()))))
    return replace(tiny_capture(), split=None, sweeps=(sweep, *tiny_capture().sweeps[1:]))


WRONG: dict[str, Callable[[Sweep], dict[str, torch.Tensor]]] = {
    "Rings go from 1 to 8": lambda sweep: {"rings": sweep.rings + 1},
    "a number that is not finite": lambda sweep: {"ranges": torch.full_like(sweep.ranges, torch.nan)},
    "have another length than 1": lambda sweep: {"directions": 2 * sweep.directions},
    "directions of a length other than 1": lambda sweep: {"directions": 1.001 * sweep.directions},
    "rays outside of the time of the capture": lambda sweep: {"times": sweep.times + 100},
    "fields of different lengths": lambda sweep: {"times": sweep.times[1:]},
}


@pytest.mark.parametrize("said", WRONG)
def test_rays_that_are_wrong_are_a_sentence(tmp_path: Path, said: str) -> None:
    with pytest.raises(CaptureError, match=said) as refused:
        write_ncore(wrong(WRONG[said]), tmp_path / "x.zarr.itar")
    assert "where the capture was made" in str(refused.value) and not list(tmp_path.iterdir())


def test_a_sensor_has_no_name_of_a_frame(tmp_path: Path) -> None:
    lidars = tuple(replace(lidar, name="world") for lidar in tiny_capture().lidars)
    with pytest.raises(CaptureError, match="a sensor is called 'world', as a frame of NCore is; give it another name"):
        write_ncore(replace(tiny_capture(), split=None, sweeps=(), lidars=lidars), tmp_path / "x.zarr.itar")


def test_what_is_not_ours_is_not_replaced(path: Path, tmp_path: Path) -> None:
    (tmp_path / "x.zarr.itar").write_bytes(b"mine" * 200)
    with pytest.raises(OutputError, match="was not written by nurec_lite"):
        write_ncore(tiny_capture(), tmp_path / "x.zarr.itar")
    few = replace(tiny_capture(), split=None, images=tiny_capture().images[:1], sweeps=())
    (tmp_path / "y.zarr.itar").write_bytes(path.read_bytes())
    write_ncore(few, tmp_path / "y.zarr.itar")
    assert len(read_ncore(tmp_path / "y.zarr.itar").images) == 1
    assert {file.name for file in tmp_path.iterdir()} == {"x.zarr.itar", "y.zarr.itar", "y.json"}


@pytest.mark.parametrize(
    ("out", "file"), [("a.pack", "a.ncore4.zarr.itar"), ("b", "b.ncore4.zarr.itar"), ("c.zarr.itar", "c.zarr.itar")]
)
def test_the_file_has_the_ending_of_the_format(out: str, file: str) -> None:
    assert ncore_path(out) == Path(file)


def test_pack_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pack(tiny_capture(), tmp_path / "x.pack")
    few = ["data=pack", f"data.root={tmp_path / 'x.pack'}", "data.frames=[0,6]", "format=ncore"]
    pack.work([*few, f"out={tmp_path / 'y.pack'}"])
    assert f"results in {tmp_path / 'y.ncore4.zarr.itar'}: " in capsys.readouterr().out
    again = tmp_path / "y.ncore4.zarr.itar"
    with pytest.raises(ConfigError, match="is the file that is read; name another file"):
        pack.work(["data=ncore", f"data.root={again}", "format=ncore", f"out={again}"])
    assert len(read_ncore(again).sweeps) == 6


@pytest.mark.parametrize("form", ["pack", "ncore"])
def test_few_moments_are_packed_without_a_split(tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_pack(tiny_capture(), tmp_path / "x.pack")
    few = ["data=pack", f"data.root={tmp_path / 'x.pack'}", "data.frames=[0,2]"]
    pack.work([*few, f"format={form}", f"out={tmp_path / 'few.pack'}"])
    said = capsys.readouterr().out
    assert "camera camera_0: 2 images" in said and "split" not in said and "results in" in said


def test_a_missing_library_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ncore.data.v4", None)
    with pytest.raises(
        CaptureError, match="format=ncore needs the package nvidia-ncore, which is not installed; run pip"
    ):
        write_ncore(tiny_capture(), tmp_path / "x.zarr.itar")
    assert not list(tmp_path.iterdir())


def test_angles_of_a_box_are_about_fixed_axes() -> None:
    """They are those of scipy's, and so of NCore's, lower-case xyz."""
    from scipy.spatial.transform import Rotation

    R = quat_to_matrix(
        rotvec_to_quat(torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    )
    theirs = Rotation.from_matrix(R.numpy()).as_euler("xyz")
    torch.testing.assert_close(euler_of(R), torch.from_numpy(theirs), atol=1e-9, rtol=0)
    torch.testing.assert_close(quat_to_matrix(turned(euler_of(R))), R, atol=1e-9, rtol=0)
