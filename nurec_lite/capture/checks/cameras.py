# SPDX-License-Identifier: Apache-2.0
"""Whether cameras look where they say, when they say, and with the intrinsics that they say: edges that the lidars see must lie on edges
of the images. Where they do not, conventions that are easily exchanged are tried, and the one that fits is named."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain

import torch

from nurec_lite.base.pool import in_threads
from nurec_lite.capture.checks.agreed import Agreement
from nurec_lite.capture.checks.agreement import FASTEST, agreement
from nurec_lite.capture.checks.alignment import Fit, Views, fit, look_around, look_aside, near, together, views_of
from nurec_lite.capture.checks.edges import View, pixel_degrees
from nurec_lite.capture.checks.ends import BACK
from nurec_lite.capture.checks.evidence import IMAGES, PERHAPS, agrees, closer_look, level_of, said_fit
from nurec_lite.capture.checks.fine import COARSE_PIXELS, LATE_FIGURE, TURNED_FIGURE, fine, speed_of
from nurec_lite.capture.checks.found import Found, verdicts_of
from nurec_lite.capture.checks.guesses import (
    FILES,
    Guess,
    all_others,
    as_said,
    clocks,
    late_by_many,
    looking,
    mountings,
    neighbours,
)
from nurec_lite.capture.checks.half_turns import half_turned
from nurec_lite.capture.checks.lenses import instead_of_clock, or_of_lens
from nurec_lite.capture.checks.order import NOWHERE, of_a_part, other_order
from nurec_lite.capture.checks.other_files import as_others, instead
from nurec_lite.capture.checks.placed import elsewhere, worth_a_look
from nurec_lite.capture.checks.rolled import LEANING, rolled
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.shutters import reversed_shutters
from nurec_lite.capture.checks.two_places import APART
from nurec_lite.capture.checks.unordered import MIXED
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.trajectory import Trajectory, trajectory_of
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.camera import Camera

CHECK = "cameras and sweeps"
BESIDE = 1.5  # times the turns that belong to a guess: a camera that is turned by more has another guess
CLEARLY = 1.12, 3.0  # times the best convention's contrast, and standard errors above it: a mounting is a little off
PLAINER = 0.95  # of the highest contrast of the conventions that a plainer one has at least
TURNED = 0.87  # times its contrast: a quarter turn is no convention
PROMISING = 8  # guesses of many that are looked at in full
ENOUGH = 800  # points of all images; it is odd if so many agree nowhere
PARTS = 4  # of the likely guesses
FLAT = 0.1  # standard deviation of ranks, 0.29 of an image that shows anything


def check_cameras(sample: Sample) -> list[Verdict]:
    capture = sample.capture
    if not capture.images:
        return [Verdict(CHECK, capture.name, Level.UNKNOWN, "There are no images to hold against the sweeps.")]
    if not capture.sweeps:
        return [Verdict(CHECK, capture.name, Level.UNKNOWN, "Without a lidar nothing says where the cameras look.")]
    found = list(chain.from_iterable(in_threads(partial(findings, sample), capture.cameras)))
    found = reversed_shutters(sample, found)
    found = [as_others(sample, known, found) for known in found]
    doubted = [known for known in found if known.level in (Level.LIKELY, Level.CERTAIN)]
    may_lean = all(known.guess is not None and known.guess.kind in LEANING for known in doubted)
    roll = rolled(sample, CHECK, [known.level for known in doubted]) if may_lean else None
    return verdicts_of(CHECK, found) if roll is None else [roll]


def parts_of(sample: Sample, camera: Camera) -> Iterator[Callable[[], object]]:
    """Work that the findings about a camera need if its poses are right, in parts of about the same length."""
    views = views_of(sample, camera)
    if views and not sample.blamed("poses", "rays"):
        yield partial(_close, sample, camera)
        yield from (partial(_likely_part, sample, camera, k) for k in range(PARTS))


def findings(sample: Sample, camera: Camera) -> list[Found]:
    """Findings about one camera, after the checks of poses and rays."""
    return sample.kept(("found", camera.name), partial(_found, sample, camera))


def _found(sample: Sample, camera: Camera) -> list[Found]:
    views, poses_wrong, path = views_of(sample, camera), sample.blamed("poses", "rays"), trajectory_of(sample.capture)
    why = _not_compared(sample, camera, views)
    if why:
        return [Found(camera, Level.UNKNOWN, Fit(as_said(camera), torch.zeros(0), 0.0, 0), why)]
    stacked, said, close = together(views), said_fit(sample, camera), _close(sample, camera)
    part = None if poses_wrong else of_a_part(sample, camera, said, _likely_fits(sample, camera))
    if part is not None:
        return [part]
    best = _guess(sample, camera, stacked, path, said, poses_wrong, close is not None)
    level = None if best is said else level_of(sample, camera, best, said, close is not None)
    if not poses_wrong and (level is not None or (close is None and sample.capture.mountings)):
        best, level = _or_of_files(sample, camera, stacked, said, best, level, close is not None)
    doubtful = not poses_wrong and (level is not None or close is None)
    order = other_order(sample, camera, said) if doubtful else None
    if order is not None and (level is None or order.figures["guessed"] > best.contrast):
        return [order]
    if level is not None:
        sample.keep(("guess", camera.name), best.guess)
        return [_guessed(camera, said, best, level)]
    if poses_wrong:
        sentence = "While the poses or the rays are wrong, sweeps do not show the direction of {cameras}."
        return [Found(camera, Level.UNKNOWN, said, sentence)]
    return [_unclear(camera, views, said)] if close is None else _fine(sample, camera, views, said, close)


def _or_of_files(
    sample: Sample, camera: Camera, views: Views, said: Fit, best: Fit, level: Level | None, holds: bool
) -> tuple[Fit, Level | None]:
    """The best fit and its level, or another reading of the files that agrees no worse."""
    other = instead(sample.capture, camera, views, trajectory_of(sample.capture), said, best)
    surely = None if other is None else level_of(sample, camera, other, said, holds)
    return (best, level) if other is None or surely is None else (other, surely)


def _not_compared(sample: Sample, camera: Camera, views: list[View]) -> str:
    """The reason why images and sweeps are not compared; empty where they are."""
    if not views:
        return "No sweep is of the moments of {cameras}."
    if any(APART in verdict.figures for verdict in sample.found):
        return "While sensors put the rig at two places at one time, sweeps do not show the direction of {cameras}."
    if any(BACK in verdict.figures for verdict in sample.found):
        return "While poses within frames go back, sweeps do not show the direction of {cameras}."
    if any(half_turned(sample, lidar) for lidar in sample.capture.lidars):
        return "While times of rays are half a turn off, sweeps do not show the direction of {cameras}."
    if any(MIXED in verdict.figures and verdict.subject == camera.name for verdict in sample.found):
        return "While images of {cameras} stand in no order, sweeps do not show its direction."
    return ""


def _fine(sample: Sample, camera: Camera, views: list[View], said: Fit, close: Agreement) -> list[Found]:
    """Findings about a small turn or delay of a camera that looks as the capture says."""
    found, path = list(fine(sample.capture, camera, views, said, close)), trajectory_of(sample.capture)
    if any(f.level in (Level.LIKELY, Level.CERTAIN) for f in found):  # a few images may all be off alike
        views = views_of(closer_look(sample), camera)
        close = agreement(sample.capture, camera, views) or close
        found = [_or_lens(f, together(views), path) for f in fine(sample.capture, camera, views, said, close)]
        found = [_if_shown(f, together(views), path) for f in found]
        found = _or_files(sample, camera, together(views), found)
    sample.agreements[camera.name] = close
    return found


def _or_files(sample: Sample, camera: Camera, views: Views, found: list[Found]) -> list[Found]:
    """The findings, or another reading of the files that explains them no worse."""
    doubted, path = [f for f in found if f.level in (Level.LIKELY, Level.CERTAIN)], trajectory_of(sample.capture)
    if not doubted:
        return found
    turn, late = (sum(f.figures.get(name, 0.0) for f in doubted) for name in (TURNED_FIGURE, LATE_FIGURE))
    off = doubted[0].guess or replace(looking(camera, turn), seconds=1e-3 * late)
    said = fit(views, as_said(camera), path)
    other = instead(sample.capture, camera, views, path, said, fit(views, off, path))
    if other is None:
        return found
    return [_guessed(camera, said, other, doubted[0].level)]


def _if_shown(found: Found, views: Views, path: Trajectory) -> Found:
    """The finding; nothing is known where a camera that is turned so much agrees no better than it does as the capture says."""
    if found.level is not Level.CERTAIN:
        return found
    said, turned = (fit(views, looking(found.camera, turn), path) for turn in (0.0, found.figures[TURNED_FIGURE]))
    if turned.contrast >= PERHAPS[0] * said.contrast and turned.above(said) >= PERHAPS[1]:
        return found
    return replace(found, level=Level.UNKNOWN, sentence="Too few edges show the direction of {cameras}.", remedy=None)


def _or_lens(found: Found, views: Views, path: Trajectory) -> Found:
    """The finding, or one about a lens where that explains a clock's offset better."""
    seconds = 1e-3 * found.figures.get(LATE_FIGURE, 0.0) if found.level is Level.LIKELY else 0.0
    best = instead_of_clock(views, found.camera, path, seconds, found.said) if seconds else None
    return found if best is None else _guessed(found.camera, found.said, best, Level.LIKELY)


def _close(sample: Sample, camera: Camera) -> Agreement | None:
    """Returns the best agreement near the capture's own values; None: edges do not agree there, or tell too little."""
    seen = agrees(said_fit(sample, camera))
    return sample.kept(
        ("close", camera.name),
        lambda: agreement(sample.capture, camera, views_of(sample, camera)) if seen else None,
    )


def _likely_part(sample: Sample, camera: Camera, k: int) -> list[Fit]:
    """Fits of every so many of the likely guesses."""

    def make() -> list[Fit]:
        views, path = together(views_of(sample, camera)), trajectory_of(sample.capture)
        return [fit(views, guess, path) for guess in list(_likely(sample.capture, camera, views, path))[k::PARTS]]

    return sample.kept(("likely", camera.name, k), make)


def _likely_fits(sample: Sample, camera: Camera) -> list[Fit]:
    parts = [_likely_part(sample, camera, k) for k in range(PARTS)]
    return [part[k] for k in range(len(parts[0])) for part in parts if k < len(part)]


def _guess(
    sample: Sample,
    camera: Camera,
    views: Views,
    path: Trajectory,
    said: Fit,
    poses_wrong: bool,  # then only other calibrations are tried, which hold for any poses
    holds: bool,  # edges agree as the capture says
) -> Fit:
    """The best of all guesses, or as the capture says."""
    capture = sample.capture
    if poses_wrong:
        best = _best([said, *(fit(views, guess, path) for guess in mountings(capture, camera))])
    else:
        best = _best([said, *_likely_fits(sample, camera)])
    if not (poses_wrong or holds):
        best = _best([best, *_plainest(_promising(views, list(all_others(capture, camera)), path))])
        if not agrees(best) or best.guess.place or best is said:
            best = _best([best, *(fit(views, guess, path) for guess in look_around(views, camera, path))])
        if period := _period(capture, camera, views):
            best = _best([best, *_promising(views, late_by_many(camera, period), path)])
    plain = holds and best is said and not worth_a_look(views, camera, path)
    return best if poses_wrong or plain else _or_elsewhere(views, camera, path, best)


def _or_elsewhere(views: Views, camera: Camera, path: Trajectory, best: Fit) -> Fit:
    """The best fit, or a mounting that is off by some amount if that fits clearly better. At a steady speed a camera that sits farther
    ahead, or that has another focal length, looks like a camera with a wrong clock: then both are named."""
    other = elsewhere(views, camera, path)
    of_a_kind = other.guess.kind == best.guess.kind and other.contrast > best.contrast
    if agrees(other) and (of_a_kind or _clearly(other, best)):
        return other
    return or_of_lens(views, camera, path, best) if best.guess.seconds else best


def _clearly(other: Fit, best: Fit) -> bool:
    return other.contrast >= CLEARLY[0] * best.contrast and other.above(best) >= CLEARLY[1]


def _promising(views: Views, guesses: list[Guess], path: Trajectory) -> list[Fit]:
    """Guesses with the highest contrasts."""
    quick = [fit(views, guess, path, quick=True).contrast for guess in guesses]
    order = sorted(range(len(guesses)), key=lambda k: -quick[k])
    return [fit(views, guesses[k], path) for k in sorted(order[:PROMISING])]


def _plainest(fits: list[Fit]) -> list[Fit]:
    """The first of those that agree with edges about as well as the best: plain conventions come first."""
    known = [((TURNED if f.guess.turned else 1) * f.contrast, f) for f in fits if agrees(f)]
    most = max((contrast for contrast, _ in known), default=0.0)
    return [f for contrast, f in known if contrast >= PLAINER * most][:1]


def _best(fits: list[Fit]) -> Fit:
    """The surest one of those that agree with edges and have about the highest contrast; else the first."""
    known = [f for f in fits if agrees(f)]
    most = max((f.contrast for f in known), default=0.0)
    return max((f for f in known if f.contrast >= PLAINER * most), key=lambda f: f.least, default=fits[0])


def _likely(capture: Capture, camera: Camera, views: Views, path: Trajectory) -> Iterator[Guess]:
    """Guesses that agree a little with edges when another is right: always tried."""
    yield from neighbours(capture, camera)
    aside = look_aside(views, camera, path)
    if abs(aside.turned) > BESIDE * near(camera):
        yield aside
    if period := _period(capture, camera, views):
        yield from clocks(camera, period)


def _period(capture: Capture, camera: Camera, views: Views) -> float | None:
    """Seconds from an image to the next. None: the vehicle is too slow to show a clock."""
    times = [frame.time_mid for frame in capture.images if frame.sensor == camera.name]
    moves = len(times) > 1 and speed_of(capture, camera, views.frames) > FASTEST
    return float(torch.tensor(times).diff().median()) if moves else None


def _guessed(camera: Camera, said: Fit, best: Fit, level: Level) -> Found:
    figures = {"said": said.contrast, "guessed": best.contrast}
    name, remedy = _plain(best.guess.name), best.guess.remedy
    if not bool(camera.T_rig_cam[:3, 3].any()) and best.guess.kind != FILES:
        name += ", or its place in the mounting, which is (0, 0, 0), is missing"
        remedy = f"give its place in T_rig_cam, or {remedy}"
    if _outside(camera):
        before = f"The principal point of {{cameras}}, ({camera.cx:.0f}, {camera.cy:.0f}), lies outside of the image"
        sentence = f"{before}; edges of the lidar agree with those of the images if {name} (contrast {{guessed:.2f}})."
    elif said.points == 0:
        before = "No lidar point falls into the images of {cameras}"
        sentence = f"{before}; edges agree if {name} (contrast {{guessed:.2f}})."
    else:
        before = "Edges of the lidar agree with those of the images of {cameras}"
        sentence = f"{before} if {name} (contrast {{guessed:.2f}}), not as the capture says ({{said:.2f}})."
    return Found(camera, level, said, sentence, remedy, figures, best.guess)


def _plain(text: str) -> str:
    """Escapes a text for str.format: names of cameras may hold braces."""
    return text.replace("{", "{{").replace("}", "}}")


def _outside(camera: Camera) -> bool:
    return not (0 < camera.cx < camera.width and 0 < camera.cy < camera.height)


def _unclear(camera: Camera, views: list[View], said: Fit) -> Found:
    """Finding for a camera where neither the capture nor a guess agrees with edges."""
    figures = {"said": said.contrast, "points": float(said.points)}
    if _outside(camera):
        sentence = f"The principal point of {{cameras}}, ({camera.cx:.0f}, {camera.cy:.0f}), lies outside of the image."
        remedy = f"correct fx, fy, cx and cy for images of {camera.width}x{camera.height} pixels"
        return Found(camera, Level.CERTAIN, said, sentence, remedy)
    if said.points == 0:
        return Found(camera, Level.UNKNOWN, said, "No lidar point falls into the images of {cameras}.")
    textured = sum(float(view.ranks.std(correction=0)) > FLAT for view in views) >= IMAGES
    clear = textured and pixel_degrees(camera) <= COARSE_PIXELS
    if clear and said.images >= IMAGES and said.points >= ENOUGH and said.contrast < NOWHERE:
        sentence = "Edges of the lidar agree nowhere with those of the images of {cameras} (contrast {said:.2f}, {points:.0f} points)."
        remedy = "look at its mounting, intrinsics and time stamps"
        return Found(camera, Level.LIKELY, said, sentence, remedy, figures)
    return Found(camera, Level.UNKNOWN, said, "Too few edges show the direction of {cameras}.")
