# SPDX-License-Identifier: Apache-2.0
"""Agreement of found tracks with true ones: boxes at the moments of sweeps, with the returns inside."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.capture.deskew import world_points
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.se3 import quat_conjugate, quat_rotate
from nurec_lite.geometry.tracks import Tracks, interpolate, poses_of

MOVED = 1.0  # metres between two keys of a track that moves
FOOT = 0.2  # metres above the lower face of a box, where the ground's returns are
NEAR = 1.0  # metres, seen from above, between the centres of a true box and of one that was found
UPRIGHT = 5.0  # degrees of yaw

Figures = dict[str, float]


@dataclass(frozen=True)
class Boxes:
    """Boxes of some tracks, one for each sweep that sees them."""

    tracks: Tensor  # [n] numbers
    times: Tensor  # [n] seconds, mean of the returns
    returns: Tensor  # [n] counts
    places: Tensor  # [n, 3] metres
    yaws: Tensor  # [n] radians

    def __len__(self) -> int:
        return len(self.times)

    def of(self, chosen: Tensor) -> "Boxes":  # [n] bool
        return Boxes(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))


def moving(tracks: Tracks) -> list[int]:
    rows = [tracks.translations[a:b] for a, b in zip(tracks.offsets, tracks.offsets[1:], strict=False)]
    return [k for k, places in enumerate(rows) if float(torch.cdist(places, places).max()) >= MOVED]


Row = tuple[int, float, int]  # track, seconds and returns


def boxes_in(capture: Capture, *tracks: Tracks) -> list[Boxes]:
    """Boxes with at least one return, of each set of tracks."""
    rows: list[list[Row]] = [[] for _ in tracks]
    for frame in capture.sweeps:
        sweep = frame.load()
        sweep = sweep.select(sweep.returned)
        points = world_points(frame, sweep, capture.lidar(frame.sensor))
        for own, known in zip(rows, tracks, strict=True):
            own.extend(_seen(known, frame.time_mid, points, sweep.times) if len(known) else ())
    return [_boxes(known, own) for known, own in zip(tracks, rows, strict=True)]


def _seen(tracks: Tracks, time: float, points: Tensor, times: Tensor) -> Iterator[Row]:
    around = interpolate(tracks, torch.tensor([time], dtype=torch.float64))
    for k in around.valid[0].nonzero()[:, 0].tolist():
        reach = float(tracks.sizes[k].norm()) + 3.0
        near = ((points - around.translations[0, k]).abs() < reach).all(1).nonzero()[:, 0]
        inside = _inside(tracks, k, points[near], times[near])
        if inside.any():
            yield k, float(times[near][inside].mean()), int(inside.sum())


def _boxes(tracks: Tracks, rows: list[Row]) -> Boxes:
    number, time = (torch.tensor([row[i] for row in rows], dtype=torch.float64) for i in (0, 1))
    track, counts = number.long(), torch.tensor([row[2] for row in rows], dtype=torch.int64)
    q, places = poses_of(tracks, track, time) if rows else (torch.zeros(0, 4), torch.zeros(0, 3))
    return Boxes(track, time, counts, places.double(), 2 * torch.atan2(q[:, 3], q[:, 0]).double())


def _inside(tracks: Tracks, k: int, points: Tensor, times: Tensor) -> Tensor:
    q, t = poses_of(tracks, torch.full((len(points),), k), times)
    own, half = quat_rotate(quat_conjugate(q.double()), points - t), 0.5 * tracks.sizes[k].double()
    return (own.abs() < half + 0.1).all(1) & (own[:, 2] > FOOT - half[2])


def distances(
    boxes: Boxes,
    tracks: Tracks,
) -> tuple[
    Tensor, Tensor
]:  # [n] metres to the nearest centre at that time, seen from above, and degrees of yaw between
    if len(tracks) == 0 or len(boxes) == 0:
        return torch.full((len(boxes),), torch.inf), torch.full((len(boxes),), torch.inf)
    poses = interpolate(tracks, boxes.times)
    away = (poses.translations - boxes.places[:, None])[..., :2].norm(dim=-1).masked_fill(~poses.valid, torch.inf)
    near, index = away.min(1)
    q = poses.quaternions[torch.arange(len(boxes)), index].double()
    turn = 2 * torch.atan2(q[:, 3], q[:, 0]) - boxes.yaws
    return near, torch.rad2deg(torch.atan2(turn.sin(), turn.cos()).abs())


def compared(
    capture: Capture,
    truth: Tracks,  # of all that moves, and perhaps of parked things
    found: Tracks,
    returns: int,  # of boxes that count
) -> Figures:
    real = truth.select(moving(truth))
    true_boxes, found_boxes = (b.of(b.returns >= returns) for b in boxes_in(capture, real, found))
    away, turned = distances(true_boxes, found)
    hit, right = away <= NEAR, distances(found_boxes, real)[0] <= NEAR
    parked = truth.select([k for k in range(len(truth)) if k not in moving(truth)])
    wrong = distances(found_boxes, parked)[0] <= NEAR
    return {
        "returns_at_least": returns,
        "true_boxes": len(true_boxes), "found_boxes": len(found_boxes),
        "recall": _share(hit), "precision": _share(right),
        "within_5_degrees": _share(hit & (turned <= UPRIGHT)),
        "median_distance_m": _median(away[hit]), "median_degrees": _median(turned[hit]),
        "tracks": len(found), "parked_called_moving": len(found_boxes.of(wrong & ~right).tracks.unique()),
    }  # fmt: skip


def _share(which: Tensor) -> float:
    return round(float(which.double().mean()), 3) if len(which) else 1.0


def _median(values: Tensor) -> float:
    return round(float(values.median()), 3) if len(values) else 0.0
