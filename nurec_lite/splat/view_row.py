# SPDX-License-Identifier: Apache-2.0
"""The input of kernels about a view: one row of numbers, computed on the host.

`FIELDS` names them as the struct ViewRow of kernels/math/view_row.cuh does; nothing else knows where they lie.
"""

import math
from itertools import accumulate
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from nurec_lite.geometry import host
from nurec_lite.geometry.camera import SHUTTERS, Camera, lens_numbers, view_limits
from nurec_lite.geometry.host import Rows, Vector
from nurec_lite.geometry.lidar import Lidar


class Posed(Protocol):
    """Fields of a view that kernels read: nurec_lite.splat.views.View has them, and imports this."""

    @property
    def T_world_sensor_start(self) -> Tensor: ...  # [4, 4]  # noqa: N802 as the field is called
    @property
    def T_world_sensor_end(self) -> Tensor: ...  # [4, 4]  # noqa: N802
    @property
    def time_start(self) -> float: ...  # seconds
    @property
    def time_end(self) -> float: ...
    @property
    def sensor(self) -> Camera | Lidar: ...


CAMERA_FIELDS = ("width", "height", "fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2", "k3", "shutter")
LENS_FIELDS = {
    "angular": 1, "a": 8, "d1": 1, "d2": 1, "d3": 1, "p1": 1, "p2": 1, "s1": 1, "s2": 1, "s3": 1, "s4": 1,
    "skew_u": 1, "skew_v": 1, "limit": 1, "edge": 1,
}  # fmt: skip
_BENDS = (1.0, 0.0, 0.0, 0.0, 0.0)  # for a lens with numbers in `lens`: a distorted Gaussian has no conic
_LIDAR = ("spin_rate", "azimuth_start")
_WITHOUT_SPIN = (2.0**-100, -(2.0**99))  # kernels/math/sensor.cuh: every azimuth is at half of the sweep
_WIDTHS = {
    "view.motion.R0": 9, "view.motion.R1": 9, "view.motion.t0": 3, "view.motion.t1": 3, "view.motion.seconds": 1,
    "view.forward": 3, "view.travel": 1, "view.turning": 1, "view.is_camera": 1,
    **{f"view.camera.{name}": 1 for name in CAMERA_FIELDS}, **{f"view.lidar.{name}": 1 for name in _LIDAR},
    "path.q": 4, "path.turn": 3, "path.start": 3, "path.end": 3, "path.seconds": 1,
    "centre": 3, **{f"lens.{name}": n for name, n in LENS_FIELDS.items()},
}  # fmt: skip
FIELDS = {
    name: slice(end - n, end) for (name, n), end in zip(_WIDTHS.items(), accumulate(_WIDTHS.values()), strict=True)
}
NUMBERS = sum(_WIDTHS.values())
INSTANT = 1e-9  # seconds


def view_row(view: Posed) -> Tensor:
    """[84] float32 on the host, as `FIELDS` says: the numbers of bounds, of rays, and the centre. Waits for the device if the view's
    poses lie there."""
    start, end = (T.detach().cpu().double().tolist() for T in (view.T_world_sensor_start, view.T_world_sensor_end))
    centre = _centre(start, end)
    row: list[float] = [0.0] * NUMBERS
    parts = _motion(start, end, centre), _path(start, end, centre), _sensor(view.sensor)
    for name, numbers in [(k, v) for part in parts for k, v in part.items()]:
        row[FIELDS[name]] = numbers
    row[FIELDS["view.motion.seconds"]] = [view.time_end - view.time_start]
    row[FIELDS["path.seconds"]] = [lasts(view)]
    row[FIELDS["centre"]] = centre
    assert len(row) == NUMBERS
    return torch.tensor(row, dtype=torch.float32)


def lasts(view: Posed) -> float:
    """Seconds between a view's first ray and its last, an instant at least: kernels tell by the delay of a ray where it begins
    (kernels/math/aligned_frame.cuh)."""
    return max(view.time_end - view.time_start, INSTANT)


def _centre(start: Rows, end: Rows) -> Vector:
    """Centre of the view, rounded as View.centre() rounds it."""
    x, y, z = (0.5 * float(np.float32(a[3]) + np.float32(b[3])) for a, b in zip(start[:3], end[:3], strict=True))
    return x, y, z


def _motion(start: Rows, end: Rows, centre: Vector) -> dict[str, list[float]]:
    q0, q1 = host.matrix_to_quat(start), host.matrix_to_quat(end)
    x, y, z = host.turn_between(q0, q1)
    middle = host.quat_multiply(q0, host.rotvec_to_quat((0.5 * x, 0.5 * y, 0.5 * z)))
    turning = math.hypot(*(b[k] - a[k] for a, b in zip(start[:3], end[:3], strict=True) for k in range(3)))
    found = {"view.forward": list(host.forward_axis(middle)), "view.turning": [turning / math.sqrt(2)]}
    found["view.travel"] = [math.hypot(*host.minus(host.position(end), host.position(start)))]
    for k, T in enumerate((start, end)):
        found[f"view.motion.R{k}"] = [row[column] for column in range(3) for row in T[:3]]
        found[f"view.motion.t{k}"] = list(host.transposed_times(T, host.minus(centre, host.position(T))))
    return found


def _path(start: Rows, end: Rows, centre: Vector) -> dict[str, list[float]]:
    q = host.matrix_to_quat(start)
    ends = {f"path.{k}": list(host.minus(host.position(T), centre)) for k, T in (("start", start), ("end", end))}
    return {"path.q": list(q), "path.turn": list(host.turn_between(q, host.matrix_to_quat(end))), **ends}


def _sensor(sensor: Camera | Lidar) -> dict[str, list[float]]:
    if isinstance(sensor, Lidar):
        values = lidar_numbers(sensor)
        return {f"view.lidar.{name}": [value] for name, value in zip(_LIDAR, values, strict=True)}
    numbers = dict(zip(CAMERA_FIELDS, camera_numbers(sensor), strict=True))
    lens = {} if sensor.is_plain else _lens(sensor)
    return {"view.is_camera": [1.0], **{f"view.camera.{k}": [x] for k, x in numbers.items()}, **lens}


def lidar_numbers(lidar: Lidar) -> tuple[float, float]:
    """Spin rate and start of a revolution as kernels take them, also of a lidar that does not spin."""
    return (lidar.spin_rate, lidar.azimuth_start) if lidar.spins else _WITHOUT_SPIN


def _lens(camera: Camera) -> dict[str, list[float]]:
    """Numbers of kernels/math/lens.cuh."""
    lens, (limit, edge) = lens_numbers(camera), view_limits(camera)
    skew = (camera.fy * k for k in lens.skew)
    rest = (*lens.denominator, *lens.tangential, *lens.prism, *skew, limit, edge)
    names = [name for name in LENS_FIELDS if name not in ("angular", "a")]
    numbers = {"angular": [float(lens.angular)], "a": list(lens.radial)}
    return {f"lens.{k}": v for k, v in (numbers | {k: [x] for k, x in zip(names, rest, strict=True)}).items()}


def lens_row(camera: Camera) -> list[float]:
    """Returns the 22 numbers of kernels/math/lens.cuh, zeros for a camera without such a lens."""
    numbers = {} if camera.is_plain else _lens(camera)
    return [x for name, n in LENS_FIELDS.items() for x in numbers.get(f"lens.{name}", [0.0] * n)]


def camera_numbers(c: Camera) -> tuple[float, ...]:
    """Numbers of a camera, by CAMERA_FIELDS."""
    lens = (c.distortion or [0.0] * 5) if c.is_plain else _BENDS
    return c.width, c.height, c.fx, c.fy, c.cx, c.cy, *lens, SHUTTERS.index(c.shutter)
