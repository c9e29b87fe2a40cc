# SPDX-License-Identifier: Apache-2.0
"""What two captures differ in: the one that a scene was made from, as its digest says, and the one that is opened for it now.

A difference is certain if the scene cannot belong to the opened capture. The others leave something that can be measured.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.base.key_values import assigned
from nurec_lite.capture.digest import UNKNOWN, Digest, SensorFrames
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar

CLOSE = 1e-5  # relative, of focal lengths and the like
PLACED, TURNED = 1e-4, 1e-4  # metres and radians that the place of a sensor may differ by
PATTERN = 1e-4  # radians, of a lidar's beams
SAME_TIME = 1e-5  # seconds
SAME_POSE, SAME_TURN = 1e-3, 1e-3  # metres and radians
ELSEWHERE, AWRY = 5.0, math.radians(10)  # from which on the scene is not where the sensors are
ENCODED_ANEW = 0.9  # of the frames that were compared: where fewer have other files, these were edited
GREY, MOST_GREY = 2.5, 16.0  # levels of 255 between small copies of an image: root of the mean square, and the largest
METRES, SHARE, BRIGHT = (
    0.005,
    0.002,
    0.01,
)  # between sweeps: of mean ranges and points, of the number of rays, of intensities

Look = Callable[[str, int], Tensor]  # sensor and index of a frame of the opened capture -> its look


@dataclass(frozen=True)
class Difference:
    sentence: str
    certain: bool = True
    remedy: str | None = None  # None: only another capture helps


@dataclass(frozen=True)
class Asked:
    """What the user has chosen otherwise than training did."""

    downscale: tuple[int, int] = (1, 1)  # when trained, and now
    frames: bool = False
    image_delay: bool = False
    exact: bool = False  # nothing can be chosen: a run goes on with what it had


def differences(known: Digest, found: Digest, look: Look, asked: Asked) -> Iterator[Difference]:
    """The most telling ones first."""
    cameras, lidars = ([s.name for s in sensors] for sensors in (known.cameras, known.lidars))
    yield from _names("cameras", cameras, [c.name for c in found.cameras], ordered=True)
    yield from _names("lidars", lidars, [s.name for s in found.lidars], ordered=False)
    yield from _sensor_differences(known, found, asked.downscale)
    both = [name for name in (*cameras, *lidars) if name in found.frames]
    for name in both:
        delayed = asked.image_delay and name in cameras
        yield from _frame_differences(name, known.frames[name], found.frames[name], asked, delayed)
    for name in both:
        yield from _content_differences(name, known.frames[name], found.frames[name], look, name in cameras)
    yield from pose_differences(known, found)


# ---- sensors


def _names(kind: str, was: Sequence[str], now: Sequence[str], ordered: bool) -> Iterator[Difference]:
    if set(was) != set(now):
        yield Difference(f"it has {_listed(kind, now)}, but had {_listed(kind, was)}")
    elif ordered and list(was) != list(now):
        remedy = f"give {assigned(f'data.{kind}', was)}"
        yield Difference(f"it has the {kind} {', '.join(now)} in this order, but had {', '.join(was)}", remedy=remedy)


def _listed(kind: str, names: Sequence[str]) -> str:
    return f"the {kind} {', '.join(names)}" if names else f"no {kind}"


def _sensor_differences(known: Digest, found: Digest, downscale: tuple[int, int]) -> Iterator[Difference]:
    cameras, lidars = {c.name: c for c in found.cameras}, {s.name: s for s in found.lidars}
    scaled = False
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
    for lidar in known.lidars:
        if lidar.name in lidars:
            now_lidar = lidars[lidar.name]
            if wrong := _pattern_flaw(lidar, now_lidar):
                yield Difference(f"lidar {lidar.name} has {wrong}")
            yield from _mountings(f"lidar {lidar.name}", lidar.T_rig_lidar, now_lidar.T_rig_lidar)


def _lens_flaw(
    was: Camera,
    now: Camera,
    scale: float,  # by which the images are smaller now than they were
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
    if not _same_lens(was.distortion, now.distortion):
        return f"the distortion {_numbers(now.distortion)}, but had {_numbers(was.distortion)}"
    if was.shutter != now.shutter:
        return f"the shutter {now.shutter}, but had {was.shutter}"
    return None


def _same_lens(was: Sequence[float], now: Sequence[float]) -> bool:
    """None is the same as zeros."""
    pad = (0.0,) * 5
    return all(math.isclose(a, b, rel_tol=CLOSE, abs_tol=1e-9) for a, b in zip(was or pad, now or pad, strict=True))


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
    moved, turned = _apart(was[None].double(), now[None].double())
    if moved > PLACED:
        yield Difference(f"{sensor} sits at {_place(now)} on the rig, but sat at {_place(was)}")
    elif turned > TURNED:
        yield Difference(f"{sensor} is turned by {math.degrees(turned):.3g} degrees from where it was")


def _place(pose: Tensor) -> str:
    return ", ".join(f"{metres:.4g}" for metres in pose[:3, 3].tolist()) + " m"


def _apart(
    was: Tensor,  # [n, 3 or 4, 4]
    now: Tensor,
) -> tuple[float, float]:  # metres and radians at most
    moves, turns = _all_apart(was, now)
    return float(moves.max()), float(turns.max())


def _all_apart(was: Tensor, now: Tensor) -> tuple[Tensor, Tensor]:  # [n] metres, [n] radians
    moves = (was[:, :3, 3] - now[:, :3, 3]).norm(dim=1)
    chords = (was[:, :3, :3] - now[:, :3, :3]).flatten(1).norm(dim=1)  # 2 sqrt(2) sin(angle / 2)
    return moves, 2 * torch.asin((chords / math.sqrt(8)).clamp(max=1))


def _pattern_flaw(was: Lidar, now: Lidar) -> str | None:
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


# ---- frames


def _pairs(was: SensorFrames, now: SensorFrames) -> tuple[Tensor, Tensor]:  # [b] rows of frames with one number
    row = {index: i for i, index in enumerate(was.indices.tolist())}
    both = [(row[index], i) for i, index in enumerate(now.indices.tolist()) if index in row]
    rows = torch.tensor(both, dtype=torch.int64).reshape(-1, 2)
    return rows[:, 0], rows[:, 1]


def _frame_differences(
    name: str, was: SensorFrames, now: SensorFrames, asked: Asked, delayed: bool
) -> Iterator[Difference]:
    rows, own = _pairs(was, now)
    if len(rows) < max(len(was.indices), len(now.indices)):
        shared = f", {len(rows)} of them the same" if len(rows) else ", none of them the same"
        sentence = f"{name} has {_counted(now)}, but had {_counted(was)}{shared}"
        yield Difference(
            sentence, certain=not asked.frames, remedy=None if asked.exact else _part_of(was, now, len(rows))
        )
    late = (now.times[own] - was.times[rows]).abs().amax(dim=1)
    wrong = (late > SAME_TIME).nonzero()[:, 0].tolist()
    if wrong:
        first = wrong[0]
        before, after = (float(t[k].mean()) for t, k in ((was.times, rows[first]), (now.times, own[first])))
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        sentence = (
            f"frame {int(now.indices[own[first]])} of {name}{more} is of {after:.6g} s, but was of {before:.6g} s"
        )
        yield Difference(sentence, certain=not delayed)


def _counted(frames: SensorFrames) -> str:
    n = len(frames.indices)
    if n == 0:
        return "no frame"
    low, high = int(frames.indices.min()), int(frames.indices.max())
    return f"{n} frames, {low} to {high}" if n > 1 else f"one frame, {low}"


def _part_of(was: SensorFrames, now: SensorFrames, both: int) -> str | None:
    """Where one holds all frames of the other, the part that both have can be asked for."""
    if both and both == len(was.indices):
        return f"give {_frames(was)}"
    if both and both == len(now.indices):
        return f"give {_frames(now)} to take this part alone"
    return None


def _frames(part: SensorFrames) -> str:
    return assigned("data.frames", [int(part.indices.min()), int(part.indices.max()) + 1])


# ---- content


def _content_differences(
    name: str, was: SensorFrames, now: SensorFrames, look: Look, camera: bool
) -> Iterator[Difference]:
    rows, own = _pairs(was, now)
    if not len(rows):
        return
    before, after = was.marks[rows], now.marks[own]
    sure = (before[:, 0] != UNKNOWN) & (after[:, 0] != UNKNOWN)
    summed = sure & (before[:, 1] != UNKNOWN) & (after[:, 1] != UNKNOWN)
    other = sure & (before[:, 0] != after[:, 0]) | summed & (before[:, 1] != after[:, 1])
    numbers = now.indices[own]
    if bool(sure.any()) and not bool(other.any()):
        return
    if int(other.sum()) < ENCODED_ANEW * int(sure.sum()):
        yield Difference(_edited(name, numbers[other].tolist(), camera))
    else:
        yield from _look_differences(name, was, set(numbers.tolist()), look, camera)


def _edited(name: str, numbers: list[int], camera: bool) -> str:
    what, more = "image" if camera else "sweep", f" (and {len(numbers) - 1} more)" if len(numbers) > 1 else ""
    return f"{what} {numbers[0]} of {name}{more} is another file than it was"


def _look_differences(name: str, was: SensorFrames, there: set[int], look: Look, camera: bool) -> Iterator[Difference]:
    chosen = [i for i, index in enumerate(was.looked.tolist()) if index in there]
    if not chosen:
        what = "images" if camera else "sweeps"
        yield Difference(f"the {what} of {name} are other files, and none of those can be compared", certain=False)
    for i in chosen:
        index = int(was.looked[i])
        flaw = (_image_flaw if camera else _sweep_flaw)(was.looks[i], look(name, index))
        if flaw:
            yield Difference(f"{'image' if camera else 'sweep'} {index} of {name} {flaw}")
            return


def _image_flaw(was: Tensor, now: Tensor) -> str | None:
    if was.shape != now.shape:
        return None
    apart = was.double() - now.double()
    grey = float(apart.square().mean().sqrt())
    if grey <= GREY and float(apart.abs().max()) <= MOST_GREY:
        return None
    return f"shows something else than it did (by {grey:.3g} of 255 in the mean, {apart.abs().max():.3g} at most)"


def _sweep_flaw(was: Tensor, now: Tensor) -> str | None:
    returns, rays = ((was[i], now[i]) for i in (0, 1))
    if any(abs(float(a - b)) > max(1.0, SHARE * float(a)) for a, b in (returns, rays)):
        return f"has {now[0]:.0f} returns of {now[1]:.0f} rays, but had {was[0]:.0f} of {was[1]:.0f}"
    if float((was[2:6] - now[2:6]).abs().max()) > METRES:
        return f"has a mean range of {now[2]:.4g} m about {_point(now)}, but had {was[2]:.4g} m about {_point(was)}"
    if abs(float(was[6] - now[6])) > BRIGHT:
        return f"has a mean intensity of {now[6]:.3f}, but had {was[6]:.3f}"
    return None


def _point(look: Tensor) -> str:
    return ", ".join(f"{metres:.3g}" for metres in look[3:6].tolist()) + " m"


# ---- poses


def pose_differences(known: Digest, found: Digest) -> Iterator[Difference]:
    """The largest of all sensors, in one sentence."""
    worst = (0.0, 0.0, 0, "")
    for name in known.frames.keys() & found.frames.keys():
        was, now = known.frames[name], found.frames[name]
        rows, own = _pairs(was, now)
        if not len(rows):
            continue
        moves, turns = _all_apart(was.poses[rows], now.poses[own])
        k = int((moves / ELSEWHERE + turns / AWRY).argmax())
        worst = max(worst, (float(moves[k]), float(turns[k]), int(now.indices[own[k]]), name))
    moved, turned, index, name = worst
    if moved > SAME_POSE or turned > SAME_TURN:
        sentence = f"poses are up to {moved:.3g} m and {math.degrees(turned):.3g} degrees off (frame {index} of {name})"
        yield Difference(f"{sentence} what they were", certain=moved > ELSEWHERE or turned > AWRY)
