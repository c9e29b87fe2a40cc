# SPDX-License-Identifier: Apache-2.0
"""Sensors of a simulated drive, their motion, and their images and sweeps."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.capture.simulate import compiled
from nurec_lite.capture.simulate.bonnet import with_bonnet
from nurec_lite.capture.simulate.cast import Rays, Surface, World, build_world, cast, surface
from nurec_lite.capture.simulate.free_rays import lidar_of, neighbours_first, rays_of
from nurec_lite.capture.simulate.noise import hashed, normal_field, uniform, uniform_field
from nurec_lite.capture.simulate.paint import SUN, albedo, cabin_glass, lit, sky
from nurec_lite.capture.simulate.solids import Material, car
from nurec_lite.capture.simulate.traffic import Traffic, ego_pose, parked_solids, traffic
from nurec_lite.capture.simulate.world import SimulationConfig, scenery
from nurec_lite.geometry.camera import SIDEWAYS, Camera, shutter_fraction, unproject
from nurec_lite.geometry.free_lidar import bands_of
from nurec_lite.geometry.lens import ANGULAR
from nurec_lite.geometry.lidar import Lidar, Sweep, unit_directions
from nurec_lite.geometry.se3 import interpolate_between, pose_matrix, quat_multiply, quat_to_matrix
from nurec_lite.geometry.tracks import interpolate

_CHUNK = {"cpu": 2**16, "cuda": 2**23}  # rays cast together: this bounds the memory
_SIDE = 8  # pixels (or rays of a sweep) along either side of a packet
_IMAGE_NOISE, _RANGE_NOISE, _DROP, _GAIN, _OFFSET, _DRIFT = 101, 102, 103, 104, 105, 106  # keys of the random fields

# Sensors and their motion


def _mounting(x: float, y: float, z: float, axes: Tensor, yaw: float = 0.0) -> Tensor:  # [4, 4]
    T = torch.eye(4, dtype=torch.float64)
    c, s = math.cos(yaw), math.sin(yaw)
    T[:3, :3] = torch.tensor([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64) @ axes
    T[:3, 3] = torch.tensor([c * x - s * y, s * x + c * y, z], dtype=torch.float64)
    return T


def _cameras(config: SimulationConfig) -> tuple[Camera, ...]:
    """Cameras: two look ahead from half a metre apart; other numbers stand in a ring and look outwards, the first ahead."""
    axes = torch.tensor([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]], dtype=torch.float64)
    half = math.radians(config.hfov_deg) / 2
    focal = 0.5 * config.width / (half if config.lens in ANGULAR else math.tan(half))
    distortion = config.distortion or ((0.0,) * 6 if config.lens == "ftheta" else ())
    cameras = []
    for i in range(config.cameras):
        y, yaw = (0.25 - 0.5 * i, 0.0) if config.cameras == 2 else (0.0, 2 * math.pi * i / config.cameras)
        camera = Camera(
            f"camera_{i}", config.width, config.height, focal, focal, config.width / 2, config.height / 2,
            T_rig_cam=_mounting(0.8, y, 1.55, axes, yaw), distortion=distortion,
            shutter=config.shutter if config.readout_s > 0 else "global", lens=config.lens,
        )  # fmt: skip
        cameras.append(camera)
    return tuple(cameras)


def _lidar(config: SimulationConfig) -> Lidar:
    mount = _mounting(0.0, 0.0, 1.85, torch.eye(3, dtype=torch.float64))
    if config.pattern != "spinning":
        return lidar_of(config, mount)
    low, high = (math.radians(angle) for angle in config.elevation_deg)
    return Lidar(
        "lidar", mount,
        elevations=torch.linspace(low, high, config.beams, dtype=torch.float64), max_range=config.max_range,
        azimuth_steps=config.azimuth_steps,
    )  # fmt: skip


def frame_span(config: SimulationConfig, index: int, length_s: float) -> tuple[float, float, Tensor, Tensor]:
    """Start and end in seconds, and the rig's poses [4, 4] then, of a frame with the trigger in its middle."""
    trigger = (index + 0.5) / config.rate_hz
    times = torch.tensor([trigger - length_s / 2, trigger + length_s / 2], dtype=torch.float64)
    position, (roll, pitch, yaw) = ego_pose(config, times)[0], ego_pose(config, times)[1].unbind(-1)
    zero = torch.zeros_like(yaw)
    q_yaw = torch.stack([torch.cos(yaw / 2), zero, zero, torch.sin(yaw / 2)], dim=-1)
    q_pitch = torch.stack([torch.cos(pitch / 2), zero, torch.sin(pitch / 2), zero], dim=-1)
    q_roll = torch.stack([torch.cos(roll / 2), torch.sin(roll / 2), zero, zero], dim=-1)
    poses = pose_matrix(quat_multiply(q_yaw, quat_multiply(q_pitch, q_roll)), position)
    return times[0].item(), times[1].item(), poses[0], poses[1]


# Rays


@dataclass(frozen=True)
class Moving:
    """Poses at T times: world from sensor, and world from each of K owners. float64."""

    rotation: Tensor  # [T, 3, 3]
    position: Tensor  # [T, 3]
    owner_rotations: Tensor  # [T, K, 3, 3]
    owner_positions: Tensor  # [T, K, 3]

    def rays(
        self,
        directions: Tensor,  # [S, r, 3] unit, sensor frame
        slots: Tensor,  # [S, r] which of the T times
    ) -> Rays:
        rotated = (self.rotation[slots] * directions[..., None, :]).sum(-1)
        return Rays(self.position[slots], rotated, slots, self.owner_rotations, self.owner_positions)

    def tables(self, dtype: torch.dtype) -> list[Tensor]:
        """The `motion` of the kernels: rotation and position of the sensor, rotations and positions of the owners."""
        owners = self.owner_rotations.to(dtype).contiguous(), self.owner_positions.to(dtype).contiguous()
        return [self.rotation.contiguous(), self.position.contiguous(), *owners]


def over_packets(
    height: int,
    width: int,
    device: torch.device,
    look: Callable[[Tensor, Tensor], Tensor],  # rows and columns [s, _SIDE^2] -> values [s, _SIDE^2, C]
    rays: int = 1,  # that `look` casts for a place of the grid
) -> Tensor:  # [height, width, C]
    """Cuts a grid into squares, one a packet. Squares that reach over its edge repeat the last row or column."""
    chunk = max(1, _CHUNK[device.type] // (rays * _SIDE**2))  # packets of a chunk
    down, across = math.ceil(height / _SIDE), math.ceil(width / _SIDE)
    packet = torch.arange(down * across, device=device)[:, None]
    inner = torch.arange(_SIDE**2, device=device)
    rows = (packet // across * _SIDE + inner // _SIDE).clamp(max=height - 1)
    columns = (packet % across * _SIDE + inner % _SIDE).clamp(max=width - 1)
    values = torch.cat([look(r, c) for r, c in zip(rows.split(chunk), columns.split(chunk), strict=True)])
    squares = values.view(down, across, _SIDE, _SIDE, -1).transpose(1, 2)
    return squares.reshape(down * _SIDE, across * _SIDE, -1)[:height, :width]


def pixel_rays(
    camera: Camera,
    rows: Tensor,  # [s, p] of pixels
    columns: Tensor,  # [s, p]
    samples: int,
) -> Tensor:  # [s, p samples^2, 3] float64, unit, camera frame: a regular grid of rays in each pixel
    grid = (torch.arange(samples, dtype=torch.float64, device=rows.device) + 0.5) / samples
    v = (rows[..., None, None] + grid[:, None]).expand(-1, -1, samples, samples)
    u = (columns[..., None, None] + grid).expand(-1, -1, samples, samples)
    return unproject(camera, torch.stack([u, v], dim=-1)).flatten(1, 3)


def pixel_lines(camera: Camera, rows: Tensor, columns: Tensor) -> Tensor:  # [...] each
    """Row of each pixel, or its column if the shutter runs sideways: pixels of one line are read at the same time."""
    return columns if camera.shutter in SIDEWAYS else rows


def exposure(
    config: SimulationConfig,
    camera: int,
    time: float = 0.0,  # seconds
) -> tuple[tuple[float, ...], tuple[float, ...]]:  # gains and offsets of the three channels
    """Gains of 1 +- exposure_spread, most of it common to the channels; offsets a tenth of that. All gains of a camera swing together
    by exposure_drift in 8 to 14 seconds."""
    spread, seed = config.exposure_spread, config.seed
    common = uniform(-0.7, 0.7, seed, _GAIN, camera, 3)
    period, phase = uniform(8, 14, seed, _DRIFT, camera, 0), uniform(0, 2 * math.pi, seed, _DRIFT, camera, 1)
    swing = 1 + config.exposure_drift * math.sin(2 * math.pi * time / period + phase)
    gains = tuple(swing * (1 + spread * (common + uniform(-0.3, 0.3, seed, _GAIN, camera, c))) for c in range(3))
    offsets = tuple(0.1 * spread * uniform(-1, 1, seed, _OFFSET, camera, c) for c in range(3))
    return gains, offsets


# Images and sweeps


class Drive:
    """The street and the cars of one configuration on one device. Kernels cast the rays where they can be compiled, else torch does,
    and for cameras with a bonnet: the same up to rounding."""

    def __init__(
        self, config: SimulationConfig, device: str, kernels: bool = True, fleet: Traffic | None = None
    ) -> None:
        self.config, self.device = config, torch.device(device)
        self.kernels = kernels and compiled.available()
        self.cameras, self.lidar, self.fleet = _cameras(config), _lidar(config), fleet or traffic(config)
        moving = range(self.fleet.moving)
        self._solids = [car(self.fleet.models[k], self.fleet.paints[k]) for k in moving]
        self._solids.append(scenery(config) + parked_solids(self.fleet))
        self._tracks = self.fleet.tracks.to(self.device, torch.float64)
        self._worlds: dict[torch.dtype, World] = {}
        self._tables: dict[torch.dtype, list[Tensor]] = {}

    def world(self, dtype: torch.dtype) -> World:
        if dtype not in self._worlds:
            self._worlds[dtype] = build_world(self._solids, dtype, self.device)
        return self._worlds[dtype]

    def tables(self, dtype: torch.dtype) -> list[Tensor]:
        if dtype not in self._tables:
            self._tables[dtype] = compiled.tables(self.world(dtype))
        return self._tables[dtype]

    def _owners(self, times: Tensor) -> tuple[Tensor, Tensor]:  # [T] -> rotations [T, K, 3, 3], positions [T, K, 3]
        """Poses of the moving cars, and last the world's own: the identity."""
        rotations = torch.eye(3, dtype=torch.float64, device=self.device).expand(len(times), 1, 3, 3)
        positions = torch.zeros(len(times), 1, 3, dtype=torch.float64, device=self.device)
        if self.fleet.moving:
            poses = interpolate(self._tracks, times.to(self.device))
            moving = quat_to_matrix(poses.quaternions[:, : self.fleet.moving])
            rotations = torch.cat([moving, rotations], dim=1)
            positions = torch.cat([poses.translations[:, : self.fleet.moving], positions], dim=1)
        return rotations, positions

    def _sensor(self, span: tuple[float, float, Tensor, Tensor], T_rig_sensor: Tensor, fraction: Tensor) -> Moving:
        """Poses of a sensor, and of all owners, at T fractions of a frame."""
        start, end, T0, T1 = span
        T = pose_matrix(*interpolate_between(T0, T1, fraction)) @ T_rig_sensor
        rotations, positions = self._owners(start + fraction * (end - start))
        return Moving(T[:, :3, :3].to(self.device), T[:, :3, 3].to(self.device), rotations, positions)

    # Cameras

    def _camera_motion(self, camera: Camera, index: int) -> Moving:
        count = camera.width if camera.shutter in SIDEWAYS else camera.height
        middles = (torch.arange(count) + 0.5).double()[:, None].expand(-1, 2)  # of rows, or of columns
        span = frame_span(self.config, index, self.config.readout_s)
        return self._sensor(span, camera.T_rig_cam, shutter_fraction(camera, middles))

    def image(self, camera_index: int, index: int) -> Tensor:  # [H, W, 3] uint8
        camera, samples = self.cameras[camera_index], self.config.samples
        motion = self._camera_motion(camera, index)
        if self.kernels and not self.config.bonnet:
            return self._pixels(camera_index, index, motion).cpu()

        def look(rows: Tensor, columns: Tensor) -> Tensor:  # all rays of a pixel are cast at the pixel's own time
            slots = pixel_lines(camera, rows, columns).repeat_interleave(samples**2, dim=1)
            rays = motion.rays(pixel_rays(camera, rows, columns, samples), slots).to(torch.float32)
            return self._radiance(rays, 1 / (camera.fx * samples)).clamp(0, 1).unflatten(1, (-1, samples**2)).mean(2)

        picture = over_packets(camera.height, camera.width, self.device, look, samples**2)
        picture = with_bonnet(picture, self.config.bonnet) if self.config.bonnet else picture
        return self._expose(picture, camera_index, index).cpu()

    def _pixels(self, camera_index: int, index: int, motion: Moving) -> Tensor:  # [H, W, 3] uint8
        """The image by a kernel, some rows at a time."""
        camera, samples, seed = self.cameras[camera_index], self.config.samples, self.config.seed
        tone = self._tone(camera_index, index)
        columns, rows_of_all = (torch.arange(n, device=self.device) for n in (camera.width, camera.height))
        together = max(1, _CHUNK[self.device.type] // (camera.width * samples**2))
        parts = []
        for rows in rows_of_all.split(together):
            down, across = torch.meshgrid(rows, columns, indexing="ij")
            directions = pixel_rays(camera, down, across, samples).view(-1, samples**2, 3)
            parts.append(
                torch.ops.nurec_lite.simulate_pixels(
                    self.tables(torch.float32), motion.tables(torch.float32), directions, pixel_lines(camera, down, across).flatten(),
                    1 / (camera.fx * samples), seed, tone, int(rows[0]) * camera.width,
                )
            )  # fmt: skip
        return torch.cat(parts).view(camera.height, camera.width, 3)

    def _tone(
        self, camera: int, index: int
    ) -> Tensor:  # [8] int32: gains, offsets and noise as floats, hash of the noise's keys
        config, (gains, offsets) = self.config, self._exposure(camera, index)
        values = torch.tensor([*gains, *offsets, config.image_noise], dtype=torch.float32).view(torch.int32)
        prefix = hashed(config.seed, _IMAGE_NOISE, camera, index)
        return torch.cat([values, torch.tensor([prefix]).to(torch.int32)]).to(self.device)

    def _exposure(self, camera: int, index: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Gains and offsets of an image's channels, in the middle of its period."""
        return exposure(self.config, camera, (index + 0.5) / self.config.rate_hz)

    def _radiance(self, rays: Rays, spread: float) -> Tensor:  # [S, r, 3] linear
        world, seed = self.world(torch.float32), self.config.seed
        distance, row = cast(world, rays)
        hit, s = surface(world, rays, distance, row, spread)
        colour = sky(rays.directions.flatten(0, 1), seed).view_as(rays.directions)
        colour[hit] = lit(s, albedo(s, seed), self._sunlit(world, rays, hit, s), seed)
        return colour

    def _sunlit(self, world: World, rays: Rays, hit: Tensor, s: Surface) -> Tensor:  # [n] 1 where the sun reaches
        sun = F.normalize(s.point.new_tensor(SUN), dim=0)
        start, facing = torch.zeros_like(rays.origins), torch.zeros_like(hit)
        start[hit], facing[hit] = s.point + 0.02 * s.normal, (s.normal * sun).sum(1) > 0
        some = facing.any(1)
        if not some.any():
            return torch.zeros_like(s.distance)
        start, used = start[some], facing[some][..., None]
        middle = (start * used).sum(1, keepdim=True) / used.sum(1, keepdim=True)
        start = torch.where(used, start, middle)  # rays that do not matter must not widen the beam
        to_sun = Rays(start, sun.expand_as(start), rays.slots[some], rays.rotations, rays.positions)
        free = torch.zeros_like(facing)
        free[some] = torch.isinf(cast(world, to_sun, parallel=True)[0])
        return (free & facing)[hit].to(s.distance.dtype)

    def _expose(self, picture: Tensor, camera: int, index: int) -> Tensor:  # [H, W, 3] linear -> uint8
        """Exposes colours: gamma 2.2, the camera's gains and offsets, noise."""
        config, (gains, offsets) = self.config, self._exposure(camera, index)
        encoded = picture.pow(1 / 2.2) * picture.new_tensor(gains) + picture.new_tensor(offsets)
        pixel = torch.arange(picture.numel(), device=self.device).view(picture.shape)
        noise = normal_field(config.seed, _IMAGE_NOISE, camera, index, pixel).float()
        return ((encoded + config.image_noise * noise).clamp(0, 1) * 255).round().to(torch.uint8)

    def depth(self, camera_index: int, index: int) -> Tensor:  # [H, W] float64
        camera = self.cameras[camera_index]
        motion, world = self._camera_motion(camera, index), self.world(torch.float64)

        def look(rows: Tensor, columns: Tensor) -> Tensor:
            rays = motion.rays(pixel_rays(camera, rows, columns, 1), pixel_lines(camera, rows, columns))
            return cast(world, rays)[0][..., None]

        return over_packets(camera.height, camera.width, self.device, look)[..., 0].cpu()

    # Lidar

    def sweep(self, index: int) -> Sweep:
        if not self.lidar.spins:
            return self._free_sweep(index)
        config = self.config
        columns = (torch.arange(config.azimuth_steps, dtype=torch.float64) + 0.5) / config.azimuth_steps
        span = frame_span(config, index, 1 / config.rate_hz)
        motion = self._sensor(span, self.lidar.T_rig_lidar, columns)
        azimuth = math.pi - 2 * math.pi * columns[:, None].expand(-1, config.beams)
        angles = torch.stack([azimuth, self.lidar.elevations.expand_as(azimuth)], dim=-1)
        directions = unit_directions(angles).float()  # [A, B, 3], as the sweep will hold them
        exact = directions.to(self.device, torch.float64)

        def look(rows: Tensor, columns: Tensor) -> Tensor:
            return self._echo(motion.rays(exact[rows, columns], rows))

        if self.kernels:
            slots = torch.arange(config.azimuth_steps, device=self.device).repeat_interleave(config.beams)
            echoes = self._echoes(motion, exact.view(-1, 3), slots)
        else:
            echoes = over_packets(config.azimuth_steps, config.beams, self.device, look)
        times = (span[0] + columns / config.rate_hz).repeat_interleave(config.beams)
        rings = torch.arange(config.beams).repeat(config.azimuth_steps)
        return self._received(directions.reshape(-1, 3), echoes.reshape(-1, 2), times, rings, index)

    def _free_sweep(self, index: int) -> Sweep:
        config, rays = self.config, rays_of(self.config, index)
        order, count = neighbours_first(self.lidar, rays.directions), len(rays.fractions)
        span = frame_span(config, index, 1 / config.rate_hz)
        motion = self._sensor(span, self.lidar.T_rig_lidar, rays.fractions[order])
        exact = rays.directions[order].to(self.device, torch.float64)

        def look(rows: Tensor, columns: Tensor) -> Tensor:
            place = (_SIDE * rows + columns).clamp(max=count - 1)
            return self._echo(motion.rays(exact[place], place))

        if self.kernels:
            echoes = self._echoes(motion, exact, torch.arange(count, device=self.device))
        else:
            echoes = over_packets(math.ceil(count / _SIDE), _SIDE, self.device, look).reshape(-1, 2)[:count]
        times = span[0] + rays.fractions / config.rate_hz
        rings = bands_of(self.lidar, rays.directions)
        return self._received(rays.directions, echoes[order.argsort().to(self.device)], times, rings, index)

    def _echoes(self, motion: Moving, directions: Tensor, slots: Tensor) -> Tensor:  # [R, 3], [R] -> [R, 2]
        """The result of `_echo`, by a kernel."""
        tables = self.tables(torch.float64), motion.tables(torch.float64)
        return torch.ops.nurec_lite.simulate_echoes(*tables, directions, slots, self._ray_spread, self.config.seed)

    @property
    def _ray_spread(self) -> float:  # radians between neighbouring rays of a sweep
        return math.pi / (2 * self.config.azimuth_steps)

    def _received(self, directions: Tensor, echoes: Tensor, times: Tensor, rings: Tensor, index: int) -> Sweep:
        """The sweep of R rays with their echoes [R, 2], once noise and lost rays have their part."""
        ray = torch.arange(len(echoes), device=self.device)
        ranges, intensities = self._receive(echoes[:, 0], echoes[:, 1], ray, index)
        returned = (ranges > 0).cpu()
        return Sweep(directions, ranges.float().cpu(), intensities.float().cpu(), times, rings, returned)

    def _echo(self, rays: Rays) -> Tensor:  # [S, r, 2]
        """Exact range (infinite: no surface) and intensity: reflectivity times cosine, less with range and on glass."""
        world = self.world(torch.float64)
        distance, row = cast(world, rays)
        hit, s = surface(world, rays, distance, row, self._ray_spread)
        reflectivity = albedo(s, self.config.seed).mean(1).clamp(0, 1).sqrt()
        glass = torch.where(s.material == int(Material.CABIN), cabin_glass(s), torch.zeros_like(s.distance))
        intensity = torch.zeros_like(distance)
        intensity[hit] = (reflectivity * s.cosine * torch.exp(-s.distance / 90) * (1 - 0.995 * glass)).clamp(0, 1)
        return torch.stack([distance, intensity], dim=-1)

    def _receive(self, ranges: Tensor, intensities: Tensor, ray: Tensor, index: int) -> tuple[Tensor, Tensor]:
        """Adds noise to the ranges. A return that is too far or, by chance, too weak becomes zero."""
        config = self.config
        returned = ranges <= config.max_range
        if config.drop_rays:
            chance = uniform_field(config.seed, _DROP, index, ray)
            returned &= chance < 0.995 * (1 - torch.exp(-intensities / 0.004))
        noisy = ranges + config.range_noise_m * normal_field(config.seed, _RANGE_NOISE, index, ray)
        zero = torch.zeros_like(ranges)
        return torch.where(returned, noisy, zero), torch.where(returned, intensities, zero)
