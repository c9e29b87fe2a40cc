# SPDX-License-Identifier: Apache-2.0
"""Runs all checks of a capture. A check that raises an error yields a verdict that says so, and never costs the run."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial

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
from nurec_lite.capture.checks.joined import joined
from nurec_lite.capture.checks.leaning import without_consequences
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.together import Found, done_together
from nurec_lite.capture.checks.verdict import Level, Verdict, failed
from nurec_lite.capture.checks.works import Work, camera_works, first_works, found_works, no_works, second_works

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
}  # by the compared data, in the order of the printed verdicts


Line = tuple[str, ...]  # checks that see the verdicts of those before them in the line
WAVES: tuple[tuple[Callable[[Sample], Iterable[Work]], tuple[Line, ...]], ...] = (
    (first_works, ((files.NAME, stamps.NAME),)),
    (second_works, ((rays.NAME, positions.NAME, driving.NAME, poses.NAME),)),
    (camera_works, ((boxes.NAME,), (ray_crops.NAME,))),
    (found_works, ((images.NAME,), (ray_times.NAME,))),
    (no_works, ((cameras.CHECK,),)),
)  # works and lines of a wave are done at the same time; a check sees the verdicts of earlier waves


def verdicts(sample: Sample) -> list[Verdict]:
    """Verdicts of all checks, in the order of CHECKS. UserError where a frame cannot be read: its sentence is the reader's."""
    found: Found = {}
    for of_wave in _waves(sample):
        found |= of_wave
        for result in (found[name] for name in CHECKS if name in found):
            if isinstance(result, UserError):
                raise result
    return _in_order(sample, found)


def all_verdicts(sample: Sample) -> list[Verdict]:
    """Verdicts of all checks. A frame that cannot be read is a verdict, and the other checks go on."""
    found: Found = {}
    for of_wave in _waves(sample):
        found |= of_wave
    return list({(v.check, v.subject, v.sentence): v for v in _in_order(sample, found)}.values())


def _in_order(sample: Sample, found: Found) -> list[Verdict]:
    every = [verdict for name in CHECKS for verdict in _said(sample, found[name])]
    try:
        every = without_consequences(sample, joined(sample, every))
    except Exception as error:
        every.append(failed("The search for one cause", cameras.CHECK, sample.capture.name, error))
    sample.found[:] = every
    return sample.found


def _said(sample: Sample, found: list[Verdict] | UserError) -> list[Verdict]:
    if isinstance(found, UserError):
        return [Verdict("frames and files", sample.capture.name, Level.CERTAIN, f"{found}.")]
    return found


def _waves(sample: Sample) -> Iterator[Found]:
    """The results of each wave. Checks that no wave names come last, one after another."""
    named = {name for _, lines in WAVES for line in lines for name in line}
    rest = tuple(name for name in CHECKS if name not in named)
    for works, lines in (*WAVES, (no_works, (rest,))):
        known = [tuple(name for name in line if name in CHECKS) for line in lines]
        jobs = [
            *(partial(_checked, sample, line) for line in known),  # first, as they take longest
            *(partial(_done, work) for work in _named(works, sample)),
        ]
        yield {
            name: result
            for found in done_together(sample, jobs if any(known) else [])
            for name, result in found.items()
        }


def _named(works: Callable[[Sample], Iterable[Work]], sample: Sample) -> list[Work]:
    """The works of a wave, up to one whose frames cannot be read. The check that needs it meets the error again and reports it."""
    named = list[Work]()
    with suppress(Exception):
        for work in works(sample):
            named.append(work)  # those before an error stay
    return named


def _done(work: Work) -> Found:
    """Returns no finding. The check that needs the work meets its error again and reports it."""
    with suppress(Exception):
        work()
    return {}


def _checked(sample: Sample, line: Line) -> Found:
    found: Found = {}
    for name in line:
        try:
            found[name] = result = _guarded(name, CHECKS[name], sample)
        except UserError as error:
            found[name] = error
        else:
            sample.found.extend(result)
    return found


def _guarded(name: str, check: Check, sample: Sample) -> list[Verdict]:
    try:
        return list(check(sample))
    except UserError:
        raise
    except Exception as error:
        return [failed(f"The check of {name}", name, sample.capture.name, error)]
