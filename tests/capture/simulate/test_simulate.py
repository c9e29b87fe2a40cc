# SPDX-License-Identifier: Apache-2.0
"""The simulator is deterministic, exact, and makes captures of any size; it makes the bundled capture."""

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rounding import assert_rounded_alike
from torch import Tensor

from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.simulate import simulate, simulate_depth
from nurec_lite.capture.simulate.__main__ import main
from nurec_lite.capture.simulate.drive import Drive, exposure
from nurec_lite.capture.simulate.noise import band, pulses
from nurec_lite.capture.simulate.packets import RayPackets, Spheres
from nurec_lite.capture.simulate.world import PATTERNS, ROLLING, SimulationConfig
from nurec_lite.capture.types import Capture, CaptureError, Frame, ImageFrame
from nurec_lite.geometry.camera import pixel_directions, shutter_fraction
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.se3 import interpolate_between, pose_matrix, quat_conjugate, quat_rotate
from nurec_lite.geometry.tracks import interpolate

PACK = Path(__file__).parents[3] / "data" / "street.pack"
SMALL = SimulationConfig(frames=2, width=48, height=25, samples=2, beams=8, azimuth_steps=60)
EXACT = replace(SMALL, range_noise_m=0.0, drop_rays=False)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small images gain little from threads, and threads crawl that wait for one another on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def pixel_poses(capture: Capture, frame: ImageFrame) -> tuple[Tensor, Tensor]:  # T_world_cam [H, W, 4, 4], times [H, W]
    camera = capture.camera(frame.sensor)
    v, u = torch.meshgrid(torch.arange(camera.height) + 0.5, torch.arange(camera.width) + 0.5, indexing="ij")
    fraction = shutter_fraction(camera, torch.stack([u, v], dim=-1).double())
    T = pose_matrix(*interpolate_between(frame.T_world_rig_start, frame.T_world_rig_end, fraction)) @ camera.T_rig_cam
    return T, frame.time_start + fraction * (frame.time_end - frame.time_start)


def pixel_points(capture: Capture, frame: ImageFrame) -> tuple[Tensor, Tensor]:  # [H, W, 3] in the world, times [H, W]
    T, times = pixel_poses(capture, frame)
    directions = pixel_directions(capture.camera(frame.sensor), torch.float64)
    at_sensor = directions * simulate_depth(frame).clamp(max=1e6)[..., None]
    return (T[..., :3, :3] @ at_sensor[..., None])[..., 0] + T[..., :3, 3], times


def sweep_points(capture: Capture, frame: Frame, sweep: Sweep) -> tuple[Tensor, Tensor]:  # origins and points [R, 3]
    fraction = (sweep.times - frame.time_start) / (frame.time_end - frame.time_start)
    poses = pose_matrix(*interpolate_between(frame.T_world_rig_start, frame.T_world_rig_end, fraction))
    T = poses @ capture.lidars[0].T_rig_lidar
    at_sensor = sweep.directions.double() * sweep.ranges.double()[:, None]
    return T[:, :3, 3], (T[:, :3, :3] @ at_sensor[..., None])[..., 0] + T[:, :3, 3]


def inside(capture: Capture, points: Tensor, times: Tensor, slack: float) -> Tensor:  # [n, 3], [n] -> [n, K]
    poses = interpolate(capture.tracks, times)
    local = quat_rotate(quat_conjugate(poses.quaternions), points[:, None] - poses.translations)
    return ((local.abs() <= capture.tracks.sizes / 2 + slack).all(-1)) & poses.valid


# Determinism


def test_equal_seeds_give_equal_bits() -> None:
    first, second = Drive(SMALL, "cpu"), Drive(SMALL, "cpu")
    assert torch.equal(first.image(1, 1), second.image(1, 1))
    a, b = first.sweep(1), second.sweep(1)
    assert all(torch.equal(getattr(a, name), getattr(b, name)) for name in Sweep.__dataclass_fields__)


def test_frames_do_not_depend_on_the_order_of_loading() -> None:
    forwards, backwards = Drive(SMALL, "cpu"), Drive(SMALL, "cpu")
    images = [forwards.image(0, i) for i in (0, 1)]
    assert all(torch.equal(images[i], backwards.image(0, i)) for i in (1, 0))


def test_another_seed_is_another_street() -> None:
    other = Drive(replace(SMALL, seed=1), "cpu")
    assert (Drive(SMALL, "cpu").image(0, 0).float() - other.image(0, 0).float()).abs().mean() > 10


def test_loaders_pickle_and_are_small() -> None:
    frame = simulate(SMALL).images[0]
    data = pickle.dumps(frame.load)
    assert len(data) < 2000
    assert torch.equal(pickle.loads(data)(), frame.load())


# Exactness


@pytest.mark.parametrize("pattern", PATTERNS)
def test_ground_is_where_the_closed_form_says(pattern: str) -> None:
    capture = simulate(replace(EXACT, pattern=pattern))
    frame = capture.sweeps[1]
    sweep = frame.load()
    origins, points = sweep_points(capture, frame, sweep)
    on_ground = sweep.returned & (points[:, 2] < 0.01)
    assert on_ground.float().mean() > 0.1
    down = (origins - points)[:, 2] / sweep.ranges
    expected = origins[:, 2] / down
    torch.testing.assert_close(sweep.ranges[on_ground].double(), expected[on_ground].double(), atol=1e-4, rtol=1e-5)
    assert points[sweep.returned, 2].min() > -1e-4


@pytest.mark.parametrize(("readout_s", "shutter"), [(0.0, ROLLING[0]), *((0.1, name) for name in ROLLING)])
def test_each_pixel_is_cast_from_the_pose_at_its_time(readout_s: float, shutter: str) -> None:
    capture = simulate(replace(EXACT, readout_s=readout_s, shutter=shutter))
    points, _ = pixel_points(capture, capture.images[0])
    lowest = points[-4:, :, 2]
    ground = lowest.abs() < 1e-6  # holds only where rig pose, row time and mounting all agree
    assert ground.float().mean() > 0.5
    assert lowest.min() > -1e-6


def test_rolling_shutter_shears_what_we_pass() -> None:
    surround = replace(EXACT, cameras=6, frames=1, moving_cars=0)
    rolling, frozen = (simulate(replace(surround, readout_s=s)).images[1] for s in (0.1, 0.0))
    difference = (simulate_depth(rolling).clamp(max=99) - simulate_depth(frozen).clamp(max=99)).abs()
    ends = torch.cat([difference[0], difference[-1]]).median()
    assert ends > 20 * difference[SMALL.height // 2].median()  # the middle row is read in the middle of the exposure
    assert ends > 0.01
    assert rolling.time_end - rolling.time_start == pytest.approx(0.1)


def test_lidar_times_run_clockwise_from_behind() -> None:
    capture = simulate(EXACT)
    frame, sweep = capture.sweeps[0], capture.sweeps[0].load()
    azimuth = torch.atan2(sweep.directions[:, 1], sweep.directions[:, 0])
    fraction = (sweep.times - frame.time_start) / (frame.time_end - frame.time_start)
    torch.testing.assert_close(fraction, capture.lidars[0].spin_fraction(azimuth.double()), atol=1e-6, rtol=0)
    assert capture.images[0].time_mid == pytest.approx(frame.time_mid)


def test_points_on_cars_lie_in_their_boxes() -> None:
    capture = simulate(replace(EXACT, azimuth_steps=360, beams=16))
    frame = capture.sweeps[0]
    sweep = frame.load()
    _, points = sweep_points(capture, frame, sweep)
    above_ground = points[:, 2:] > 0.12
    roomy = inside(capture, points, sweep.times, 0.10) & above_ground  # all points near a box
    exact = inside(capture, points, sweep.times, 2e-4)
    assert exact[:, 0].sum() > 10  # the car ahead
    assert torch.equal(roomy & ~exact, torch.zeros_like(roomy))


def test_moving_cars_move_and_keyframes_cover_the_drive() -> None:
    config = SimulationConfig()
    tracks = simulate(config).tracks
    paths = []
    for k in range(len(tracks)):
        rows = slice(tracks.offsets[k], tracks.offsets[k + 1])
        paths.append(tracks.translations[rows].diff(dim=0).norm(dim=1).sum().item())
        assert tracks.times[rows][0] <= -0.5 / config.rate_hz + 1e-9
        assert tracks.times[rows][-1] >= config.duration + 0.5 / config.rate_hz - 1e-9
    assert sum(path > 10 for path in paths) == config.moving_cars == 3
    assert len(tracks) == config.moving_cars + config.parked_cars
    heading = 2 * torch.atan2(tracks.quaternions[:, 3], tracks.quaternions[:, 0])
    turn = heading[tracks.offsets[2] : tracks.offsets[3]]
    assert (turn[-1] - turn[0]).abs() > 1.0  # the third turns off


def test_cars_never_touch_on_a_long_drive() -> None:
    config = SimulationConfig(frames=300, moving_cars=12, parked_cars=40)
    capture = simulate(config)
    corners = torch.tensor([[x, y, 0.0] for x in (-0.5, 0.0, 0.5) for y in (-0.5, 0.5)], dtype=torch.float64)
    times = torch.arange(0, config.duration, 0.2, dtype=torch.float64)
    poses = interpolate(capture.tracks, times)
    local = corners * capture.tracks.sizes[:, None]  # [K, 6, 3]
    world = quat_rotate(poses.quaternions[:, :, None], local) + poses.translations[:, :, None]
    for k in range(config.moving_cars):
        hits = inside(capture, world[:, k].reshape(-1, 3) * torch.tensor([1, 1, 0.0]) + torch.tensor([0, 0, 0.7]),
                      times.repeat_interleave(6), 0.0)  # fmt: skip
        hits[:, k] = False
        assert not hits.any(), f"car {k} touches {hits.any(0).nonzero().tolist()}"


# Sensors


def test_returns_go_missing() -> None:
    sweep = simulate(SMALL).sweeps[0].load()
    missing = ~sweep.returned
    assert 0.02 < missing.float().mean() < 0.6
    assert sweep.ranges[missing].abs().max() == 0 and sweep.intensities[missing].abs().max() == 0
    assert sweep.ranges[sweep.returned].min() > 0.5 and sweep.ranges.max() < SMALL.max_range + 0.1
    assert sweep.intensities[sweep.returned].min() > 0 and sweep.intensities.max() <= 1
    assert len(simulate(EXACT).sweeps[0].load().select(missing)) > 0
    assert simulate(EXACT).sweeps[0].load().returned.sum() > sweep.returned.sum()  # some were dropped by chance


def test_range_noise_has_the_stated_deviation() -> None:
    noisy = simulate(replace(EXACT, range_noise_m=0.02)).sweeps[0].load()
    exact = simulate(EXACT).sweeps[0].load()
    assert 0.015 < (noisy.ranges - exact.ranges)[exact.returned].std() < 0.025


def test_exposure_differs_between_cameras() -> None:
    config = replace(SMALL, image_noise=0.0)
    plain, exposed = (simulate(replace(config, exposure_spread=s)).images for s in (0.0, 0.12))
    gains = []
    for camera in (0, 1):
        reference, seen = plain[camera].load().double(), exposed[camera].load().double()
        gain, offset = (torch.tensor(values, dtype=torch.float64) for values in exposure(config, camera))
        assert ((gain - 1).abs() <= 0.12).all()
        expected = (reference * gain + 255 * offset).clamp(0, 255)
        assert (seen - expected)[reference < 254].abs().max() <= 1.2  # two roundings
        gains.append(gain)
    assert (gains[0] - gains[1]).abs().max() > 0.01
    assert gains[0].std() > 0


@pytest.mark.parametrize(
    ("cameras", "width", "height", "beams", "azimuth_steps", "frames"),
    [(1, 31, 17, 5, 33, 2), (3, 17, 31, 1, 7, 1), (2, 1, 1, 2, 1, 1)],
)
def test_any_size(cameras: int, width: int, height: int, beams: int, azimuth_steps: int, frames: int) -> None:
    config = SimulationConfig(
        cameras=cameras, width=width, height=height, beams=beams, azimuth_steps=azimuth_steps, frames=frames,
        samples=1, moving_cars=1, parked_cars=0,
    )  # fmt: skip
    capture = simulate(config)
    assert len(capture.images) == cameras * frames and len(capture.sweeps) == frames
    image, sweep = capture.images[-1].load(), capture.sweeps[-1].load()
    assert image.shape == (height, width, 3) and image.dtype == torch.uint8
    assert len(sweep) == beams * azimuth_steps and sweep.rings.max() == beams - 1
    assert simulate_depth(capture.images[0]).shape == (height, width)


def test_lens_distortion_bends_the_image() -> None:
    straight, bent = (Drive(replace(EXACT, distortion=d), "cpu") for d in ((), (-0.3, 0.1, 0.0, 0.0, 0.0)))
    capture = simulate(replace(EXACT, distortion=(-0.3, 0.1, 0.0, 0.0, 0.0)))
    assert not torch.equal(straight.image(0, 0), bent.image(0, 0))
    points, _ = pixel_points(capture, capture.images[0])
    assert (points[-3:, :, 2].abs() < 1e-6).float().mean() > 0.5


def test_a_street_too_short_for_the_parked_cars_is_an_error() -> None:
    with pytest.raises(CaptureError, match="room for"):
        simulate(replace(SMALL, parked_cars=1000))


def test_a_capture_has_at_least_one_of_everything() -> None:
    with pytest.raises(CaptureError, match="beams is 0"):
        SimulationConfig(beams=0)


def test_patterns_are_averaged_over_their_footprint() -> None:
    x = torch.linspace(-3, 7, 401, dtype=torch.float64)
    sharp = (torch.remainder(x, 2.0) - 1.0).abs() < 0.5
    edge = (torch.remainder(x, 1.0) - 0.5).abs() < 0.01
    assert torch.equal((pulses(x, 2.0, 0.5, torch.full_like(x, 1e-3)) > 0.5)[~edge], sharp[~edge])
    torch.testing.assert_close(pulses(x, 2.0, 0.5, torch.full_like(x, 2.0)), torch.full_like(x, 0.5))
    assert band(x, 0.0, 1.0, torch.full_like(x, 2.0)).max() == pytest.approx(0.5)


@pytest.mark.gpu
def test_gpu_agrees_with_cpu() -> None:
    cpu, gpu = Drive(SMALL, "cpu"), Drive(SMALL, "cuda")
    assert torch.equal(gpu.image(0, 1), gpu.image(0, 1))
    assert ((cpu.image(0, 1).int() - gpu.image(0, 1).int()).abs() <= 1).float().mean() > 0.99
    a, b = cpu.sweep(1), gpu.sweep(1)
    same = a.returned == b.returned
    assert same.float().mean() > 0.99
    assert (a.ranges - b.ranges)[same].abs().median() < 1e-4


# The command line and the bundled capture


def test_command_line_writes_a_pack(tmp_path: Path) -> None:
    out = tmp_path / "tiny.pack"
    main(["--out", str(out), "--device", "cpu", "--frames", "1", "--width", "8", "--height", "4", "--beams", "2",
          "--azimuth-steps", "9", "--elevation-deg", "-10", "5", "--no-drop-rays", "--parked-cars", "1"])  # fmt: skip
    capture = read_pack(out)
    assert len(capture.images) == 2 and capture.images[0].load().shape == (4, 8, 3)
    assert len(capture.tracks) == 4


def held_out(capture: Capture) -> list[ImageFrame]:
    split = capture.with_split("interp").split
    assert split is not None
    return [capture.images[i] for i in split.test_images]


def test_bundled_capture_is_small() -> None:
    assert PACK.stat().st_size < 8e6


def test_bundled_capture_is_what_the_simulator_makes() -> None:
    made, stored = simulate(SimulationConfig()), read_pack(PACK)
    assert len(stored.images) == len(made.images) and len(stored.sweeps) == len(made.sweeps)
    assert_rounded_alike(made.tracks.translations, stored.tracks.translations)
    assert_rounded_alike(made.images[7].T_world_rig_end, stored.images[7].T_world_rig_end)
    difference = (stored.images[49].load().int() - made.images[49].load().int()).abs()
    assert (difference > 1).float().mean() < 0.002  # another processor may round elsewhere
    a, b = stored.sweeps[24].load(), made.sweeps[24].load()
    assert (a.returned != b.returned).float().mean() < 0.002
    both = a.returned & b.returned
    assert ((a.ranges - b.ranges)[both].abs() < 2e-3).float().mean() > 0.998


def test_a_constant_image_scores_little_on_the_bundled_capture() -> None:
    images = torch.stack([frame.load() for frame in held_out(read_pack(PACK))]).double() / 255
    error = (images - images.mean(dim=(1, 2), keepdim=True)).square().mean(dim=(1, 2, 3))
    psnr = -10 * error.log10()
    assert psnr.mean() < 13.5 and psnr.max() < 14


def test_moving_cars_are_clearly_visible_in_held_out_images() -> None:
    capture = simulate(SimulationConfig())
    seen = torch.zeros(3, dtype=torch.int64)
    for frame in held_out(capture):
        if frame.sensor != "camera_0":
            continue
        points, times = pixel_points(capture, frame)
        mask = inside(capture, points.view(-1, 3), times.view(-1), 1e-6)[:, :3].view(*times.shape, 3)
        width, height = mask.any(0).sum(0), mask.any(1).sum(0)
        seen += (width >= 20) & (height >= 12)
    assert (seen >= 2).all(), f"frames where each moving car fills 20x12 pixels: {seen.tolist()}"


# ---- the command line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--frames", "0"], "frames is 0, but must be at least 1"),
        (["--frames", "99999999"], "frames is 99999999, but must lie between 1 and 100000"),
        (["--speed", "nan"], "speed is nan, but must lie between 0 and 100"),
        (["--rate-hz", "0"], "rate_hz is 0.0, but must lie between 0.01 and 10000"),
        (["--elevation-deg", "5", "inf"], "elevation_deg is (5.0, inf), but must lie between -90 and 90"),
        (["--device", "abacus"], "device=abacus is unknown; use auto, cpu, cuda or cuda:N"),
        (["--quality", "0"], "quality is 0, but must lie between 1 and 100"),
    ],
)
def test_a_drive_that_cannot_be_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--out", str(tmp_path / "drive.pack"), "--device", "cpu", "--width", "8", "--height", "8", *arguments])
    error = capsys.readouterr().err
    assert ended.value.code == 2 and error.startswith("error: ") and said in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_no_solid_that_a_ray_meets_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets are tested only against solids near their rays: images and sweeps equal those of tests against all solids."""
    config = replace(SMALL, moving_cars=4, width=64, height=40)
    few = Drive(config, "cpu", kernels=False)
    found = few.image(0, 1), few.sweep(1)

    def all_pairs(self: RayPackets, spheres: Spheres) -> tuple[Tensor, Tensor]:
        return torch.cartesian_prod(torch.arange(self.count), torch.arange(len(spheres.reach))).unbind(1)

    monkeypatch.setattr(RayPackets, "pairs", all_pairs)
    every = Drive(config, "cpu", kernels=False)
    assert torch.equal(found[0], every.image(0, 1)) and torch.equal(found[1].ranges, every.sweep(1).ranges)


def test_a_waiting_car_stops_and_goes_on_and_exposure_swings() -> None:
    config = replace(SMALL, frames=150, moving_cars=4, exposure_drift=0.3)
    tracks = Drive(config, "cpu").fleet.tracks
    speeds = tracks.translations[tracks.offsets[3] : tracks.offsets[4]].diff(dim=0).norm(dim=1) * config.rate_hz
    still = (speeds < 0.01).nonzero().flatten()
    assert 40 < len(still) < 60 and speeds[still[-1] + 30 :].min() > 5.9
    assert speeds.diff().abs().max() < 0.3
    gains = [exposure(config, 0, 0.1 * i)[0][1] for i in range(150)]
    assert 0.55 < max(gains) - min(gains) < 0.75 and exposure(replace(config, exposure_drift=0.0), 0, 3.0) == exposure(
        SMALL, 0
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="compares a GPU with the CPU")
def test_a_gpu_makes_the_same_drive_up_to_rounding() -> None:
    """At an edge a ray may fall on either side: one pixel in a thousand may differ by more than a step, and one return in a thousand."""
    config = replace(SMALL, width=192, height=96, beams=32, azimuth_steps=400)
    gpu, cpu = Drive(config, "cuda"), Drive(config, "cpu")
    image, sweep = gpu.image(0, 1), gpu.sweep(1)
    assert torch.equal(image, Drive(config, "cuda").image(0, 1))
    assert ((image.int() - cpu.image(0, 1).int()).abs() > 1).float().mean() < 1e-3
    there = cpu.sweep(1)
    assert ((sweep.ranges - there.ranges).abs() > 1e-3).float().mean() < 1e-3
