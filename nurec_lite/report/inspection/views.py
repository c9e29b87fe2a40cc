# SPDX-License-Identifier: Apache-2.0
"""The sections about one sensor: images with the lidar and the boxes on them, and sweeps."""

from functools import partial
from itertools import pairwise

import numpy as np
import torch

from nurec_lite.capture.deskew import project_world_points
from nurec_lite.capture.evenly import spread
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.evaluation.pictures import RANGE_MAP, Bar, range_image, round_range
from nurec_lite.geometry.lidar import azimuth_elevation
from nurec_lite.geometry.tracks import interpolate
from nurec_lite.report.inspection.content import Inspection, guarded
from nurec_lite.report.inspection.overlay import Overlay, overlay
from nurec_lite.report.lidar import MAX_COLUMNS
from nurec_lite.report.parts import escaped, image, legend

MOST_PICTURES = 24  # of all cameras together
EACH = ((3, 4), (12, 2), (MOST_PICTURES, 1))  # of so many cameras at most: pictures of each
WIDTHS = ((6, 1200), (12, 900), (MOST_PICTURES, 640))  # up to so many pictures: pixels of width
_ON_IMAGES = (
    "Points of the sweep that is nearest in time, each moved by the poses to the time when its pixel was read. Points and image "
    "fit where ranges jump at the edges of things. Boxes are those of that time; the cross is the front."
)
_SWEEPS = "A row a beam, the highest on top; straight ahead in the middle, backwards at both ends; black: no return."


# ---- lidar and boxes on images


def cameras(inspection: Inspection) -> str:
    capture = inspection.capture
    seen = [c.name for c in capture.cameras if any(f.sensor == c.name for f in capture.images)]
    if not seen:
        return '<p class="note">No images.</p>'
    drawn = seen[:MOST_PICTURES]
    each = next(n for most, n in EACH if len(drawn) <= most)
    width = next(w for most, w in WIDTHS if each * len(drawn) <= most)
    parts = [_camera(inspection, name, each, width) for name in drawn]
    left_out = (
        f'<p class="note">Not drawn: {escaped(", ".join(seen[len(drawn) :]))}.</p>' if len(seen) > len(drawn) else ""
    )
    return f'<p class="note">{_ON_IMAGES}</p>{"".join(parts)}{left_out}'


def _camera(inspection: Inspection, name: str, each: int, width: int) -> str:
    frames = _told_most(inspection.capture, name, each)
    figures = "".join(
        guarded(
            f"The picture of {name}, frame {frame.index},",
            partial(overlaid, inspection, inspection.capture, frame, width),
        )
        for frame in frames
    )
    return f'<article><h3>{escaped(name)}</h3><div class="pictures">{figures}</div></article>'


def _told_most(capture: Capture, name: str, each: int) -> list[ImageFrame]:
    """Images with most boxes in view, one for each part of the drive; without boxes the image in the middle of the
    part."""
    frames = [f for f in capture.images if f.sensor == name]
    bounds = [round(k * len(frames) / each) for k in range(each + 1)]
    parts = [frames[a:b] for a, b in pairwise(bounds) if b > a]
    return [_with_most_boxes(capture, part) for part in parts]


def _with_most_boxes(capture: Capture, frames: list[ImageFrame]) -> ImageFrame:
    middle = frames[len(frames) // 2]
    if len(capture.tracks) == 0:
        return middle
    some = spread(frames, 50)
    counts = [_boxes_in_view(capture, frame) for frame in some]
    return some[int(np.argmax(counts))] if max(counts) else middle


def _boxes_in_view(capture: Capture, frame: ImageFrame) -> int:
    camera = capture.camera(frame.sensor)
    poses = interpolate(capture.tracks, torch.tensor([frame.time_mid], dtype=torch.float64))
    pixels, depth = project_world_points(camera, frame, poses.translations[0, poses.valid[0]])
    inside = (pixels >= 0) & (pixels < torch.tensor([camera.width, camera.height]))
    return int((inside.all(1) & (depth > 1) & (depth < 60)).sum())


def overlaid(inspection: Inspection, capture: Capture, frame: ImageFrame, width: int, title: str = "") -> str:
    drawn = overlay(inspection.sample, capture, frame, width)
    what = f"{frame.sensor}, frame {frame.index}{title}"
    alt = f"{what}: {drawn.points} lidar points and {drawn.boxes} boxes on the image"
    return figure(image(drawn.picture, alt, fine=True), f"{escaped(what)} {_facts(drawn)}")


def _facts(drawn: Overlay) -> str:
    facts = [f"{drawn.boxes} box{'es' * (drawn.boxes > 1)}"] if drawn.boxes else []
    if drawn.bar is not None and drawn.late is not None:
        facts.append(f"sweep {1000 * drawn.late:+.0f}\u202fms from the image")
    bar = legend(drawn.bar) if drawn.bar is not None else ""
    return f'<span class="unit">{" · ".join(facts)}</span>{bar}'


def figure(picture: str, caption: str, kind: str = "") -> str:
    return f'<figure class="{kind}">{picture}<figcaption>{caption}</figcaption></figure>'


# ---- sweeps


def lidars(inspection: Inspection) -> str:
    """The middle sweep of each lidar as it was measured."""
    by_lidar = {s.name: [f for f in inspection.capture.sweeps if f.sensor == s.name] for s in inspection.capture.lidars}
    found = {name: frames[len(frames) // 2] for name, frames in by_lidar.items() if frames}
    if not found:
        return '<p class="note">No lidar: where things are is not measured.</p>'
    strips = "".join(guarded(f"The sweep of {name}", partial(_sweep, inspection, f)) for name, f in found.items())
    return f'<p class="note">{_SWEEPS}</p>{strips}'


def _sweep(inspection: Inspection, frame: SweepFrame) -> str:
    sweep, lidar = inspection.sample.sweep(frame), inspection.capture.lidar(frame.sensor)
    returned, ranges = sweep.returned.numpy(), sweep.ranges.numpy()
    azimuths, width = azimuth_elevation(sweep.directions)[:, 0].numpy(), min(lidar.azimuth_steps, MAX_COLUMNS)
    name = f"{frame.sensor}, frame {frame.index}"

    def strip(title: str, bar: Bar, values: np.ndarray) -> str:
        shown = np.where(returned, values, np.nan)
        painted = bar.paint(range_image(shown, sweep.rings.numpy(), azimuths, lidar.elevations.numpy(), width))
        return figure(image(painted, f"{name}, {title}", exact=True), f"{title} {legend(bar)}")

    fractions = (sweep.times.numpy() - frame.time_start) / max(frame.time_end - frame.time_start, 1e-9)
    strips = [
        strip("range", Bar(RANGE_MAP, 0, round_range(ranges[returned]), "m"), ranges),
        strip("intensity", Bar(RANGE_MAP, 0, 1), sweep.intensities.numpy()),
        strip("time of the ray, as a share of the sweep", Bar(RANGE_MAP, 0, 1), fractions),
    ]
    share = f"{len(sweep)} rays, {100 * returned.mean() if len(sweep) else 0:.1f} % returned"
    head = f'<h3>{escaped(name)} <span class="unit">{share}</span></h3>'
    return f'<article>{head}<div class="strips">{"".join(strips)}</div></article>'
