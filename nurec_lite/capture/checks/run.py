# SPDX-License-Identifier: Apache-2.0
"""Runs all checks of a capture. A check that raises an error yields a verdict that says so, and never costs the run."""

import logging
from collections.abc import Callable, Iterable

from nurec_lite.base.errors import UserError
from nurec_lite.capture.checks import (
    boxes,
    cameras,
    driving,
    files,
    images,
    poses,
    positions,
    ray_crops,
    ray_times,
    rays,
    stamps,
)
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict

log = logging.getLogger(__name__)
Check = Callable[[Sample], Iterable[Verdict]]
CHECKS: dict[str, Check] = {
    files.NAME: files.check_files,
    stamps.NAME: stamps.check_stamps,
    rays.NAME: rays.check_rays,
    ray_crops.NAME: ray_crops.check_crops,
    positions.NAME: positions.check_positions,
    driving.NAME: driving.check_driving,
    poses.NAME: poses.check_poses,
    ray_times.NAME: ray_times.check_ray_times,
    images.NAME: images.check_images,
    cameras.CHECK: cameras.check_cameras,
    boxes.NAME: boxes.check_boxes,
}  # by what is compared with what, in the order in which a user reads the verdicts


def verdicts(sample: Sample) -> list[Verdict]:
    """Verdicts of all checks, in the order of CHECKS; each check can see those before it. UserError where a frame cannot be read: its
    sentence is the reader's."""
    for name, check in CHECKS.items():
        sample.found.extend(_guarded(name, check, sample))
    return sample.found


def all_verdicts(sample: Sample) -> list[Verdict]:
    """The same, but a frame that cannot be read is a verdict, and the other checks go on."""
    for name, check in CHECKS.items():
        try:
            sample.found.extend(_guarded(name, check, sample))
        except UserError as error:
            sample.found.append(Verdict("frames and files", sample.capture.name, Level.CERTAIN, f"{error}."))
    return list({(v.check, v.subject, v.sentence): v for v in sample.found}.values())


def _guarded(name: str, check: Check, sample: Sample) -> list[Verdict]:
    try:
        return list(check(sample))
    except UserError:
        raise
    except Exception as error:
        log.debug("the check of %s failed", name, exc_info=True)
        sentence = f"The check of {name} failed: {type(error).__name__}: {error}."
        return [Verdict(name, sample.capture.name, Level.FAILED, sentence)]
