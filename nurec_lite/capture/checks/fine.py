# SPDX-License-Identifier: Apache-2.0
"""Small turns of cameras, and small offsets of their clocks, where edges agree as the capture says."""

import math
from collections.abc import Iterator, Sequence

import torch

from nurec_lite.capture.checks.agreement import Agreement
from nurec_lite.capture.checks.alignment import Fit
from nurec_lite.capture.checks.edges import View, pixel_degrees
from nurec_lite.capture.checks.found import Found
from nurec_lite.capture.checks.verdict import Level
from nurec_lite.capture.trajectory import velocities
from nurec_lite.capture.types import Capture, ImageFrame
from nurec_lite.geometry.camera import Camera

TURNED_FIGURE, LATE_FIGURE = "degrees", "milliseconds"  # names of the figures of a verdict
TURNED = 0.2  # degrees: mountings of published data sets are off by up to 0.18 (PandaSet), and
OF_A_PIXEL = 0.4  # that a camera may be turned by without a word
FAR = 2.0  # degrees: a camera that is turned so much is certainly wrong
LATE = 0.012  # seconds, and
WAY = 0.10  # metres of the vehicle's way that a clock may be off without a word: places on the rig are known so well
PLACE = 4.0  # metres between images at least: images of one place are off alike, and are evidence of one image
SLOWEST = 1e-6  # metres a second: a vehicle at rest shows no clock
ROUGH_RAYS, OF_A_RAY = 1.0, 0.5  # degrees between rays: of coarser ones, a part of their angle says nothing
COARSE_RAYS = 2.0  # degrees between rays: a coarser lidar shows no small rotations, nor does one without beams, or
COARSE_PIXELS = 0.9  # degrees of an image's pixel: right cameras with coarser ones seem off by half a degree or 60 ms


def speed_of(capture: Capture, camera: Camera, frames: Sequence[ImageFrame]) -> float:  # metres a second, median
    known = velocities(capture, camera.name)
    return float(torch.stack([known.at(frame.time_mid)[3:].norm() for frame in frames]).median())


def fine(capture: Capture, camera: Camera, views: list[View], said: Fit, found: Agreement) -> Iterator[Found]:
    turn, late = abs(found.degrees), abs(found.seconds)
    figures = {TURNED_FIGURE: found.degrees, LATE_FIGURE: 1000 * found.seconds, "contrast": said.contrast}
    figures |= {"turn": turn, "late": 1000 * late}
    rays = max((360 / lidar.azimuth_steps for lidar in capture.lidars if lidar.spins), default=math.inf)
    if rays > COARSE_RAYS or pixel_degrees(camera) > COARSE_PIXELS:
        yield Found(
            camera, Level.RIGHT, said, "Edges of the lidar lie on those of the images of {cameras}.", None, figures
        )
        return
    some_turn = max(TURNED, OF_A_PIXEL * pixel_degrees(camera), OF_A_RAY * rays if rays > ROUGH_RAYS else 0.0)
    speed = speed_of(capture, camera, [view.frame for view in views])
    some_late = max(LATE, WAY / max(speed, SLOWEST))
    if _of_one_place(views):
        some_turn, some_late = max(some_turn, FAR), max(some_late, found.seconds_least, late)
    if turn > max(some_turn, found.degrees_least):
        side, level = "left" if found.degrees > 0 else "right", Level.CERTAIN if turn >= FAR else Level.LIKELY
        sentence = f"The lidar shows {{cameras}} about {turn:.2f}° farther {side} than the capture says."
        yield Found(camera, level, said, sentence, "correct its mounting", {TURNED_FIGURE: found.degrees})
    if not found.is_clock:
        late = 0.0  # edges lie elsewhere at any speed
    if late > max(some_late, found.seconds_least):
        way = "behind" if found.seconds > 0 else "ahead of"
        sentence = f"The clock of {{cameras}} is about {1000 * late:.0f} ms {way} the lidar's."
        yield Found(
            camera, Level.LIKELY, said, sentence, "correct its time stamps", {LATE_FIGURE: 1000 * found.seconds}
        )
    if turn <= some_turn and late <= some_late:
        within = "within {turn:.2f}° and {late:.0f} ms"
        sentence = f"Edges of the lidar lie on those of the images of {{cameras}}, {within}."
        yield Found(camera, Level.RIGHT, said, sentence, None, figures)
    elif turn <= max(some_turn, found.degrees_least) and late <= max(some_late, found.seconds_least):
        yield Found(camera, Level.UNKNOWN, said, "Too few edges show the direction of {cameras}.", None, figures)


def _of_one_place(views: Sequence[View]) -> bool:
    places = torch.stack([view.frame.T_world_rig_start[:3, 3] for view in views])
    return float((places - places[0]).norm(dim=1).max()) < PLACE
