# SPDX-License-Identifier: Apache-2.0
"""Findings about a capture, in sentences: missing sensors, dark images, and sensors that disagree."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import torch
from torch import Tensor

from nurec_lite.base.left_out import LeftOut
from nurec_lite.capture.checks.agreement import agreement
from nurec_lite.capture.checks.alignment import views_of
from nurec_lite.capture.checks.cameras import CHECK as CAMERAS
from nurec_lite.capture.checks.fine import LATE_FIGURE, TURNED_FIGURE, WAY, speed_of
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.trust import poses_are_wrong
from nurec_lite.capture.checks.verdict import Verdict
from nurec_lite.capture.types import FOUND, Capture
from nurec_lite.config import Config
from nurec_lite.evaluation.drawing import DrawnImage
from nurec_lite.evaluation.measure import Evaluation
from nurec_lite.scene.calibration import Calibration
from nurec_lite.scene.scene import Scene

FEW = 20  # moments
DARK = 0.15  # mean of the images, 0 to 1
TURNED = 0.1  # degrees, more than the corrections of correctly mounted cameras
SIGMAS = 3.0  # standard errors of edges: smaller corrections are uncertain
LATE = 9.0  # milliseconds, and as much as the vehicle takes for WAY: clocks of right drives were corrected by up to 9 ms (PandaSet)
SHORT = 0.4  # of the way that a run's rates allow: a farther correction had not converged


def findings(
    capture: Capture,
    scene: Scene,
    config: Config,
    steps: int,  # that were done
    evaluation: Evaluation | None,
    left_out: LeftOut | None = None,  # collects the parts that fail
    doubts: Sequence[Verdict] = (),  # findings of the capture's checks
) -> list[str]:
    """Returns a sentence for each finding. Learned corrections of sensors count where the checks found nothing."""
    left_out = left_out or LeftOut()
    images = () if evaluation is None else evaluation.images
    known, nothing = scene.calibration, (list[str](), list[str]())
    turned, late = nothing
    if known is not None and not poses_are_wrong(doubts):  # sensors are not blamed for the errors of wrong poses
        learned = partial(_from_calibration, known, capture, config, steps)
        turned, late = left_out.tried("The search for sensors that were corrected", learned) or nothing
    about = {key for verdict in doubts if verdict.check == CAMERAS for key in verdict.figures}
    turned, late = ([] if about - {LATE_FIGURE} else turned), ([] if about - {TURNED_FIGURE} else late)
    lacking = (
        left_out.tried("The search for missing parts of the capture", lambda: list(_lacking(capture, config))) or []
    )
    dark = left_out.tried("The search for dark images", lambda: list(_dark(images))) or []
    return [*lacking, *dark, *turned, *late]


def _from_calibration(known: Calibration, capture: Capture, config: Config, steps: int) -> tuple[list[str], list[str]]:
    """Sentences about turns and about clocks that were learned."""
    learned, other = _learned(known, capture), "the lidar" if capture.sweeps else "the poses"
    if learned is None:
        return [], []
    reach = math.degrees(config.lr.camera_rotations) * _way(config, steps)
    reach_ms = 1000 * config.lr.camera_offsets * _way(config, steps)
    turned = list(_turned(learned, reach, other, partial(_known_within, capture)))
    return turned, list(_late(learned, max(LATE, _clocks_within(capture)), reach_ms, other))


def _clocks_within(capture: Capture) -> float:
    """Milliseconds of precision of clocks from the drive: a slow vehicle goes no farther than places on the rig are known."""
    camera = capture.cameras[0]
    speed = speed_of(capture, camera, [frame for frame in capture.images if frame.sensor == camera.name])
    return 1000 * WAY / max(speed, 1e-3)


def _known_within(capture: Capture, names: Sequence[str]) -> float:
    """Degrees of precision of the turns of these cameras against one another, from edges of the drive's sweeps: SIGMAS standard errors. A
    smaller correction has no evidence in the drive. 0 where edges say nothing, also without a lidar."""
    sample = Sample(capture)
    close = [agreement(capture, camera, views_of(sample, camera)) for camera in capture.cameras if camera.name in names]
    return SIGMAS * math.sqrt(sum(found.degrees_error**2 for found in close if found is not None) / len(names) * 2)


def _lacking(capture: Capture, config: Config) -> Iterator[str]:
    moments, seen = set(capture.moments.images), {f.sensor for f in capture.images}
    if not capture.sweeps:
        yield "No lidar: distances are guessed and learned from images alone, and ranges are not measured."
    elif config.train.lidar_rays == 0:
        yield "The lidar only says where Gaussians begin: no range is learned from it (train.lidar_rays=0)."
    yield from _tracks(capture, config)
    if len(seen) == 1:
        yield f"One camera, {min(seen)}: views from off its path are uncertain."
    if len(moments) < FEW:
        yield f"Few moments, {len(moments)}: figures are means of few images, and nothing is known beyond a short way."


def _tracks(capture: Capture, config: Config) -> Iterator[str]:
    found = Counter(
        c for name, c in zip(capture.tracks.ids, capture.tracks.classes, strict=True) if name.startswith(FOUND)
    )
    searched = capture.sweeps and config.data.tracks.source in ("auto", "lidar")
    if found:
        counted = ", ".join(f"{number} {name}" for name, number in sorted(found.items()))
        yield f"Moving objects without a label: the sweeps show {counted}."
    elif len(capture.tracks) == 0 and searched:
        yield "No tracks: the sweeps show no object that moves for certain. Moving objects are learned as static, and blur."
    elif len(capture.tracks) == 0:
        yield "No tracks: moving objects are learned as static, and blur."


def _dark(images: tuple[DrawnImage, ...]) -> Iterator[str]:
    mean = sum(float(image.truth.mean()) for image in images) / (255 * max(1, len(images)))
    if images and mean < DARK:
        yield f"Dark images, {mean:.2f} of 1 in the mean: that alone makes PSNR high, so compare it with dark images only."


# ---- sensors


@dataclass(frozen=True)
class Learned:
    """Learned corrections of cameras, one row each that has any."""

    names: list[str]
    turns: Tensor  # [c, 3] degrees
    late: Tensor  # [c, 1] milliseconds that clocks are behind


def _learned(known: Calibration, capture: Capture) -> Learned | None:
    """Waits for the device."""
    rows = [k for k, _ in enumerate(known.cameras) if known.eyes(k) == [k]]
    cameras = [camera for camera in capture.cameras if known.camera_row(camera) in rows]
    if not cameras:
        return None
    names = [camera.name for camera in cameras]
    turns = torch.rad2deg(torch.stack([known.turn(camera) for camera in cameras]).cpu())
    late = 1000 * known.camera_offsets.detach().cpu()[[known.cameras.index(name) for name in names], None]
    return Learned(names, turns, late)


def _way(config: Config, steps: int) -> float:
    """The way that a parameter can go in a run, in multiples of its first rate."""
    decay = config.lr.decay
    return steps * (1.0 if decay == 1 else (decay - 1) / math.log(decay))


def _turned(
    learned: Learned,
    reach: float,  # degrees that the run could have found
    other: str,
    known_within: Callable[[Sequence[str]], float],  # degrees, of these cameras; computed only if something was learned
) -> Iterator[str]:
    names, turns = learned.names, learned.turns
    apart, i, j = _farthest(turns)
    if apart >= TURNED and apart >= known_within([names[i], names[j]]):
        yield f"{names[i]} and {names[j]} are turned against each other by {_size(apart, 2 * reach)}{apart:.2f}°."
    common = float(turns.mean(0).norm())
    if common >= max(TURNED, apart) and common >= known_within(names) / math.sqrt(len(names)):
        cameras = f"{names[0]} is" if len(names) == 1 else "All cameras are"
        yield f"{cameras} turned against {other} by at least {common:.2f}°."


def _late(
    learned: Learned,
    least: float,  # milliseconds that are worth a sentence
    reach: float,  # milliseconds that the run could have found
    other: str,
) -> Iterator[str]:
    names, late = learned.names, learned.late
    apart, i, j = _farthest(late)
    if apart >= least:
        behind, ahead = (i, j) if late[i] > late[j] else (j, i)
        yield f"The clock of {names[behind]} is {_size(apart, 2 * reach)}{apart:.0f} ms behind that of {names[ahead]}."
    common = float(late.mean())
    if abs(common) >= max(least, apart):
        way = "behind" if common > 0 else "ahead of"
        clocks = f"The clock of {names[0]} is" if len(names) == 1 else "The clocks of all cameras are"
        yield f"{clocks} at least {abs(common):.0f} ms {way} that of {other}."


def _farthest(values: Tensor) -> tuple[float, int, int]:
    """Largest distance of two rows, and which two they are."""
    pairs = combinations(range(len(values)), 2)
    return max(((float((values[i] - values[j]).norm()), i, j) for i, j in pairs), default=(0.0, 0, 0))


def _size(found: float, reach: float) -> str:
    return "at least " if found > SHORT * reach else ""
