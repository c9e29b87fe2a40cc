# SPDX-License-Identifier: Apache-2.0
"""A lidar, or one camera, that leans to a side by a degree or two.

Edges agree a little better in nearly all images if it is turned back. Where the lidar leans, this holds for all cameras.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from nurec_lite.capture.checks.alignment import Fit, Views, fit, look_aside, together, views_of
from nurec_lite.capture.checks.edges import View
from nurec_lite.capture.checks.evidence import agrees, closer_look, said_fit
from nurec_lite.capture.checks.guesses import as_said
from nurec_lite.capture.checks.half_turns import above
from nurec_lite.capture.checks.placed import KINDS, elsewhere
from nurec_lite.capture.checks.register import exp
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.trajectory import Trajectory, trajectory_of
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import invert

FIGURE = "rolled_degrees"
GLANCE = 1.5  # degrees to each side that a glance tries
DEGREES = [0.5 * k for k in range(-10, 11)]  # that are tried where it gains
LEAST = 1.0  # degrees that are named: right captures seem turned by 0.5 at most
PERHAPS, SURE = 1.0, 4.0  # standard errors of the gain: in a glance at one camera, and in all images
NO_OTHER = 0.97  # part of the contrast of cameras that are off in another way
LEANING = ("roll", "pitch", "left", "up")  # kinds of guesses that a lidar which leans makes about cameras
OTHERS = tuple(kind for kind in KINDS if kind.name != "roll")

Turned = Callable[[Camera, float], Camera]  # by so many degrees


def rolled(sample: Sample, check: str, doubted: Sequence[Level]) -> Verdict | None:
    """A finding in place of those about cameras, with these levels; None: nothing leans or tells it, or one camera is named."""
    seen = {camera.name: glance(sample, camera) for camera in sample.capture.cameras}
    doubtful = [name for name, fits in seen.items() if any(above([(fits[0], side)], PERHAPS) for side in fits[1:])]
    if not doubtful or len(doubted) == 1 or sample.blamed("poses", "rays"):
        return None
    more, known = closer_look(sample), [camera for camera in sample.capture.cameras if seen[camera.name]]
    lidars = [lidar for lidar in sample.capture.lidars if lidar.spins]
    if len(lidars) == 1 and (degrees := _turn(more, known, partial(_against, lidars[0]))):
        level = Level.CERTAIN if Level.CERTAIN in doubted else Level.LIKELY
        return _of_lidar(lidars[0], len(known), degrees, Verdict(check, lidars[0].name, level, ""))
    for camera in known if not doubted else []:
        if camera.name in doubtful and (degrees := _turn(more, [camera], about_view)):
            return _of_camera(camera, degrees, check)
    return None


def glance(sample: Sample, camera: Camera) -> list[Fit]:
    """Fits of a camera as the capture says, and turned about its view to both sides; none where its edges do not agree."""
    return sample.kept(("rolled", camera.name), partial(_glance, sample, camera))


def _glance(sample: Sample, camera: Camera) -> list[Fit]:
    views = views_of(sample, camera)
    said = [said_fit(sample, camera)] if views else []
    if not said or not agrees(said[0]):
        return []
    return [*said, *_fits(views, [about_view(camera, degrees) for degrees in (-GLANCE, GLANCE)], sample)]


def _fits(views: list[View], cameras: Sequence[Camera], sample: Sample) -> list[Fit]:
    stacked, path = together(views), trajectory_of(sample.capture)
    return [fit(stacked, as_said(camera), path) for camera in cameras]


def _turn(sample: Sample, cameras: Sequence[Camera], turned: Turned) -> float | None:
    """Degrees that all these cameras are turned by; None: not at all, or they are off in another way."""
    path, looks = trajectory_of(sample.capture), [(camera, views_of(sample, camera)) for camera in cameras]
    looks = [(camera, views) for camera, views in looks if views]
    found = [_fits(views, [turned(camera, degrees) for degrees in DEGREES], sample) for camera, views in looks]
    if not found:
        return None
    sums, now = [sum(fits[k].contrast for fits in found) for k in range(len(DEGREES))], DEGREES.index(0.0)
    best = max(range(len(DEGREES)), key=sums.__getitem__)
    pairs = [(fits[now], fits[best]) for fits in found]
    all_gain = above(pairs, SURE) and all(turn.contrast > said.contrast for said, turn in pairs)
    if abs(DEGREES[best]) < LEAST or best in (0, len(DEGREES) - 1) or not all_gain:
        return None
    others = sum(_other(together(views), camera, path).contrast for camera, views in looks)
    return DEGREES[best] if sums[best] >= NO_OTHER * others else None


def _other(views: Views, camera: Camera, path: Trajectory) -> Fit:
    """The best fit of a camera that is off in another way."""
    aside = fit(views, look_aside(views, camera, path), path)
    return max(aside, elsewhere(views, camera, path, OTHERS), key=lambda known: known.contrast)


# ---- turns


def about_view(camera: Camera, degrees: float) -> Camera:
    return replace(camera, T_rig_cam=camera.T_rig_cam.double() @ about_axis(2, degrees))


def _against(lidar: Lidar, camera: Camera, degrees: float) -> Camera:
    """The camera as it looks if the lidar is turned about its forward axis."""
    T = lidar.T_rig_lidar.double()
    return replace(camera, T_rig_cam=T @ about_axis(0, -degrees) @ invert(T) @ camera.T_rig_cam.double())


def _turned_back(name: str, degrees: float, capture: Capture) -> Capture:
    lidars = (
        replace(lidar, T_rig_lidar=lidar.T_rig_lidar.double() @ about_axis(0, degrees)) if lidar.name == name else lidar
        for lidar in capture.lidars
    )
    return replace(capture, lidars=tuple(lidars))


def about_axis(axis: int, degrees: float) -> Tensor:  # [4, 4]
    motion = torch.zeros(6, dtype=torch.float64)
    motion[axis] = math.radians(degrees)
    return exp(motion)


# ---- words


def _of_lidar(lidar: Lidar, cameras: int, degrees: float, begun: Verdict) -> Verdict:
    side, which = "right" if degrees > 0 else "left", "the camera" if cameras == 1 else "all cameras"
    sentence = (
        f"Edges of {lidar.name} agree better with those of the images of {which} if {lidar.name} leans {abs(degrees):.1f}° farther to its "
        f"{side}, or {which} to the other side."
    )
    remedy = f"correct T_rig_lidar of {lidar.name}, or the mounting{'s' * (cameras > 1)} of {which}"
    back = partial(_turned_back, lidar.name, degrees)
    return replace(begun, sentence=sentence, remedy=remedy, figures={FIGURE: degrees}, corrected=back)


def _of_camera(camera: Camera, degrees: float, check: str) -> Verdict:
    side = "clockwise" if degrees > 0 else "counter-clockwise"
    sentence = (
        f"Edges of the lidar agree better with those of the images of {camera.name} if it is turned {abs(degrees):.1f}° about its view, "
        f"{side}."
    )
    return Verdict(check, camera.name, Level.LIKELY, sentence, "correct its mounting", {FIGURE: degrees})
