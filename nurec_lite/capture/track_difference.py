# SPDX-License-Identifier: Apache-2.0
"""Differences of two captures' tracks. Gaussians belong to tracks, so others leave a scene without meaning."""

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from nurec_lite.capture.difference import SAME_TIME
from nurec_lite.capture.sensor_difference import Difference
from nurec_lite.geometry.tracks import Tracks

SHOWN = 4  # names in a sentence
SAME_BOX = 0.02  # metres
ELSEWHERE = 3.0  # metres; from there on, a box is another object's


def track_differences(
    was: Tracks,  # of the scene
    now: Tracks,
    part: tuple[float, float]
    | None,  # seconds of the frames, where others were asked for: tracks and keyframes may be missing
    poses_differ: bool,  # so that boxes lie elsewhere in the world
) -> Iterator[Difference]:
    unknown = [name for name in now.ids if name not in was.ids]
    missing = [name for name in was.ids if name not in now.ids]
    if unknown or (missing and not part):
        yield Difference(f"it has {_listed(now.ids)}, but had {_listed(was.ids)}")
        return
    if not part and was.ids != now.ids:
        yield Difference("its tracks stand in another order than they did")
        return
    boxes: list[tuple[float, str]] = []
    for k, name in enumerate(now.ids):
        j = was.ids.index(name)
        flaw = _track_flaw(was, j, now, k, part is not None)
        if flaw:
            yield Difference(f"track {name} {flaw}")
        else:
            boxes.append((_moved(was, j, now, k, part, poses_differ), name))
    far, name = max(boxes, default=(0.0, ""))
    if far > SAME_BOX:
        yield Difference(
            f"boxes of tracks are up to {far:.3g} m off their old places ({name})", certain=far > ELSEWHERE
        )


def _listed(ids: tuple[str, ...]) -> str:
    if not ids:
        return "no tracks"
    return f"{len(ids)} tracks ({', '.join(ids[:SHOWN])}{', ...' if len(ids) > SHOWN else ''})"


def _rows(tracks: Tracks, k: int) -> slice:
    return slice(*list(pairwise(tracks.offsets))[k])


def _track_flaw(was: Tracks, j: int, now: Tracks, k: int, part: bool) -> str | None:
    if was.classes[j] != now.classes[k]:
        return f"is a {now.classes[k]}, but was a {was.classes[j]}"
    before, after = was.times[_rows(was, j)].cpu(), now.times[_rows(now, k)]
    same = len(before) == len(after) and bool(((before - after).abs() <= SAME_TIME).all())
    if same or (part and len(_shared(before, after)[0])):
        return None
    return f"has {_lasting(after)}, but had {_lasting(before)}"


def _lasting(times: Tensor) -> str:
    return f"{len(times)} boxes from {float(times[0]):.6g} s to {float(times[-1]):.6g} s"


def _shared(before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:  # rows of keyframes at one time
    near = torch.searchsorted(before, after - SAME_TIME).clamp(max=len(before) - 1)
    found = ((before[near] - after).abs() <= SAME_TIME).nonzero()[:, 0]
    return near[found], found


def _moved(was: Tracks, j: int, now: Tracks, k: int, part: tuple[float, float] | None, poses_differ: bool) -> float:
    """Largest difference of its box in metres, in size or place. Where poses were replaced, boxes beyond the frames lie anywhere."""
    sizes = float((was.sizes[j].cpu().double() - now.sizes[k].double()).abs().max())
    if poses_differ:
        return sizes
    a, b = _rows(was, j), _rows(now, k)
    rows, own = _shared(was.times[a].cpu(), now.times[b])
    if part is not None:
        inside = (now.times[b][own] >= part[0]) & (now.times[b][own] <= part[1])
        rows, own = rows[inside], own[inside]
    apart = was.translations[a].cpu().double()[rows] - now.translations[b].double()[own]
    return max([sizes, *apart.norm(dim=1).tolist()])
