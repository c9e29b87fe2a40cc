# SPDX-License-Identifier: Apache-2.0
"""Tracks that cannot be: objects that are too fast or too large, and boxes around the sensors."""

from collections.abc import Iterator
from itertools import pairwise

import torch

from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.capture.types import Capture
from nurec_lite.capture.units import divided, seconds_in
from nurec_lite.geometry.se3 import interpolate_trajectory, quat_conjugate, quat_rotate
from nurec_lite.geometry.tracks import Tracks, poses_of

NAME = "tracks"
FASTEST, JUMP = 100.0, 5.0  # metres a second, of a car; further metres that a label may be off
LARGEST = 60.0  # metres: trams are shorter
TRAIN = 500.0  # metres, if the class is a train
BEYOND = 10.0  # times as long as the drive: tracks of whole drives may be longer than a part of it
USUAL = 0.01, 1.0  # seconds between keys
DEEP = 0.1  # metres inside of a box, where no sensor of the vehicle can be
REMEDY = "correct it where the tracks were made, or leave it out of them"


def impossible_tracks(capture: Capture) -> Iterator[Verdict]:
    tracks = capture.tracks
    yield from _other_unit(capture)
    around = _around(capture)
    for k, (a, b) in enumerate(pairwise(tracks.offsets)):
        called = f"Track {tracks.ids[k]} ({tracks.classes[k]})"
        for sentence in _flaws(tracks, k, slice(a, b), called, around.get(k)):
            yield Verdict(NAME, tracks.ids[k], Level.CERTAIN, sentence, REMEDY)


def _other_unit(capture: Capture) -> Iterator[Verdict]:
    """Keys are far beyond the drive, and as far apart as in another unit of time."""
    frames, tracks = (*capture.images, *capture.sweeps), capture.tracks
    if not frames or not len(tracks):
        return
    lasts = max(f.time_end for f in frames) - min(f.time_start for f in frames)
    spans = torch.cat([tracks.times[a:b].diff() for a, b in pairwise(tracks.offsets)])
    span = float(tracks.times.amax() - tracks.times.amin())
    unit = seconds_in(float(spans.median()), *USUAL) if len(spans) and span > BEYOND * lasts else None
    if unit is not None:
        sentence = f"Tracks last {span:.3g} s, but the drive lasts {lasts:.3g} s."
        remedy = f"{divided(unit, 'times of the tracks')} where the tracks were made"
        yield Verdict(NAME, capture.name, Level.CERTAIN, sentence, remedy)


def _flaws(
    tracks: Tracks,
    k: int,
    rows: slice,
    called: str,
    around: float | None,  # second when a sensor is inside of the box
) -> Iterator[str]:
    times, places = tracks.times[rows], tracks.translations[rows]
    ways, spans = places.diff(dim=0).norm(dim=1), times.diff()
    fast = (ways > FASTEST * spans + JUMP).nonzero()[:, 0].tolist()
    if fast:
        i = fast[0]
        yield f"{called} moves {ways[i]:.3g} m within {spans[i]:.2g} s at {times[i]:.2f} s, which nothing on a road does."
    size, bound = float(tracks.sizes[k].max()), TRAIN if "train" in tracks.classes[k].lower() else LARGEST
    if size > bound:
        yield f"{called} is {size:.3g} m long, but nothing on a road is longer than {bound:.0f} m."
    elif around is not None:
        yield f"{called} lies around a sensor of the vehicle at {around:.2f} s: it is the vehicle itself, or lies elsewhere."


def _around(capture: Capture) -> dict[int, float]:
    """Tracks whose box has a sensor inside, with the second of the first such key."""
    path, tracks = trajectory_of(capture), capture.tracks
    track = torch.repeat_interleave(torch.arange(len(tracks)), torch.tensor(tracks.offsets).diff())
    within = (tracks.times >= path.times[0]) & (tracks.times <= path.times[-1])
    track, known = track[within], tracks.times[within]
    if not len(known):
        return {}
    T_world_rig = interpolate_trajectory(path.times, path.poses, known)
    mountings = [*(c.T_rig_cam for c in capture.cameras), *(s.T_rig_lidar for s in capture.lidars)]
    sensors = torch.stack([T_world_rig @ T for T in mountings])[..., :3, 3]  # [sensors, n, 3]
    q, places = poses_of(tracks, track, known)
    inner = tracks.sizes[track] / 2 - DEEP
    inside = (quat_rotate(quat_conjugate(q), sensors - places).abs() < inner).all(-1).any(0)
    found = zip(track[inside].tolist(), known[inside].tolist(), strict=True)
    return dict(reversed(list(found)))  # of the keys of a track the first stays
