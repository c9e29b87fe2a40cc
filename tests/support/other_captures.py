# SPDX-License-Identifier: Apache-2.0
"""Captures that are not the one that a checkpoint was made from: the change of the tiny one, and the sentence.

OTHER cannot mean the same and is refused. LIKE can be measured, and is a warning.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from tiny_capture import Loaded

from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame

Change = Callable[[Capture], Capture]


def cameras(change: Callable[[Any], Any], only: str = "camera_0") -> Change:
    return lambda c: replace(
        c, cameras=tuple(change(camera) if camera.name == only else camera for camera in c.cameras)
    )


def lidar(**values: Any) -> Change:
    return lambda c: replace(c, lidars=(replace(c.lidars[0], **values),))


def frames(change: Callable[[Any], Any], only: str = "") -> Change:
    """Changes frames of one sensor, or of all."""

    def changed(group: Any) -> Any:
        return tuple(change(f) if only in ("", f.sensor) else f for f in group)

    return lambda c: replace(c, images=changed(c.images), sweeps=changed(c.sweeps), split=None)


def late(frame: Any, seconds: float = 0.02) -> Any:
    load = frame.load
    if isinstance(frame, SweepFrame):
        sweep = load()
        load = Loaded(replace(sweep, times=sweep.times + seconds))
    return replace(frame, time_start=frame.time_start + seconds, time_end=frame.time_end + seconds, load=load)


def moved(frame: Any, metres: float) -> Any:
    T = [getattr(frame, name).clone() for name in ("T_world_rig_start", "T_world_rig_end")]
    for pose in T:
        pose[1, 3] += metres
    return replace(frame, T_world_rig_start=T[0], T_world_rig_end=T[1])


def shown(frame: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    return replace(frame, load=Loaded(change(frame.load()))) if isinstance(frame, ImageFrame) else frame


def measured(frame: Any, metres: float) -> Any:
    if isinstance(frame, ImageFrame):
        return frame
    sweep = frame.load()
    return replace(frame, load=Loaded(replace(sweep, ranges=torch.where(sweep.returned, sweep.ranges + metres, 0))))


def raised(T: torch.Tensor, metres: float) -> torch.Tensor:
    T = T.clone()
    T[2, 3] += metres
    return T


def exchanged(c: Capture) -> Capture:
    """The images of the two cameras."""
    of = {(f.sensor, f.index): f.load for f in c.images}
    other = {"camera_0": "camera_1", "camera_1": "camera_0"}
    return replace(c, images=tuple(replace(f, load=of[other[f.sensor], f.index]) for f in c.images))


def renamed(c: Capture) -> Capture:
    names = {"camera_0": "port", "camera_1": "camera_1"}
    return replace(
        c,
        cameras=tuple(replace(camera, name=names[camera.name]) for camera in c.cameras),
        images=tuple(replace(f, sensor=names[f.sensor]) for f in c.images),
    )


def tracks(**values: Any) -> Change:
    return lambda c: replace(c, tracks=replace(c.tracks, **{k: v(c.tracks) for k, v in values.items()}))


def first_image(c: Capture) -> Capture:
    """One image is edited."""
    edited = shown(c.images[6], lambda image: 255 - image)
    return replace(c, images=(*c.images[:6], edited, *c.images[7:]))


OTHER: dict[str, tuple[Change, str]] = {
    "cameras in another order": (
        lambda c: replace(c, cameras=c.cameras[::-1], split=None),
        r"it has the cameras camera_1, camera_0 in this order, but had camera_0, camera_1; give 'data\.cameras=\[camera_0,camera_1\]'",
    ),
    "images of cameras exchanged": (exchanged, r"image \d of camera_0 shows something else than it did \(by \d+"),
    "a camera of another name": (renamed, r"it has the cameras port, camera_1, but had the cameras camera_0, camera_1"),
    "another focal length": (cameras(lambda c: replace(c, fx=1.2 * c.fx)), r"camera camera_0 has fx [\d.]+, but had [\d.]+"),
    "another principal point": (cameras(lambda c: replace(c, cy=c.cy + 0.5)), r"camera camera_0 has cy [\d.]+, but had"),
    "another lens": (
        cameras(lambda c: replace(c, distortion=(-0.05, 0.0, 0.0, 0.0, 0.0))),
        r"camera camera_0 has the distortion \[-0\.05, 0, 0, 0, 0\], but had \[(0, ){4}0\]|but had \[\]",
    ),
    "another shutter": (cameras(lambda c: replace(c, shutter="global")), r"camera camera_0 has the shutter global, but had"),
    "a camera that sits elsewhere": (
        cameras(lambda c: replace(c, T_rig_cam=raised(c.T_rig_cam, 0.01)), "camera_1"),
        r"camera camera_1 sits at .* m on the rig, but sat at",
    ),
    "a lidar that sits elsewhere": (
        lambda c: lidar(T_rig_lidar=raised(c.lidars[0].T_rig_lidar, 0.05))(c), r"lidar lidar sits at 0, 0, [\d.]+ m on the rig, but sat",
    ),
    "a lidar of other beams": (
        lambda c: lidar(elevations=c.lidars[0].elevations + 0.01)(c), r"lidar lidar has beam 0 at [-\d.]+ degrees, but had it at",
    ),
    "a lidar that turns the other way": (lidar(clockwise=False), r"lidar lidar has clockwise=false, but had true"),
    "frames of other times": (frames(late), r"frame 0 of camera_0 \(and 9 more\) is of [\d.]+ s, but was of [\d.]+ s"),
    "one sensor's clock": (frames(late, "camera_1"), r"frame 0 of camera_1 \(and 9 more\) is of [\d.]+ s, but was of"),
    "frames of other numbers": (
        frames(lambda f: replace(f, index=f.index + 100)),
        r"camera_0, camera_1, lidar have 10 frames, 100 to 109, but had 10 frames, 0 to 9, none of them the same",
    ),
    "numbers that begin with one": (
        frames(lambda f: replace(f, index=f.index + 1)), r"camera_0, camera_1, lidar have 10 frames, 1 to 10, but had 10 frames, 0 to 9",
    ),
    "half of the frames": (
        lambda c: replace(c, images=c.images[:10], sweeps=c.sweeps[:5], split=None), r"but had 10 frames, 0 to 9",
    ),
    "brighter images": (
        frames(lambda f: shown(f, lambda image: (image.float() * 1.1).clamp(max=255).to(torch.uint8))),
        r"image 0 of camera_0 shows something else",
    ),
    "sweeps of another drive": (frames(lambda f: measured(f, 0.5)), r"sweep 0 of lidar has a mean range of [\d.]+ m about"),
    "tracks of other names": (
        tracks(ids=lambda t: tuple(f"{name}x" for name in t.ids)), r"it has 4 tracks \(.*x.*\), but had 4 tracks \(",
    ),
    "tracks of other classes": (tracks(classes=lambda t: ("Tram", *t.classes[1:])), r"track \S+ is a Tram, but was a \w+"),
    "tracks of another drive": (
        tracks(translations=lambda t: t.translations + 8.0), r"boxes of tracks are up to [\d.]+ m off their old places",
    ),
    "a vehicle elsewhere": (
        frames(lambda f: moved(f, 12.0)), r"poses are up to 12 m and 0 degrees off their old values \(frame \d of \w+\)",
    ),
}  # fmt: skip
LIKE: dict[str, tuple[Change, str]] = {
    "poses that are a little off": (frames(lambda f: moved(f, 0.3)), r"poses are up to 0\.3 m and 0 degrees off"),
    "boxes that are a little off": (
        tracks(translations=lambda t: t.translations + 0.1), r"boxes of tracks are up to 0\.173 m off their old places",
    ),
    "boxes of another size": (tracks(sizes=lambda t: t.sizes + 0.2), r"boxes of tracks are up to 0\.2 m off their old places"),
}  # fmt: skip
