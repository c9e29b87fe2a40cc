# SPDX-License-Identifier: Apache-2.0
"""A focal length or a distortion that is a little off: while a vehicle drives ahead, edges then move as with a wrong clock."""

from collections.abc import Iterator
from dataclasses import replace

from nurec_lite.capture.checks.alignment import Fit, Views, fit
from nurec_lite.capture.checks.evidence import agrees
from nurec_lite.capture.checks.guesses import CLOCK, Guess
from nurec_lite.capture.checks.placed import AHEAD, ZOOM, Kind, elsewhere
from nurec_lite.capture.trajectory import Trajectory
from nurec_lite.geometry.camera import Camera

ALIKE, ERRORS = 0.9, 3.0  # of the highest contrast, and standard errors below it: a cause that fits about as well
PLAINER = 0.95  # times its contrast: a coefficient of its own amount fits a little better by chance
LENS = "lens"  # kind of guesses
NAMED = 3  # causes in a sentence
COUNTS = {"pinhole": 5, "fisheye": 4}  # coefficients of the lenses that have k1 first


def _bent(camera: Camera, amount: float) -> Camera:
    k = camera.distortion or (0.0,) * COUNTS[camera.lens]
    return replace(camera, distortion=(k[0] + amount, *k[1:]))


FOCAL = replace(ZOOM, step=0.05, most=0.25)
BEND = Kind(
    "bend", ("k1 of the lens is {:.2f} larger", "k1 of the lens is {:.2f} smaller"), 0.06, 0.36, _bent, "correct its distortion"
)  # fmt: skip


def or_of_lens(views: Views, camera: Camera, path: Trajectory, clock: Fit) -> Fit:
    """The fit of a clock that is off, or of a lens or a place that agrees better; its name has those that agree about as well."""
    fits = [clock, elsewhere(views, camera, path, (AHEAD,))]
    fits += [elsewhere(views, camera, path, (kind,), quick=False) for kind in _kinds(camera)]
    fits += [fit(views, guess, path) for guess in _lenses(camera)]
    known = sorted((f for f in fits if f is clock or agrees(f)), key=_order, reverse=True)
    best = known[0]
    alike = [f for f in known if f.contrast >= ALIKE * best.contrast and not _apart(best, f)]
    alike = list({f.guess.kind: f for f in reversed(alike)}.values())[::-1][:NAMED]  # the first of each kind
    name, remedy = (", or ".join(getattr(f.guess, x) for f in alike) for x in ("name", "remedy"))
    return replace(best, guess=replace(best.guess, name=name, remedy=remedy))


def instead_of_clock(
    views: Views,
    camera: Camera,
    path: Trajectory,
    seconds: float,  # that images are taken later than they say
    said: Fit,  # of the capture's own data
) -> Fit | None:
    """The fit of a lens that agrees better than a clock that is a little off, and than the capture; None: none does."""
    name = f"its images were taken {1000 * abs(seconds):.0f} ms {'later' if seconds > 0 else 'earlier'}"
    clock = Guess(name, camera, "correct its time stamps", seconds, kind=CLOCK)
    best = or_of_lens(views, camera, path, fit(views, clock, path))
    return None if best.guess.kind in (CLOCK, AHEAD.name) or best.contrast <= said.contrast else best


def _order(found: Fit) -> float:
    return found.contrast * {AHEAD.name: ALIKE, BEND.name: PLAINER}.get(found.guess.kind, 1.0)


def _apart(best: Fit, other: Fit) -> bool:
    """Whether the best is better for sure; a clock and a place may both be right."""
    placed = {best.guess.kind, other.guess.kind} <= {CLOCK, AHEAD.name}
    return not placed and other is not best and best.above(other) >= ERRORS


def _kinds(camera: Camera) -> tuple[Kind, ...]:
    return (FOCAL, BEND) if camera.lens in COUNTS else (FOCAL,)


def _lenses(camera: Camera) -> Iterator[Guess]:
    """Other lenses that are easily taken for the right one."""
    if any(camera.distortion) and camera.lens in COUNTS:
        plain, turned = replace(camera, distortion=()), tuple(-k for k in camera.distortion)
        yield Guess("its images have no distortion", plain, "leave out the distortion", kind=LENS)
        opposite = replace(camera, distortion=turned)
        yield Guess("its distortion has the opposite sign", opposite, "turn the signs of the distortion", kind=LENS)
    for lens in COUNTS if camera.lens in COUNTS else ():
        if lens != camera.lens:
            other = replace(camera, lens=lens, distortion=())
            yield Guess(f"its lens is {lens}, not {camera.lens}", other, "correct lens and distortion", kind=LENS)
