# SPDX-License-Identifier: Apache-2.0
"""Findings about sensors that disagree: sentences about learned corrections. It imports the checks of captures, which a run does without
where sensors agree."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations

from torch import Tensor

from nurec_lite.capture.checks.agreement import agreement
from nurec_lite.capture.checks.alignment import views_of
from nurec_lite.capture.checks.cameras import CHECK as CAMERAS
from nurec_lite.capture.checks.fine import LATE_FIGURE, TURNED_FIGURE, WAY, speed_of
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.trust import poses_are_wrong
from nurec_lite.capture.checks.verdict import Verdict
from nurec_lite.capture.types import Capture
from nurec_lite.config import Config
from nurec_lite.evaluation.learned_corrections import LATE, TURNED, Learned

SIGMAS = 3.0  # standard errors of edges: smaller corrections are uncertain
SHORT = 0.4  # of the way that a run's rates allow: a farther correction had not converged


def corrected_sensors(
    learned: Learned,
    capture: Capture,
    config: Config,
    steps: int,  # that were done
    doubts: Sequence[Verdict],  # of the capture's checks
) -> list[str]:
    """Sentences about turns and about clocks that were learned, where the checks found nothing. Sensors are not blamed for the errors of
    wrong poses."""
    if poses_are_wrong(doubts):
        return []
    turned, late = _from_corrections(learned, capture, config, steps)
    about = {key for verdict in doubts if verdict.check == CAMERAS for key in verdict.figures}
    return [*([] if about - {LATE_FIGURE} else turned), *([] if about - {TURNED_FIGURE} else late)]


def _from_corrections(learned: Learned, capture: Capture, config: Config, steps: int) -> tuple[list[str], list[str]]:
    other = "the lidar" if capture.sweeps else "the poses"
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
