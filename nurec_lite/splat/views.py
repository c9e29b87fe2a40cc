# SPDX-License-Identifier: Apache-2.0
"""Views to render: a camera exposure or a set of lidar rays, with poses at its start and end.

Letters: P pixels, R lidar rays. A pose between start and end is interpolated (rolling shutter); everything is differentiable in
the two poses. World coordinates are taken relative to the sensor's position in the middle of the view, so that float32 holds.
"""

import math
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor

from nurec_lite.capture.trajectory import velocities
from nurec_lite.capture.types import Capture, Frame, ImageFrame, SweepFrame
from nurec_lite.geometry.camera import Camera, pixel_directions, pixel_fractions, project_points, shutter_fraction
from nurec_lite.geometry.lidar import Lidar, Sweep, azimuth_elevation, wrap_angle
from nurec_lite.geometry.se3 import interpolate_between, invert, pose_matrix, quat_rotate, transform
from nurec_lite.splat.view_row import lasts, view_row

AnyView = TypeVar("AnyView", bound="View")


@dataclass(frozen=True)
class Rays:
    """R rays in world axes; origins are relative to `View.centre()`."""

    origins: Tensor  # [R, 3] metres
    directions: Tensor  # [R, 3] unit
    delays: Tensor  # [R] seconds after the middle of the view
    # [R, 2] metres: the known end of a ray, and the largest residual of a Gaussian; None: not known
    targets: Tensor | None = None


@dataclass(frozen=True)
class View:
    """Poses and times that camera and lidar views share."""

    T_world_sensor_start: Tensor  # [4, 4]
    T_world_sensor_end: Tensor  # [4, 4]
    time_start: float  # seconds
    time_end: float  # seconds
    # [84] float32, the view as kernels read it (nurec_lite/splat/view_row.py); None: it is made from the poses when needed, and the host
    # then waits for the device. Replace it together with poses or times.
    row: Tensor | None = field(default=None, kw_only=True)
    middle: Tensor | None = field(default=None, kw_only=True)  # [] float64 seconds, `time_mid` on the poses' device
    # [6] float32 turning and motion of the sensor in its own axes, radians and metres a second, for learning its clock's offset;
    # None: it has none, as a lidar, since its clock is the rig's
    velocity: Tensor | None = field(default=None, kw_only=True)
    # [6] a rotation vector and a translation that the poses hold already, in the world's axes about the sensor; only its gradient counts
    pose_delta: Tensor | None = field(default=None, kw_only=True)
    # [2, 3] log gain and offset of a camera's exposure at this moment, added to those of the whole drive; None: zero
    drift: Tensor | None = field(default=None, kw_only=True)

    @property
    def sensor(self) -> Camera | Lidar:
        raise NotImplementedError

    @property
    def kind(self) -> str:
        """Views of one kind have lists of about one length."""
        return self.sensor.name

    @property
    def time_mid(self) -> float:
        return 0.5 * (self.time_start + self.time_end)

    def moment(self) -> Tensor:  # [] float64, seconds, on the device
        if self.middle is not None:
            return self.middle
        return torch.tensor(self.time_mid, dtype=torch.float64, device=self.T_world_sensor_start.device)

    def pose(
        self,
        fractions: Tensor,  # [...]
    ) -> tuple[Tensor, Tensor]:  # quaternion [..., 4], position [..., 3]
        return interpolate_between(self.T_world_sensor_start, self.T_world_sensor_end, fractions)

    def eye(self) -> Tensor:  # [3] position of the sensor in the middle of the view
        return 0.5 * (self.T_world_sensor_start + self.T_world_sensor_end)[:3, 3]

    def centre(self) -> Tensor:  # [3] the same without gradient: origin of coordinates
        return self.eye().detach()

    def travel(self) -> float:
        """Metres between the poses at start and end."""
        return float((self.T_world_sensor_end - self.T_world_sensor_start)[:3, 3].detach().norm())

    def turning(self) -> Tensor:  # []
        """Radians between the axes at start and end (as a chord)."""
        return (self.T_world_sensor_end - self.T_world_sensor_start)[:3, :3].detach().norm() / math.sqrt(2)

    def _rays(self, directions: Tensor, fractions: Tensor) -> Rays:
        q, _ = self.pose(fractions)
        start, end = (T[:3, 3] - self.centre() for T in (self.T_world_sensor_start, self.T_world_sensor_end))
        origins = start + fractions[:, None] * (end - start)  # relative first: the world's origin may lie 50 km away
        delays = (fractions - 0.5) * lasts(self)
        return Rays(origins, quat_rotate(q, directions), delays)

    def to_sensor(
        self,
        points: Tensor,  # [..., 3] world, relative to centre()
        fractions: Tensor,  # [...]
    ) -> Tensor:  # [..., 3] sensor frame at the given fractions
        """Transform between the sensor frames at start and end, linear: off by angle^2 / 8 of the distance, enough for
        bounds."""
        starts, ends = (transform(T, points.flatten(0, -2)).view_as(points) for T in self.to_sensor_ends())
        return starts + fractions[..., None] * (ends - starts)

    def to_sensor_ends(self) -> list[Tensor]:
        """[4, 4] sensor at start and at end from the world's axes about centre()."""
        poses = [T.detach().clone() for T in (self.T_world_sensor_start, self.T_world_sensor_end)]
        for T in poses:
            T[:3, 3] -= self.centre()
        return [invert(T) for T in poses]

    def _at(self, points: Tensor, motion: Tensor, fractions: Tensor) -> Tensor:
        """Sensor frame, points and sensor both where they are at the given fractions of the view."""
        delays = (fractions - 0.5) * lasts(self)
        return self.to_sensor(points + motion * delays[..., None], fractions)


@dataclass(frozen=True)
class CameraView(View):
    camera: Camera

    @property
    def sensor(self) -> Camera:
        return self.camera

    @property
    def kind(self) -> str:
        """Kind of the view: its sensor and the size of the image."""
        return f"{self.camera.name} {self.camera.width}x{self.camera.height}"

    def rays(self) -> Rays:
        """One ray a pixel, row by row."""
        like = self.T_world_sensor_start.dtype, self.T_world_sensor_start.device
        directions, fractions = pixel_directions(self.camera, *like), pixel_fractions(self.camera, *like)
        return self._rays(directions.flatten(0, 1), fractions.flatten())

    def project(
        self,
        points: Tensor,  # [..., 3] world, relative to centre()
        motion: Tensor,  # [..., 3] metres a second
    ) -> tuple[Tensor, Tensor]:  # pixels [..., 2], distance in front of the image plane [...]
        """Pixels of points, each at the time when its own row is read (three rounds of fixed-point iteration)."""
        fractions = points.new_full(points.shape[:-1], 0.5)
        rounds = 1 if self.camera.shutter == "global" else 3
        for _ in range(rounds):
            local = self._at(points, motion, fractions)
            pixels, z = project_points(self.camera, local)
            fractions = shutter_fraction(self.camera, pixels).clamp(0, 1)
        return pixels, z


@dataclass(frozen=True)
class RayGroups:
    """A sweep's rays in groups of 32 neighbours (kernels/raster_warps/bin), A of them; they follow from the directions alone."""

    rays: Tensor  # [A, 32] int64, -1 where a group has fewer
    first: Tensor  # [bands + 1] int32 first group of each band of elevation
    bins: Tensor  # [bands, bins of azimuth, 2] int32 first warp tile beyond the begin of a bin, and first after its end
    heights: Tensor  # [bands, 2] radians of elevation: lower and upper limit of a band's rays
    occupied: Tensor  # [bands + 1, 3 columns + 1] int32, cells of the lidar that hold rays, summed up over three turns

    def lists(self) -> tuple[Tensor, ...]:
        """The key that lists depend on."""
        return self.rays, self.first, self.bins, self.heights


@dataclass(frozen=True)
class LidarView(View):
    """Rays of one sweep; `directions` are in the lidar's frame at each ray's own time."""

    lidar: Lidar
    directions: Tensor  # [R, 3] unit
    fractions: Tensor  # [R] 0 at time_start, 1 at time_end
    targets: Tensor | None = None  # [R, 2] as Rays has them
    ray_groups: RayGroups | None = None  # replace them together with directions; None: made when they are needed

    @property
    def sensor(self) -> Lidar:
        return self.lidar

    def rays(self) -> Rays:
        return replace(self._rays(self.directions, self.fractions), targets=self.targets)

    def project(
        self,
        points: Tensor,  # [N, S, 3] world, relative to centre(); the first of the S points leads
        motion: Tensor,  # [N, 1, 3] metres a second
    ) -> tuple[Tensor, Tensor]:  # azimuth and elevation [N, S, 2] in radians, range [N, S]
        """Azimuth and elevation of points, each at the time when the lidar looks that way; azimuths unwrapped about
        the first point."""
        fractions = self._lead_fractions(points[:, :1], motion).expand(points.shape[:-1])
        for _ in range(2):
            local = self._at(points, motion, fractions)
            angles = azimuth_elevation(local)
            turn = wrap_angle(angles[..., 0] - angles[:, :1, 0])
            fractions = fractions[:, :1] + turn * self.lidar.spin_rate
        return torch.stack([angles[:, :1, 0] + turn, angles[..., 1]], dim=-1), local.norm(dim=-1)

    def shifts(
        self,
        places: Tensor,  # [N, 2] azimuth and elevation where the points appear
        points: Tensor,  # [N, 3] world, relative to centre()
        motion: Tensor,  # [N, 3] metres a second
    ) -> Tensor:  # [N, 2, 2] radians from there to where the points are seen at the start and at the end
        drift = 0.5 * (self.time_end - self.time_start) * motion
        local = [transform(T, points + d) for T, d in zip(self.to_sensor_ends(), (-drift, drift), strict=True)]
        shifts = azimuth_elevation(torch.stack(local, dim=1)) - places[:, None]
        return torch.stack([wrap_angle(shifts[..., 0]), shifts[..., 1]], dim=-1)

    def _lead_fractions(self, means: Tensor, motion: Tensor) -> Tensor:
        fractions = means.new_full(means.shape[:-1], 0.5)
        for _ in range(3):
            azimuth = azimuth_elevation(self._at(means, motion, fractions))[..., 0]
            fractions = self.lidar.spin_fraction(azimuth)
        return fractions


def camera_view(
    capture: Capture,
    frame: ImageFrame,
    device: torch.device | str,
    factor: int = 1,  # of reduction of the image, to means of blocks of factor x factor pixels
) -> CameraView:
    """The view of a frame of the capture, in float32."""
    camera = capture.camera(frame.sensor)
    view = CameraView(*_sensor_poses(frame, camera.T_rig_cam), frame.time_start, frame.time_end, camera)
    the_clock = not capture.lidars and camera.name == capture.cameras[0].name  # offsets of the others refer to it
    velocity = None if the_clock else velocities(capture, camera.name).at(frame.time_mid).to(device)
    return replace(_with_row(view if factor == 1 else _reduced(view, factor), device), velocity=velocity)


def _reduced(view: CameraView, factor: int) -> CameraView:
    """The view of the reduced image. The middle of its first row (or column) is read later than that of the whole
    image, and the middle of its last one earlier: start and end move there."""
    camera = view.camera.downscaled(factor)
    if camera.shutter == "global":
        return replace(view, camera=camera)
    last = torch.tensor([camera.width, camera.height], dtype=torch.float64) - 1
    middles = factor * (torch.stack([torch.zeros_like(last), last]) + 0.5)  # of the first block of pixels and the last
    fractions = shutter_fraction(view.camera, middles).sort().values
    ends = (view.T_world_sensor_start.double(), view.T_world_sensor_end.double())
    start, end = pose_matrix(*interpolate_between(*ends, fractions)).float()
    times = (view.time_start + fractions * (view.time_end - view.time_start)).tolist()
    return CameraView(start, end, times[0], times[1], camera)


def lidar_view(
    capture: Capture,
    frame: SweepFrame,
    sweep: Sweep,  # of that frame, all or some of its rays
    device: torch.device | str,
) -> LidarView:
    """The view of a sweep's rays, in float32."""
    lidar = capture.lidar(frame.sensor)
    fractions = (sweep.times - frame.time_start) / max(frame.time_end - frame.time_start, 1e-9)
    rays = (sweep.directions.to(device), fractions.to(device, torch.float32))
    view = LidarView(*_sensor_poses(frame, lidar.T_rig_lidar), frame.time_start, frame.time_end, lidar, *rays)
    return _with_row(view, device)


def _with_row(view: AnyView, device: torch.device | str) -> AnyView:
    """A view made on the host, with its row: all that says when and where it is, on the device."""
    middle = torch.tensor(view.time_mid, dtype=torch.float64)
    return replace(
        view,
        T_world_sensor_start=view.T_world_sensor_start.to(device),
        T_world_sensor_end=view.T_world_sensor_end.to(device),
        row=view_row(view).to(device),
        middle=middle.to(device),
    )


def _sensor_poses(frame: Frame, T_rig_sensor: Tensor) -> tuple[Tensor, Tensor]:
    start, end = (T @ T_rig_sensor for T in (frame.T_world_rig_start, frame.T_world_rig_end))
    return start.float(), end.float()
