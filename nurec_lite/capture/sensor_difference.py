# SPDX-License-Identifier: Apache-2.0
"""Differences of two captures' sensors: their names, lenses, beams and places on the rig."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import torch
from torch import Tensor

from nurec_lite.base.key_values import assigned
from nurec_lite.capture.digest import Digest
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar

CLOSE = 1e-5  # relative, of focal lengths and the like
PLACED, TURNED = 1e-4, 1e-4  # metres and radians that the place of a sensor may differ by
PATTERN = 1e-4  # radians, of a lidar's beams


@dataclass(frozen=True)
class Difference:
    sentence: str
    certain: bool = True
    remedy: str | None = None  # None: only another capture helps


def sensor_differences(known: Digest, found: Digest, downscale: tuple[int, int]) -> Iterator[Difference]:
    cameras, lidars = ([s.name for s in sensors] for sensors in (known.cameras, known.lidars))
    yield from _names("cameras", cameras, [c.name for c in found.cameras], ordered=True)
    yield from _names("lidars", lidars, [s.name for s in found.lidars], ordered=False)
    yield from _camera_differences(known, found, downscale)
    yield from _lidar_differences(known, found)


def _names(kind: str, was: Sequence[str], now: Sequence[str], ordered: bool) -> Iterator[Difference]:
    if set(was) != set(now):
        yield Difference(f"it has {_listed(kind, now)}, but had {_listed(kind, was)}")
    elif ordered and list(was) != list(now):
        remedy = f"give {assigned(f'data.{kind}', was)}"
        yield Difference(f"it has the {kind} {', '.join(now)} in this order, but had {', '.join(was)}", remedy=remedy)


def _listed(kind: str, names: Sequence[str]) -> str:
    return f"the {kind} {', '.join(names)}" if names else f"no {kind}"


def _camera_differences(known: Digest, found: Digest, downscale: tuple[int, int]) -> Iterator[Difference]:
    cameras, scaled = {c.name: c for c in found.cameras}, False
    for camera in known.cameras:
        if camera.name not in cameras:
            continue
        now = cameras[camera.name]
        wrong = _lens_flaw(camera, now, 1.0)
        if wrong and downscale[0] != downscale[1] and not _lens_flaw(camera, now, downscale[1] / downscale[0]):
            scaled, wrong = True, None
        if wrong:
            yield Difference(f"camera {camera.name} has {wrong}", remedy=_other_scale(camera, now, downscale[1]))
        yield from _mountings(f"camera {camera.name}", camera.T_rig_cam, now.T_rig_cam)
    if scaled:
        yield Difference(f"images are reduced by {downscale[1]}, but were by {downscale[0]}", certain=False)


def _lidar_differences(known: Digest, found: Digest) -> Iterator[Difference]:
    lidars = {s.name: s for s in found.lidars}
    for lidar in known.lidars:
        if lidar.name in lidars:
            now_lidar = lidars[lidar.name]
            if wrong := _pattern_flaw(lidar, now_lidar):
                yield Difference(f"lidar {lidar.name} has {wrong}")
            yield from _mountings(f"lidar {lidar.name}", lidar.T_rig_lidar, now_lidar.T_rig_lidar)


def _lens_flaw(
    was: Camera,
    now: Camera,
    scale: float,  # factor of the images' size: before over now
) -> str | None:
    slack = 0.0 if scale == 1.0 else 1.0  # a remainder at the edge is cut off
    if abs(was.width - now.width * scale) > slack * max(1.0, scale) or abs(
        was.height - now.height * scale
    ) > slack * max(1.0, scale):
        return f"{now.width}x{now.height} pixels, but had {was.width}x{was.height}"
    for name in ("fx", "fy", "cx", "cy"):
        before, after = getattr(was, name), getattr(now, name)
        if not math.isclose(before, after * scale, rel_tol=CLOSE, abs_tol=CLOSE):
            return f"{name} {after:.7g}, but had {before:.7g}"
    if was.lens != now.lens:
        return f"a {now.lens} lens, but had a {was.lens} lens"
    if not _same_lens(was.distortion, now.distortion):
        return f"the distortion {_numbers(now.distortion)}, but had {_numbers(was.distortion)}"
    if was.shutter != now.shutter:
        return f"the shutter {now.shutter}, but had {was.shutter}"
    return None


def _same_lens(was: Sequence[float], now: Sequence[float]) -> bool:
    """Whether two lists of coefficients are close; missing ones count as zeros."""
    pairs = zip_longest(was, now, fillvalue=0.0)
    return all(math.isclose(a, b, rel_tol=CLOSE, abs_tol=1e-9) for a, b in pairs)


def _numbers(values: Sequence[float]) -> str:
    return "[" + ", ".join(f"{value:.6g}" for value in values) + "]"


def _other_scale(was: Camera, now: Camera, downscale: int) -> str | None:
    """data.downscale that makes the images of the capture as large as they were."""
    wanted = downscale * now.fx / was.fx
    near = round(wanted)
    fits = near >= 1 and near != downscale and math.isclose(wanted, near, rel_tol=CLOSE)
    return f"give data.downscale={near}" if fits and _is_scaled(was, now, near / downscale) else None


def _is_scaled(was: Camera, now: Camera, ratio: float) -> bool:
    return not _lens_flaw(now, was, ratio) or not _lens_flaw(was, now, 1 / ratio)


def _mountings(sensor: str, was: Tensor, now: Tensor) -> Iterator[Difference]:
    moved, turned = (float(one[0]) for one in apart(was[None].double(), now[None].double()))
    if moved > PLACED:
        yield Difference(f"{sensor} sits at {_place(now)} on the rig, but sat at {_place(was)}")
    elif turned > TURNED:
        yield Difference(f"{sensor} is turned by {math.degrees(turned):.3g} degrees from where it was")


def _place(pose: Tensor) -> str:
    return ", ".join(f"{metres:.4g}" for metres in pose[:3, 3].tolist()) + " m"


def apart(
    was: Tensor,  # [n, 3 or 4, 4]
    now: Tensor,  # [n, 3 or 4, 4]
) -> tuple[Tensor, Tensor]:  # [n] metres, [n] radians
    moves = (was[:, :3, 3] - now[:, :3, 3]).norm(dim=1)
    chords = (was[:, :3, :3] - now[:, :3, :3]).flatten(1).norm(dim=1)  # 2 sqrt(2) sin(angle / 2)
    return moves, 2 * torch.asin((chords / math.sqrt(8)).clamp(max=1))


def _pattern_flaw(was: Lidar, now: Lidar) -> str | None:
    if was.spins != now.spins:
        return f"{'beams that turn' if now.spins else 'no rows and columns'}, but had {'beams that turn' if was.spins else 'none'}"
    if not now.spins:  # its bands say how its rays are grouped, not where they are
        same = math.isclose(was.max_range, now.max_range, rel_tol=CLOSE)
        return None if same else f"max_range {now.max_range:.6g} m, but had {was.max_range:.6g} m"
    if len(was.elevations) != len(now.elevations):
        return f"{len(now.elevations)} beams, but had {len(was.elevations)}"
    apart = (was.elevations.double() - now.elevations.double()).abs()
    if len(apart) and float(apart.max()) > PATTERN:
        k = int(apart.argmax())
        before, after = (math.degrees(float(lidar.elevations[k])) for lidar in (was, now))
        return f"beam {k} at {after:.4g} degrees, but had it at {before:.4g}"
    for name, unit in (("max_range", " m"), ("azimuth_steps", ""), ("azimuth_start", " radians")):
        before, after = getattr(was, name), getattr(now, name)
        if not math.isclose(before, after, rel_tol=CLOSE, abs_tol=PATTERN):
            return f"{name} {after:.6g}{unit}, but had {before:.6g}{unit}"
    if was.clockwise != now.clockwise:
        return f"clockwise={str(now.clockwise).lower()}, but had {str(was.clockwise).lower()}"
    return None
