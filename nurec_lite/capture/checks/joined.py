# SPDX-License-Identifier: Apache-2.0
"""One verdict instead of several that have one cause: each possible cause is held against edges of images, boxes and motions at once, and
those that make all of them agree are named."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from nurec_lite.capture.checks import boxes, cameras, poses
from nurec_lite.capture.checks.alignment import APART, fit, together, view_of
from nurec_lite.capture.checks.box_rays import box_sweeps, fit_boxes, rays_of
from nurec_lite.capture.checks.boxes import labelled
from nurec_lite.capture.checks.causes import Cause, of_boxes, of_cameras, of_conventions, of_mounting
from nurec_lite.capture.checks.edges import View, edge_points
from nurec_lite.capture.checks.guesses import Guess, as_said
from nurec_lite.capture.checks.motion import Motions
from nurec_lite.capture.checks.motions import undisturbed
from nurec_lite.capture.checks.ordered import ordered
from nurec_lite.capture.checks.other_files import without_what_follows
from nurec_lite.capture.checks.range_offset import OFFSET
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.two_places import APART as TWO_PLACES
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.deskew import middle_poses
from nurec_lite.capture.evenly import spread
from nurec_lite.capture.trajectory import nearest, trajectory_of
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.se3 import invert

CHECKS = (poses.NAME, cameras.CHECK, boxes.NAME)
DOUBTS = (Level.CERTAIN, Level.LIKELY)
EDGES, CLOSE = 0.06, 0.85  # contrast of sensors that agree, at least, and part of the highest one that fits alike
HELD, LESS = 0.5, 0.08  # share of boxes that lie on objects, at least, and by how much less is alike
WHOLE = 0.58  # share of boxes that a cause explains, at least: those of right captures hold 0.67 and more
EXCESS, MORE = 0.5, 1.5  # of motions that agree, at most, and times the least one that are alike
KEY, LABELS = "give data.", "the labels are"  # beginnings of remedies and causes
NAMED, GLANCED = 3, 3  # causes in a sentence, and sweeps of a glance at boxes


@dataclass(frozen=True)
class Measured:
    """Agreement of a capture with its sensors; NaN where nothing tells it."""

    contrast: float  # of edges, mean of cameras
    share: float  # of boxes
    excess: float  # of motions

    def as_good_as(self, best: "Measured") -> bool:
        edges = best.contrast >= EDGES and self.contrast < CLOSE * best.contrast
        held = best.share >= HELD and self.share < best.share - LESS
        moves = best.excess <= EXCESS and self.excess > max(EXCESS, MORE * best.excess)
        return not (edges or held or moves)


def joined(sample: Sample, verdicts: list[Verdict]) -> list[Verdict]:
    """The verdicts, with one for those that a cause explains together."""
    named = without_what_follows(sample.capture, cameras.CHECK, verdicts)
    if named is not None:
        return named
    explained = [v for v in verdicts if v.check in CHECKS and v.level in DOUBTS]
    if not explained or not _tellable(sample, verdicts):
        return verdicts
    said, causes = _measured(sample, sample.capture), _causes(sample, explained)
    known = [(cause, _measured(sample, cause.correct(sample.capture), cause.ranges)) for cause in causes]
    best = _best([said, *(found for _, found in known)])
    fit = [(cause, found) for cause, found in known if found.as_good_as(best)]
    right = [(c, f) for c, f in _with_the_reader_s(fit, explained) if not f.share < WHOLE]
    undecided = len(fit) == len(known) and {v.check for v in explained} == {poses.NAME}
    if said.as_good_as(best) or not right or undecided:
        return verdicts
    one = _verdict(sample, explained, [cause for cause, _ in right[:NAMED]], said, right[0][1])
    return [one if v is explained[0] else v for v in verdicts if v is explained[0] or v not in explained]


def _with_the_reader_s(
    right: list[tuple[Cause, Measured]], explained: Sequence[Verdict]
) -> list[tuple[Cause, Measured]]:
    """Causes with a reader's key for labels of other frames; none if these are the only cause. Labels do not change the
    motions of sweeps."""
    if any(v.check == poses.NAME for v in explained):
        return [(c, f) for c, f in right if not c.meaning.startswith(LABELS)]
    keyed = next((v.remedy for v in explained if v.check == boxes.NAME and v.remedy and v.remedy.startswith(KEY)), None)
    labels = [cause.meaning.startswith(LABELS) for cause, _ in right]
    if keyed is None or not any(labels):
        return right
    if all(labels):
        return []
    return [(replace(c, remedy=keyed) if of_labels else c, f) for (c, f), of_labels in zip(right, labels, strict=True)]


def _tellable(sample: Sample, verdicts: Sequence[Verdict]) -> bool:
    """Whether nothing else is known to be wrong, and one lidar tells."""
    other = any(v.level is Level.CERTAIN and v.check not in CHECKS for v in verdicts)
    known = any(TWO_PLACES in v.figures or OFFSET in v.figures for v in verdicts)
    return len(sample.capture.lidars) == 1 and bool(sample.capture.sweeps) and not other and not known


def _causes(sample: Sample, explained: Sequence[Verdict]) -> list[Cause]:
    capture, lidar = sample.capture, sample.capture.lidars[0]
    checks = {v.check for v in explained}
    causes = list(of_conventions(poses.alternatives(sample))) if poses.NAME in checks else []
    if cameras.CHECK in checks:
        guesses = [sample.made().get(("guess", c.name)) for c in capture.cameras]
        known = [guess for guess in guesses if isinstance(guess, Guess)]
        causes += (
            [] if sample.agreements else [*of_mounting(lidar), *of_cameras(capture, known)]
        )  # no camera contradicts
    if boxes.NAME in checks:
        causes += _best_of_boxes(sample, list(of_boxes(capture, lidar)))
    return list({cause.meaning: cause for cause in reversed(causes)}.values())[::-1]


def _best_of_boxes(sample: Sample, causes: Sequence[tuple[Cause, Cause]]) -> tuple[Cause, ...]:
    """The shift of poses, and that of labels, whose boxes hold the most."""
    shares = [_share(sample, cause.correct(sample.capture), sweeps=GLANCED) for cause, _ in causes]
    known = [k for k, share in enumerate(shares) if not math.isnan(share)]
    return causes[max(known, key=shares.__getitem__)] if known else ()


def _best(found: Sequence[Measured]) -> Measured:
    def of(name: str, most: float) -> float:
        values = [value for m in found if not math.isnan(value := getattr(m, name))]
        return (max(values) if most > 0 else min(values)) if values else math.nan

    return Measured(of("contrast", 1), of("share", 1), of("excess", -1))


# ---- measures


def _measured(sample: Sample, capture: Capture, ranges: float = 1.0) -> Measured:
    known = [c for camera in capture.cameras if not math.isnan(c := _contrast(sample, capture, camera, ranges))]
    contrast = sum(known) / len(known) if known else math.nan
    return Measured(contrast, _share(sample, capture, ranges), _excess(sample, capture, ranges))


def _contrast(sample: Sample, capture: Capture, camera: Camera, ranges: float) -> float:
    """Contrast of a camera with the edges that the sweeps have in another capture."""
    lidar, frames = capture.lidars[0], {f.index: f for f in capture.images if f.sensor == camera.name}
    own, views = sample.capture.camera(camera.name), list[View]()
    for frame in sample.images_of(camera.name):
        sweep = nearest(capture.sweeps, frames[frame.index].time_mid)
        for view in view_of(sample, own, frame) if abs(sweep.time_mid - frames[frame.index].time_mid) <= APART else ():
            said = next(f for f in sample.capture.sweeps if f.index == sweep.index)
            rays = sample.ordered(said) if _unchanged(sample.capture, capture, ranges) else ordered(sweep.load())
            points = edge_points(sweep, rays, lidar)
            views.append(View(frames[frame.index], points, view.strengths, view.ranks))
    return fit(together(views), as_said(camera), trajectory_of(capture)).contrast if views else math.nan


def _unchanged(said: Capture, capture: Capture, ranges: float) -> bool:
    """Whether rays are the same."""
    return ranges == 1.0 and said.sweeps[0].load is capture.sweeps[0].load


def _share(sample: Sample, capture: Capture, ranges: float = 1.0, sweeps: int | None = None) -> float:
    tracks = labelled(capture).tracks
    if not len(tracks):
        return math.nan
    same = _unchanged(sample.capture, capture, ranges)
    other = sample.of_frames(capture) if same else Sample(capture, sample.images, sample.sweeps)
    found = fit_boxes([rays_of(other, frame) for frame in spread(box_sweeps(other), sweeps)], tracks)
    return math.nan if boxes.few(found) else found.share


def _excess(sample: Sample, capture: Capture, ranges: float) -> float:
    lidar = capture.lidars[0]
    motions = undisturbed(sample, sample.capture.lidars[0])
    if not motions:
        return math.nan
    places = middle_poses([f for f in capture.sweeps if f.sensor == lidar.name]) @ lidar.T_rig_lidar.double()
    ends = torch.stack([places[list(m.frames)] for m in motions])
    posed = invert(ends[:, 0]) @ ends[:, 1]
    posed[:, :3, 3] /= ranges
    return Motions(motions).excess(posed)


# ---- words


def _verdict(
    sample: Sample, explained: Sequence[Verdict], causes: Sequence[Cause], said: Measured, found: Measured
) -> Verdict:
    level = Level.CERTAIN if any(v.level is Level.CERTAIN for v in explained) else Level.LIKELY
    told = [
        (name, f"{words} {before:.{digits}f}, then {then:.{digits}f}")
        for name, words, before, then, digits in (
            ("poses", "misfit of motions", said.excess, found.excess, 1),
            ("images", "contrast of edges", said.contrast, found.contrast, 2),
            ("boxes", "part of the returns in boxes", said.share, found.share, 2),
        )
        if not math.isnan(before) and not math.isnan(then)
    ]
    names = " and ".join(part for part in (", ".join(name for name, _ in told[:-1]), told[-1][0]) if part)
    meanings, changes = ", or if ".join(cause.meaning for cause in causes), "; ".join(words for _, words in told)
    sentence = f"The sweeps agree with {names} if {meanings}, not as the capture says ({changes})."
    remedy = ", or ".join(dict.fromkeys(cause.remedy for cause in causes))
    return Verdict(explained[0].check, sample.capture.name, level, sentence, remedy, corrected=causes[0].correct)
