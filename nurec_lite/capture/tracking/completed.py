# SPDX-License-Identifier: Apache-2.0
"""Labels completed by tracks found in the sweeps: objects without a label, and the way of labelled ones before and after."""

from dataclasses import replace

import torch
from torch import Tensor

from nurec_lite.capture.types import FOUND
from nurec_lite.geometry.se3 import quat_conjugate, quat_multiply, quat_rotate
from nurec_lite.geometry.tracks import Tracks, joined, poses_of

SAME = 0.6  # of a label's length: a box that was found no further away is of the same object
SHARE = 0.5  # least share of the moments of both that have it there
AGREE = 1.0  # compared seconds at either end of a label


def completed(labels: Tracks, found: Tracks) -> Tracks:
    """The labels as they are, each with the moments that were found before its first and after its last; then the others."""
    if len(labels) == 0:
        return found
    homes = [_home(labels, found, k) for k in range(len(found))]
    parts = [labels.select([j]) for j in range(len(labels))]
    for k, home in enumerate(homes):
        if home is not None:
            parts[home] = _extended(parts[home], found.select([k]))
    new = [found.select([k]) for k, home in enumerate(homes) if home is None]
    return joined([*parts, *new], labels.margin)


def completed_as(labels: Tracks, known: Tracks) -> Tracks:
    """The labels as they are, completed by the same moments and objects as tracks that were completed before. A part of a drive may lack
    some labels. Where known tracks lack one, the labels alone."""
    if not set(labels.ids) <= set(known.ids):
        return labels
    parts = [_with_ends(labels.select([k]), known.select([known.ids.index(name)])) for k, name in enumerate(labels.ids)]
    found = [k for k, name in enumerate(known.ids) if name.startswith(FOUND) and name not in labels.ids]
    return joined([*parts, *(known.select([k]) for k in found)], known.margin)


def _with_ends(label: Tracks, known: Tracks) -> Tracks:
    outside = (known.times < label.times[0]) | (known.times > label.times[-1])
    times, order = torch.cat([label.times, known.times[outside]]).sort()
    places = torch.cat([label.translations, known.translations[outside]])[order]
    turns = torch.cat([label.quaternions, known.quaternions[outside]])[order]
    return replace(label, offsets=(0, len(times)), times=times, translations=places, quaternions=turns)


def _home(labels: Tracks, found: Tracks, k: int) -> int | None:  # the label of the same object
    one = found.select([k])
    shares = [_share(labels.select([j]), one) for j in range(len(labels))]
    best = max(range(len(shares)), key=shares.__getitem__)
    return best if shares[best] >= SHARE else None


def _both(label: Tracks, one: Tracks) -> Tensor:  # [m] seconds of the found moments of the label's life
    return one.times[(one.times >= label.times[0] - label.margin) & (one.times <= label.times[-1] + label.margin)]


def _at(
    tracks: Tracks, times: Tensor
) -> tuple[Tensor, Tensor]:  # quaternions [m, 4], translations [m, 3] of its only track
    return poses_of(tracks, torch.zeros(len(times), dtype=torch.int64), times)


def _share(label: Tracks, one: Tracks) -> float:
    times = _both(label, one)
    if len(times) == 0:
        return 0.0
    away = (_at(label, times)[1] - _at(one, times)[1])[:, :2].norm(dim=1)
    return float((away < SAME * float(label.sizes[0, 0])).double().mean())


def _extended(label: Tracks, one: Tracks) -> Tracks:
    """The label, extended by the poses that were found before and after it; these are moved, in the object's axes, to meet its ends."""
    before, after = one.times < label.times[0], one.times > label.times[-1]
    first, last = label.times[0], label.times[-1]
    parts = [(one, before, first), (label, torch.ones(len(label.times), dtype=torch.bool), None), (one, after, last)]
    times, places, turns = [], [], []
    for tracks, rows, end in parts:
        q, t = tracks.quaternions[rows], tracks.translations[rows]
        if end is not None and len(q):
            q, t = _moved(label, one, q, t, float(end))
        times.append(tracks.times[rows])
        places.append(t)
        turns.append(q)
    count = sum(len(part) for part in times)
    return replace(
        label, offsets=(0, count), times=torch.cat(times), translations=torch.cat(places), quaternions=torch.cat(turns)
    )


def _moved(label: Tracks, one: Tracks, q: Tensor, t: Tensor, end: float) -> tuple[Tensor, Tensor]:
    times = _both(label, one)
    times = times[((times - end).abs() <= AGREE) | ((times - end).abs() <= (times - end).abs().min() + 1e-9)]
    (q_label, t_label), (q_one, t_one) = _at(label, times), _at(one, times)
    step = quat_rotate(quat_conjugate(q_one), t_label - t_one).median(0).values
    turn = quat_multiply(quat_conjugate(q_one), q_label)
    turn = torch.where(turn[:, :1] < 0, -turn, turn).median(0).values
    turn = (turn / turn.norm()).expand_as(q)
    return quat_multiply(q, turn), t + quat_rotate(q, step.expand_as(t))
