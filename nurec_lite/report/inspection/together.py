# SPDX-License-Identifier: Apache-2.0
"""The sections about all sweeps together: the map, the returns in boxes, and both before and after a remedy."""

from functools import partial

from nurec_lite.capture.checks.listed import worst_first
from nurec_lite.capture.checks.verdict import Verdict
from nurec_lite.capture.types import Capture
from nurec_lite.report.inspection.above import CLOSE_M, HIGH, LOW, MapPicture, maps
from nurec_lite.report.inspection.actors import HeldBy, held, picture
from nurec_lite.report.inspection.content import Inspection, guarded
from nurec_lite.report.inspection.views import WIDTHS, figure, overlaid
from nurec_lite.report.parts import escaped, image, legend

MOST_BOXES = 24  # tracks with drawn boxes
MOST_CORRECTIONS = 3
_MAP = (
    f"All returns {LOW:g} to {HIGH:g} m above the ground, laid on each other by the poses, coloured by the time when they were seen. "
    "Walls and trunks are thin where the poses are right; where poses drift, a wall is there twice, in two colours. "
    "Pink: the rig's path, which begins at the circle. Green: ways of boxes, outlined in the middle of their time in the drive."
)
_BOXES = (
    "Returns of all sweeps in the axes of a box, at the time of each ray: from above with the front on the right, and from the side. "
    "A box that fits frames one sharp outline; where a box does not move as its object does, the outline is blurred."
)


# ---- the map


def world(inspection: Inspection) -> str:
    if not inspection.capture.sweeps:
        return ""
    whole, close = maps(inspection.sample, inspection.capture, inspection.start)
    return f'<p class="note">{_MAP}</p>{_map(whole, "the whole drive")}{_map(close, "its middle")}'


def _map(drawn: MapPicture, what: str) -> str:
    alt = f"Map from above of {what}, {drawn.across:.0f} m across"
    return figure(
        image(drawn.picture, alt, fine=True), f"{what}, {drawn.across:.0f}\u202fm across {legend(drawn.bar)}", "map"
    )


# ---- boxes


def boxes(inspection: Inspection) -> str:
    capture = inspection.capture
    if len(capture.tracks) == 0 or not capture.sweeps:
        return ""
    found = held(inspection.sample, capture)
    figures = "".join(_box(capture, one) for one in found[:MOST_BOXES])
    number = f"{min(len(found), MOST_BOXES)} of {len(found)} tracks, those with most returns."
    return f'<p class="note">{_BOXES} {number}</p><div class="boxes">{figures}</div>'


def _box(capture: Capture, one: HeldBy) -> str:
    tracks = capture.tracks
    size = tracks.sizes[one.track].tolist()
    name = f"{tracks.ids[one.track]} {tracks.classes[one.track]}"
    sides = " x ".join(f"{side:.1f}" for side in size)
    each = one.inside / max(1, one.sweeps)
    caption = f'{escaped(name)} <span class="unit">{sides} m · {each:.0f} returns a sweep, {one.sweeps} sweeps</span>'
    return figure(
        image(picture(one, size), f"Returns in the box of {name}, from above and from the side", exact=True), caption
    )


# ---- before and after


def corrections(inspection: Inspection) -> str:
    """Pictures for each verdict with a remedy: the middle of the map and an image, as the drive says and corrected."""
    known = [v for v in worst_first(inspection.verdicts) if v.corrected is not None][:MOST_CORRECTIONS]
    return "".join(guarded(f"The correction of {v.subject}", partial(_correction, inspection, v)) for v in known)


def _correction(inspection: Inspection, verdict: Verdict) -> str:
    assert verdict.corrected is not None
    figures = ""
    for title, capture in (
        ("as the drive says", inspection.capture),
        ("corrected", verdict.corrected(inspection.capture)),
    ):
        figures += guarded(f"The picture {title}", partial(_state, inspection, capture, verdict.subject, title))
    head = f'<h3>{escaped(verdict.check)}, {escaped(verdict.subject)} <span class="unit">{escaped(verdict.text)}</span></h3>'
    return f'<article>{head}<div class="states">{figures}</div></article>'


def _state(inspection: Inspection, capture: Capture, subject: str, title: str) -> str:
    """The middle of the map, and an image of the subject if it is a camera, else of the first camera."""
    parts = ""
    if capture.sweeps:
        _, close = maps(inspection.sample, capture, inspection.start)
        what = f"{title}: {2 * CLOSE_M:g} m in the middle of the drive"
        parts += figure(
            image(close.picture, f"Map from above, {what}", fine=True), f"{escaped(what)} {legend(close.bar)}"
        )
    of_subject = [f for f in capture.images if f.sensor == subject]
    images = of_subject or [f for f in capture.images if f.sensor == capture.images[0].sensor]
    if images:
        parts += overlaid(inspection, capture, images[len(images) // 2], WIDTHS[-1][1], f", {title}")
    return f"<div>{parts}</div>"
