# SPDX-License-Identifier: Apache-2.0
"""Possible mistakes about a camera's place, images and clock: conventions that are easily exchanged."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nurec_lite.capture.trajectory import Trajectory, trajectory_of
from nurec_lite.capture.types import Capture, ImageFrame, Mounting
from nurec_lite.capture.units import OF_A_METRE
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.se3 import invert

FRAMES = 3  # largest shift of stamps that is tried
MOST_FRAMES = 10  # the same where edges do not agree as the capture says
STEP = 0.05  # seconds between two offsets of a clock
ZOOMS = (0.5, 0.8, 1.25, 2.0)  # of a focal length alone
ZOOMED, CLOCK, YAW = "zoom", "clock", "yaw"  # kinds of guesses by some amount
FILES, MOUNTED = "files", "mounted"  # kinds of other readings of a reader's files, and of a mounting
READINGS = (FILES, MOUNTED)
OBLONG = 1.1  # ratio of a pixel's sides, at least: pixels of cameras are square, or nearly so
FACTORS = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # guessed reductions of images
REACH = 10.0  # metres from the rig's origin to a camera: a place farther away may be in another unit
OPENGL = torch.diag(torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64))
T_VEHICLE_OPTICAL = torch.tensor(
    [[0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]], dtype=torch.float64
)  # x forward, y left, z up from x right, y down, z forward


@dataclass(frozen=True)
class Guess:
    """One way to read a capture's data of a camera."""

    name: str  # completes a sentence that begins with "if"
    camera: Camera
    remedy: str = ""
    seconds: float = 0.0  # that images are taken later than they say
    mirrored: bool = False  # images are, left to right
    place: str | None = None  # name of the camera that has this place
    turned: float = 0.0  # degrees that it looks farther left
    kind: str = ""  # of a guess by some amount
    amount: float = 0.0  # in the unit of the kind


def corrected(guesses: Sequence[Guess], capture: Capture) -> Capture:
    """The capture as the guesses have it; images that are mirrored stay as they are."""
    by_name, path = {guess.camera.name: guess for guess in guesses}, trajectory_of(capture)
    cameras = tuple(by_name[c.name].camera if c.name in by_name else c for c in capture.cameras)
    images = (
        _at(frame, by_name[frame.sensor].seconds if frame.sensor in by_name else 0, path) for frame in capture.images
    )
    return replace(capture, cameras=cameras, images=tuple(images))


def _at(frame: ImageFrame, seconds: float, path: Trajectory) -> ImageFrame:
    if not seconds:
        return frame
    start, end = frame.time_start + seconds, frame.time_end + seconds
    first, last = path.at(start), path.at(end)
    return replace(frame, time_start=start, time_end=end, T_world_rig_start=first, T_world_rig_end=last)


def as_said(camera: Camera) -> Guess:
    return Guess("all is as the capture says", camera)


def clocks(
    camera: Camera,
    period: float,  # seconds from one of its images to the next
) -> list[Guess]:
    """Guesses that stamps are off by whole frames or parts of them."""
    parts = [k * STEP for k in range(-7, 8) if k]
    wholes = [n * period for n in range(-FRAMES, FRAMES + 1) if n]
    offsets = [seconds for seconds in parts if all(abs(seconds - whole) > STEP / 2 for whole in wholes)] + wholes
    return [_late(camera, period, seconds) for seconds in sorted(offsets)]


def late_by_many(camera: Camera, period: float) -> list[Guess]:
    """Guesses that stamps are off by more whole frames."""
    frames = range(FRAMES + 1, MOST_FRAMES + 1)
    return [_late(camera, period, sign * n * period) for n in frames for sign in (-1, 1)]


def _late(camera: Camera, period: float, seconds: float) -> Guess:
    frames = round(seconds / period)
    whole = frames != 0 and abs(seconds - frames * period) < 0.2 * period
    count = f" ({abs(frames)} frame{'s' if abs(frames) > 1 else ''})" if whole else ""
    side = "earlier" if seconds < 0 else "later"
    name = f"the images were taken {abs(seconds):.2f} s{count} {side} than their stamps say"
    return Guess(name, camera, "correct its time stamps", seconds, kind=CLOCK, amount=seconds)


def neighbours(capture: Capture, camera: Camera) -> Iterator[Guess]:
    """Guesses that agree a little with edges although another is right: another camera's place, another focal length, no height."""
    T = camera.T_rig_cam
    for other in capture.cameras:
        if other.name != camera.name:
            name = f"the camera sits where {other.name} is said to sit"
            yield Guess(
                name,
                replace(camera, T_rig_cam=other.T_rig_cam),
                "correct its mounting, or its images",
                place=other.name,
            )
    for lidar in capture.lidars:
        name = f"the mounting is on {lidar.name}, not on the rig"
        on_lidar = replace(camera, T_rig_cam=lidar.T_rig_lidar @ T)
        yield Guess(name, on_lidar, "multiply T_rig_cam by T_rig_lidar from the left")
    yield from _square(camera)
    for k in ZOOMS:
        zoomed = replace(camera, fx=camera.fx * k, fy=camera.fy * k)
        size = f"{camera.width}x{camera.height} pixels"
        yield Guess(
            f"fx and fy are {k:g} times those of the capture", zoomed, f"correct fx and fy for images of {size}",
            kind=ZOOMED,
        )  # fmt: skip


def _square(camera: Camera) -> Iterator[Guess]:
    """Guesses of square pixels, if those of the capture are oblong."""
    fx, fy = camera.fx, camera.fy
    if max(fx / fy, fy / fx) > OBLONG:
        yield Guess("fy is as large as fx", replace(camera, fy=fx), "correct fy")
        yield Guess("fx is as large as fy", replace(camera, fx=fy), "correct fx")


def all_others(capture: Capture, camera: Camera) -> Iterator[Guess]:
    yield from mountings(capture, camera)
    yield from read_otherwise(capture, camera)
    yield from _places_in_other_units(camera)
    yield from _intrinsics(camera)
    yield Guess("the images are mirrored", camera, "turn the images round left to right", mirrored=True)
    width, height = camera.width, camera.height
    T = camera.T_rig_cam @ _about_z(180)
    below = replace(camera, T_rig_cam=T, cx=width - camera.cx, cy=height - camera.cy)
    yield Guess("the images are upside down", below, "turn the images by 180 degrees")
    yield Guess("the images are upside down and mirrored", below, "turn the images round top to bottom", mirrored=True)
    yield from (looking(camera, degrees) for degrees in (90, 180, -90))


def mountings(capture: Capture, camera: Camera) -> Iterator[Guess]:
    """Other mountings that the reader suggests, which knows the files."""
    return (_of_files(capture, camera, m) for m in capture.mountings if camera.name in m.T_lidar_cam and not m.missing)


def _of_files(capture: Capture, camera: Camera, mounting: Mounting) -> Guess:
    """Guess of a camera that is placed on the first lidar."""
    T = capture.lidars[0].T_rig_lidar @ mounting.T_lidar_cam[camera.name]
    return Guess(mounting.meaning, replace(camera, T_rig_cam=T), mounting.remedy, kind=FILES)


def missing_places(capture: Capture, camera: Camera) -> Iterator[Guess]:
    """Guesses that the place of the camera, or of the only lidar, is missing: it is near the one that is given."""
    yield from (_of_files(capture, camera, m) for m in capture.mountings if camera.name in m.T_lidar_cam and m.missing)
    if not bool(camera.T_rig_cam[:3, 3].any()) and not capture.mountings:
        name = "its place in the mounting, which is (0, 0, 0), is missing"
        yield Guess(name, camera, "give its place in T_rig_cam", kind=FILES)


def read_otherwise(capture: Capture, camera: Camera) -> Iterator[Guess]:
    """Other meanings of the camera's mounting."""
    T = camera.T_rig_cam
    from_world = "store the pose of the camera in the rig as T_rig_cam, not its inverse"
    known = {
        "the mounting has the axes of OpenGL (x right, y up, z back)": (
            T @ OPENGL, "multiply T_rig_cam by diag(1, -1, -1, 1) from the right",
        ),
        "the mounting is the inverse": (invert(T), from_world),
        "the mounting is the inverse, in the axes of OpenGL": (invert(T) @ OPENGL, from_world),
        "the mounting is the inverse, in the vehicle's axes": (invert(T) @ T_VEHICLE_OPTICAL, from_world),
        "the rotation is the inverse": (_placed(T[:3, :3].T, T), "transpose the rotation in T_rig_cam"),
        "the translation has the opposite sign": (_at_place(-T[:3, 3], T), "turn the sign of the translation in T_rig_cam"),
        "the mounting has the vehicle's axes (x forward, y left, z up)": (
            T @ T_VEHICLE_OPTICAL, "give T_rig_cam the axes x right, y down, z forward",
        ),
    }  # fmt: skip
    for degrees, name in ((90, "on its left side"), (180, "on its head"), (270, "on its right side")):
        known[f"the camera lies {name}"] = T @ _about_z(degrees), "turn T_rig_cam about the view, or turn the images"
    for lidar in capture.lidars:
        L, name = lidar.T_rig_lidar, lidar.name
        known[f"the mounting is the inverse of that on {name}, not on the rig"] = L @ invert(T), from_world
        known[f"the transform between camera and {name} is the inverse"] = L @ invert(invert(L) @ T), "invert it"
    for name, (T_rig_cam, remedy) in known.items():
        yield Guess(name, replace(camera, T_rig_cam=T_rig_cam), remedy, kind=MOUNTED)


def _places_in_other_units(camera: Camera) -> Iterator[Guess]:
    T = camera.T_rig_cam
    for unit, factor in OF_A_METRE.items() if float(T[:3, 3].norm()) > REACH else ():
        placed = replace(camera, T_rig_cam=_at_place(T[:3, 3] / factor, T))
        remedy = f"divide the translation in T_rig_cam by {factor:g}"
        yield Guess(f"the place in the mounting is in {unit}", placed, remedy)


def looking(camera: Camera, degrees: float) -> Guess:
    """Guess that the camera looks elsewhere from the same place: turned about the rig's vertical axis, positive to the left."""
    T = camera.T_rig_cam
    side = "backwards" if abs(degrees) > 178 else f"{abs(degrees):.0f}° farther {'left' if degrees > 0 else 'right'}"
    turned = replace(camera, T_rig_cam=_placed(_about_z(degrees)[:3, :3] @ T[:3, :3], T))
    return Guess(f"the camera looks {side}", turned, "correct its mounting", turned=degrees, kind=YAW, amount=degrees)


def _placed(R: Tensor, T: Tensor) -> Tensor:  # [4, 4] with the rotation R at the place of T
    placed = T.clone()
    placed[:3, :3] = R
    return placed


def _at_place(place: Tensor, T: Tensor) -> Tensor:  # [3], [4, 4] -> [4, 4] T at another place
    placed = T.clone()
    placed[:3, 3] = place
    return placed


def _about_z(degrees: float) -> Tensor:  # [4, 4]
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    T = torch.eye(4, dtype=torch.float64)
    T[:2, :2] = torch.tensor([[c, -s], [s, c]])
    return T


def _intrinsics(camera: Camera) -> Iterator[Guess]:
    names = "fx, fy, cx and cy"
    for k in FACTORS:
        remedy = f"for images of {camera.width}x{camera.height} pixels"
        yield Guess(
            f"the intrinsics are of an image {k:g} times as large",
            _scaled(camera, 1 / k),
            f"divide {names} by {k:g} {remedy}",
        )
        yield Guess(
            f"the intrinsics are of an image 1/{k:g} as large",
            _scaled(camera, k),
            f"multiply {names} by {k:g} {remedy}",
        )
    yield from _exchanges(camera)


def _exchanges(camera: Camera) -> Iterator[Guess]:
    fx, fy, cx, cy = camera.fx, camera.fy, camera.cx, camera.cy
    remedy = "exchange them"
    yield Guess("cx and cy are exchanged", replace(camera, cx=cy, cy=cx), remedy)
    yield Guess("fx and fy are exchanged", replace(camera, fx=fy, fy=fx), remedy)
    if min(cx, cy) <= 0:  # these are no focal lengths
        return
    both = replace(camera, fx=fy, fy=fx, cx=cy, cy=cx)
    yield Guess("x and y of fx, fy, cx and cy are exchanged", both, remedy)
    yield Guess("cx and cy stand where fx and fy belong", replace(camera, fx=cx, fy=cy, cx=fx, cy=fy), remedy)


def _scaled(camera: Camera, k: float) -> Camera:
    return replace(camera, fx=camera.fx * k, fy=camera.fy * k, cx=camera.cx * k, cy=camera.cy * k)
