# SPDX-License-Identifier: Apache-2.0
"""Cameras with a lens and a rolling shutter. lens.py has the lenses beyond a pinhole with OpenCV's k1, k2, p1, p2 and k3.

Camera frame: x right, y down, z forward; the centre of the first pixel is at (0.5, 0.5).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.base.converted_fields import convert_fields, mask_of
from nurec_lite.base.errors import UserError
from nurec_lite.geometry.lens import (
    ANGULAR,
    COEFFICIENTS,
    MARGIN,
    Lens,
    directions,
    fold,
    lens_of,
    moved,
    places,
    straightened,
)
from nurec_lite.geometry.masks import reduced

MOST_XI = 100.0
Alike = tuple[object, ...]  # equal for cameras that one batch may hold
AGREES = 0.5  # pixels between a polynomial and its inverse, if a file gives both
SHUTTERS = ("global", "top_to_bottom", "bottom_to_top", "left_to_right", "right_to_left")
SIDEWAYS = SHUTTERS[3:]  # those that read columns


@dataclass(frozen=True)
class Camera:
    """Intrinsics and mounting of one camera. A frame's start and end are the times of its first and its last row (or column)."""

    name: str
    width: int  # pixels
    height: int  # pixels
    fx: float  # pixels
    fy: float
    cx: float
    cy: float
    T_rig_cam: Tensor  # [4, 4] float64
    distortion: tuple[float, ...] = ()  # coefficients of the lens (lens.py): OpenCV's k1, k2, p1, p2, k3; empty: none
    shutter: str = "global"  # one of SHUTTERS: the edge that is read first and the one that is read last
    lens: str = "pinhole"  # a model of lens.py
    mask: Tensor | None = field(
        default=None, compare=False
    )  # [height, width] bool: pixels that show no scene (masks.py)

    def __post_init__(self) -> None:
        convert_fields(self, f"camera {self.name}")
        if self.mask is not None:
            object.__setattr__(self, "mask", mask_of(self.mask, f"camera {self.name}: mask"))
        if self.shutter not in SHUTTERS:
            raise UserError(
                f"camera {self.name}: shutter is '{self.shutter}', but must be one of {', '.join(SHUTTERS)}"
            )
        if self.lens not in COEFFICIENTS:
            raise UserError(f"camera {self.name}: lens is '{self.lens}', but must be one of {', '.join(COEFFICIENTS)}")
        counts = COEFFICIENTS[self.lens][1]
        if len(self.distortion) not in counts:
            raise UserError(
                f"camera {self.name}: distortion has {len(self.distortion)} coefficients, but a {self.lens} lens must have "
                f"{' or '.join(map(str, counts))}"
            )

    @property
    def is_plain(self) -> bool:
        """Whether it is a pinhole with OpenCV's k1, k2, p1, p2 and k3 at most."""
        return self.lens == "pinhole" and len(self.distortion) <= 5

    @property
    def is_angular(self) -> bool:
        """Whether depth is the distance from the camera, and not along its axis: it may see points at its sides and behind it."""
        return self.lens in ANGULAR

    def downscaled(self, factor: int) -> "Camera":
        """The camera of an image reduced by averaging blocks of factor x factor pixels (a remainder at the edge is cut off)."""
        return replace(
            self, width=self.width // factor, height=self.height // factor,
            fx=self.fx / factor, fy=self.fy / factor, cx=self.cx / factor, cy=self.cy / factor,
            mask=None if self.mask is None else reduced(self.mask, factor),
        )  # fmt: skip

    def resized(self, width: int, height: int) -> "Camera":
        """The camera of the same view in an image of another size, in pixels, without its mask."""
        x, y = width / self.width, height / self.height
        return replace(
            self, width=width, height=height, fx=x * self.fx, fy=y * self.fy, cx=x * self.cx, cy=y * self.cy, mask=None
        )  # fmt: skip


@dataclass(frozen=True)
class CameraBatch:
    """F cameras whose `is_plain` holds, in the fields that a projection reads: points are projected into all of their images at once."""

    width: int  # pixels
    height: int
    fx: Tensor  # [F, 1] float64, pixels
    fy: Tensor
    cx: Tensor
    cy: Tensor
    T_rig_cam: Tensor  # [F, 4, 4] float64
    distortion: tuple[Tensor, ...]  # [F, 1] float64 each
    shutter: str

    @staticmethod
    def of(cameras: Sequence[Camera], device: torch.device | str) -> "CameraBatch":
        """Cameras that `alike` calls equal; one at least."""
        first = cameras[0]
        rows = [[c.fx, c.fy, c.cx, c.cy, *c.distortion] for c in cameras]
        fx, fy, cx, cy, *distortion = torch.tensor(rows, dtype=torch.float64).to(device)[:, None].unbind(-1)
        mountings = torch.stack([c.T_rig_cam for c in cameras]).to(device)
        return CameraBatch(first.width, first.height, fx, fy, cx, cy, mountings, tuple(distortion), first.shutter)


def alike(camera: Camera) -> Alike:
    """The key that cameras of one batch share. A camera with another lens shares it with itself alone."""
    if not camera.is_plain:
        return (id(camera),)
    return camera.width, camera.height, camera.shutter, len(camera.distortion)


def distort(
    camera: Camera | CameraBatch,
    xy: Tensor,  # [..., 2] x / z, y / z
) -> Tensor:  # [..., 2]
    """OpenCV's model: radial 1 + k1 r2 + k2 r4 + k3 r6 and tangential p1, p2."""
    if not camera.distortion:
        return xy
    k1, k2, p1, p2, k3 = camera.distortion
    x, y = xy.unbind(-1)
    r2 = x * x + y * y
    radial = 1 + r2 * (k1 + r2 * (k2 + r2 * k3))
    dx = 2 * p1 * x * y + p2 * (r2 + 2 * x * x)
    dy = p1 * (r2 + 2 * y * y) + 2 * p2 * x * y
    return torch.stack([x * radial + dx, y * radial + dy], dim=-1)


def undistort(
    camera: Camera,
    xy: Tensor,  # [..., 2] distorted
) -> Tensor:  # [..., 2] such that distort(camera, result) = xy
    """Inverts `distort` by Newton's method; 10 rounds reach rounding wherever the lens model still grows with the radius."""
    if not camera.distortion:
        return xy
    k1, k2, p1, p2, k3 = camera.distortion
    result = xy
    for _ in range(10):
        x, y = result.unbind(-1)
        r2 = x * x + y * y
        radial = 1 + r2 * (k1 + r2 * (k2 + r2 * k3))
        slope = 2 * (k1 + r2 * (2 * k2 + r2 * 3 * k3))
        a = radial + slope * x * x + 2 * p1 * y + 6 * p2 * x  # Jacobian [[a, b], [b, c]]
        b = slope * x * y + 2 * p1 * x + 2 * p2 * y
        c = radial + slope * y * y + 6 * p1 * y + 2 * p2 * x
        u, v = (xy - distort(camera, result)).unbind(-1)
        result = result + torch.stack([c * u - b * v, a * v - b * u], dim=-1) / (a * c - b * b)[..., None]
    return result


def project_points(
    camera: Camera | CameraBatch,
    points: Tensor,  # [..., 3] metres, camera frame; [F, n, 3] of a batch
) -> tuple[Tensor, Tensor]:  # pixels [..., 2], depth [...] in metres (pixels mean nothing where it is not positive)
    """Projects points. The depth is z, or of an angular lens the distance, negative beyond the angles that the image holds."""
    if isinstance(camera, Camera) and not camera.is_plain:
        return _through_lens(camera, points)
    z = points[..., 2]
    safe = torch.where(z.abs() < 1e-6, torch.full_like(z, 1e-6), z)
    xy = distort(camera, points[..., :2] / safe[..., None])
    u, v = xy.unbind(-1)
    return torch.stack([u * camera.fx + camera.cx, v * camera.fy + camera.cy], dim=-1), z


def _through_lens(camera: Camera, points: Tensor) -> tuple[Tensor, Tensor]:
    lens, (limit, _) = lens_numbers(camera), view_limits(camera)
    q = places(lens, points)
    x, y = moved(lens, q, limit).unbind(-1)
    u = x * camera.fx + y * (camera.fy * lens.skew[0]) + camera.cx
    v = y * camera.fy + x * (camera.fy * lens.skew[1]) + camera.cy
    depth = points.norm(dim=-1) * torch.where(q.norm(dim=-1) <= limit, 1, -1) if lens.angular else points[..., 2]
    return torch.stack([u, v], dim=-1), depth


def lens_numbers(camera: Camera) -> Lens:
    return _lens_of(camera.lens, camera.distortion)


_lens_of = lru_cache(maxsize=64)(lens_of)


def unproject(
    camera: Camera,
    pixels: Tensor,  # [..., 2] float64
) -> Tensor:  # [..., 3] unit directions, camera frame; of lenses beyond `is_plain` NaN where the lens has no ray
    u, v = pixels.unbind(-1)
    if camera.is_plain:
        xy = undistort(camera, torch.stack([(u - camera.cx) / camera.fx, (v - camera.cy) / camera.fy], dim=-1))
        return F.normalize(torch.cat([xy, torch.ones_like(xy[..., :1])], dim=-1), dim=-1)
    lens = lens_numbers(camera)
    return directions(lens, straightened(lens, _without_pixels(camera, lens, u, v)))


def _without_pixels(camera: Camera, lens: Lens, u: Tensor, v: Tensor) -> Tensor:
    """[..., 2] distorted by the lens, from q of pixels."""
    b, c = camera.fy * lens.skew[0], camera.fy * lens.skew[1]
    inverse = 1 / (camera.fx * camera.fy - b * c)
    u, v = u - camera.cx, v - camera.cy
    return torch.stack([camera.fy * u - b * v, camera.fx * v - c * u], dim=-1) * inverse


@lru_cache(maxsize=64)
def view_limits(camera: Camera) -> tuple[float, float]:
    """Returns the largest r of the formula of lens.py, and the widest angle in the image from the camera's axis, in radians."""
    rays = unproject(camera, image_border(camera))
    rays = rays[torch.isfinite(rays).all(-1)]
    lens = lens_numbers(camera)
    last, aside = fold(lens), torch.hypot(rays[:, 0], rays[:, 1])
    if len(rays) == 0:
        return last, math.pi
    angles = torch.atan2(aside, rays[:, 2])
    r = angles if lens.angular else torch.tan(angles)
    return min(MARGIN * float(r.max()), last), float(angles.max())


def image_border(camera: Camera, steps: int = 64) -> Tensor:
    """[4 (steps + 1), 2] float64 pixels along the edges of the image."""
    u, v = (torch.linspace(0, size, steps + 1, dtype=torch.float64) for size in (camera.width, camera.height))
    zero_u, zero_v = torch.zeros_like(v), torch.zeros_like(u)
    sides = ((u, zero_v), (u, zero_v + camera.height), (zero_u, v), (zero_u + camera.width, v))
    return torch.cat([torch.stack(side, dim=-1) for side in sides])


def _seen(camera: Camera, pixels: Tensor) -> Tensor:  # [n, 2] -> [m, 2] those that are not masked
    if camera.mask is None:
        return pixels
    column, row = (pixels[:, k].long().clamp(0, n - 1) for k, n in enumerate((camera.width, camera.height)))
    return pixels[~camera.mask[row, column]]


def lens_flaw(camera: Camera) -> str | None:
    """Returns the flaw that leaves pixels of the image without a direction, or with one that the projection contradicts; None: no flaw."""
    if camera.lens == "mei" and not 0 <= camera.distortion[0] <= MOST_XI:
        return f"a xi of {camera.distortion[0]:g}, which must lie between 0 and {MOST_XI:g}"
    border = _seen(camera, image_border(camera))
    if not len(border):
        return None
    if not camera.is_plain:
        a, skew = camera.fx * camera.fy, lens_numbers(camera).skew
        if a - camera.fy**2 * skew[0] * skew[1] <= 0:
            return "a linear term that mirrors the image or makes it a line"
    rays = unproject(camera, border)
    if not camera.is_plain and not bool(torch.isfinite(rays).all()):
        return _fold_flaw(camera)
    off = (project_points(camera, rays)[0] - border).norm(dim=-1).max()
    if camera.is_plain:
        return None if off < 0.01 else "a distortion that folds the image, so that pixels at its edge have no direction"
    if not off < AGREES:
        return f"polynomials from angles to pixels and back that differ by {float(off):.3g} pixels"
    return None


def _fold_flaw(camera: Camera) -> str:
    lens = lens_numbers(camera)
    r = fold(lens)
    angle = math.degrees(r if lens.angular else math.atan(r))
    return f"a {camera.lens} lens that ends {angle:.0f} degrees from its axis, so that pixels at the image's edge have no direction"


def pixel_directions(
    camera: Camera,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Tensor:  # [H, W, 3] unit, camera frame, through the pixel centres
    """Returns the directions of all pixels, made once for each camera and kept: nothing may be written into them."""
    return _directions(camera, dtype, _named(device))


@lru_cache(maxsize=32)
def _directions(camera: Camera, dtype: torch.dtype, device: torch.device) -> Tensor:
    return _finished(directions_through(camera, _pixel_centres(camera, device)).to(dtype))


def directions_through(
    camera: Camera,
    pixels: Tensor,  # [..., 2] float64
) -> Tensor:  # [..., 3] unit, camera frame
    """Returns the directions of some pixels. Where the lens has none, pixels are masked, and these look along the axis."""
    found = unproject(camera, pixels)
    seen = torch.isfinite(found).all(dim=-1, keepdim=True)
    axis = torch.eye(3, dtype=torch.float64, device=pixels.device)[2]
    return torch.where(seen, found, axis)


def _named(device: torch.device | str) -> torch.device:
    """The device with its number: results are kept by it."""
    found = torch.device(device)
    return torch.device("cuda", torch.cuda.current_device()) if found == torch.device("cuda") else found


def _finished(kept: Tensor) -> Tensor:
    """Waits for a GPU, since any stream may read the result."""
    if kept.is_cuda:
        torch.cuda.current_stream(kept.device).synchronize()
    return kept


def forget_pixels() -> None:
    """Frees the directions and fractions of all cameras."""
    _directions.cache_clear()
    _fractions.cache_clear()


def beyond(
    camera: Camera,
    angle: float,  # radians from the axis
) -> Tensor:  # [height, width] bool: the pixel has no direction, or one farther from the axis
    rays = unproject(camera, _pixel_centres(camera))
    return ~(rays[..., 2] > math.cos(angle))


def pixel_fractions(
    camera: Camera,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Tensor:  # [H, W]
    """Time of each pixel as `shutter_fraction` gives it; made once and kept."""
    return _fractions(camera, dtype, _named(device))


@lru_cache(maxsize=32)
def _fractions(camera: Camera, dtype: torch.dtype, device: torch.device) -> Tensor:
    return _finished(shutter_fraction(camera, _pixel_centres(camera, device)).to(dtype))


def _pixel_centres(camera: Camera, device: torch.device | str = "cpu") -> Tensor:  # [H, W, 2] float64
    v, u = (torch.arange(size, dtype=torch.float64, device=device) + 0.5 for size in (camera.height, camera.width))
    v, u = torch.meshgrid(v, u, indexing="ij")
    return torch.stack([u, v], dim=-1)


def shutter_fraction(
    camera: Camera | CameraBatch,
    pixels: Tensor,  # [..., 2]
) -> (
    Tensor
):  # [...] 0 at the first row's (or column's) centre, 1 at the last one's; 0.5 throughout for a global shutter
    """Time of a pixel as a fraction of the readout; not clamped, so that points outside the image move on steadily."""
    u, v = pixels.unbind(-1)
    if camera.shutter == "global":
        return torch.full_like(u, 0.5)
    along, size = (u, camera.width) if camera.shutter in SIDEWAYS else (v, camera.height)
    fraction = (along - 0.5) / max(size - 1, 1)
    return fraction if camera.shutter in ("top_to_bottom", "left_to_right") else 1 - fraction
