# SPDX-License-Identifier: Apache-2.0
"""Motion of tracks: objects that jump from a key to the next, and boxes that look backwards."""

from collections.abc import Iterator
from itertools import pairwise

from torch import Tensor

from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.geometry.se3 import quat_to_matrix
from nurec_lite.geometry.tracks import Tracks

NAME = "tracks"
FEWEST = 4  # keys that show a jump
LEAST, ACCELERATION = 1.5, 10.0  # metres, and metres a second squared: a step may be so far from its neighbours'
STEADY = 0.5  # largest difference of the steps before and after, as a part of the jump
LISTED = 3  # tracks in a sentence
WAY, TOGETHER = 5.0, 15.0  # metres of one track, and of all, that show the way it drives
BACK = 0.8  # part of it that boxes look backwards, at least
BACKWARDS = "back_m"  # figure of boxes that look backwards
REMEDY = "correct them where the tracks were made, or leave them out"


def odd_motions(tracks: Tracks, capture: str) -> Iterator[Verdict]:
    """Findings about all tracks of the capture of this name."""
    jumping = list[tuple[float, float, str]]()
    for k, (a, b) in enumerate(pairwise(tracks.offsets)):
        jump = _jump(tracks.times[a:b], tracks.translations[a:b].double())
        if jump is not None:
            jumping.append((*jump, tracks.ids[k]))
    if jumping:
        jumping.sort(key=lambda jump: -jump[0])
        listed = ", ".join(f"{name} by {metres:.1f} m at {time:.2f} s" for metres, time, name in jumping[:LISTED])
        more = f" and {len(jumping) - LISTED} more" if len(jumping) > LISTED else ""
        sentence = f"Tracks jump, or change to another object: {listed}{more}."
        yield Verdict(NAME, jumping[0][2], Level.LIKELY, sentence, REMEDY, {"jump_m": jumping[0][0]})
    steady = set(tracks.ids) - {name for _, _, name in jumping}  # a jump is no way
    yield from _backwards(tracks.select([k for k, name in enumerate(tracks.ids) if name in steady]), capture)


def _jump(times: Tensor, places: Tensor) -> tuple[float, float] | None:  # metres, and the second when it ends
    """The largest step that the steps before and after contradict, if there is one."""
    seconds = times.double().diff()
    if len(times) < FEWEST or float(seconds.amin()) <= 0:
        return None
    rates = places.diff(dim=0) / seconds[:, None]
    before, after, inner = rates[:-2], rates[2:], seconds[1:-1]
    off = (rates[1:-1] - (before + after) / 2).norm(dim=1) * inner
    steady = (before - after).norm(dim=1) * inner < STEADY * off
    far = off * (steady & (off > LEAST + ACCELERATION * inner.square()))
    at = int(far.argmax())
    return (float(far[at]), float(times[at + 2])) if float(far[at]) > 0 else None


def _backwards(tracks: Tracks, capture: str) -> Iterator[Verdict]:
    ahead = {tracks.ids[k]: _ways(tracks, slice(a, b)) for k, (a, b) in enumerate(pairwise(tracks.offsets))}
    moving = [way for way in ahead.values() if abs(way) > WAY]
    total, back = sum(map(abs, moving)), -sum(way for way in moving if way < 0)
    alone = {name: way for name, way in ahead.items() if way < -TOGETHER}  # nobody reverses so far
    if total > TOGETHER and back > BACK * total:
        sentence = f"The boxes of objects that move look backwards along {back:.0f} of {total:.0f} m."
        remedy = "turn them by 180° about their z axes where the tracks were made"
        yield Verdict(NAME, capture, Level.LIKELY, sentence, remedy, {BACKWARDS: back, "way_m": total})
    elif alone:
        name = min(alone, key=alone.__getitem__)
        more = f" ({len(alone) - 1} more tracks do)" if len(alone) > 1 else ""
        sentence = f"The boxes of track {name} look backwards along {-alone[name]:.0f} m{more}."
        remedy = "turn them by 180° about their z axes where the tracks were made"
        yield Verdict(NAME, name, Level.LIKELY, sentence, remedy, {BACKWARDS: -alone[name]})


def _ways(tracks: Tracks, rows: slice) -> float:  # metres that a track goes along its own x axis
    steps = tracks.translations[rows].double().diff(dim=0)
    axes = quat_to_matrix(tracks.quaternions[rows].double())[:, :3, 0]
    return float((steps * axes[:-1]).sum()) if len(steps) else 0.0
