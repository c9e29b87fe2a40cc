# SPDX-License-Identifier: Apache-2.0
"""Tables of boxes, a row for each object and moment, as tracks of moving objects."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from nurec_lite.capture.types import Doubt
from nurec_lite.geometry.tracks import Tracks, joined, moves, single_track

MOVED = 1.0  # metres between two boxes of an object: less is a parked car and the labels' noise
MARGIN = 0.05  # seconds that a track lasts beyond its first and last box


def moving_tracks(
    names: Sequence[str],  # [n] of the object in each row
    labels: Sequence[str],  # [n] its class
    times: Tensor,  # [n] seconds when the box holds
    poses: Tensor,  # [n, 4, 4] T_world_box, origin in the box's centre
    sizes: Tensor,  # [n, 3] length, width, height; metres
) -> Tracks:
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        rows.setdefault(name, []).append(row)
    tracks = [single_track(name, labels[own[0]], sizes[own], times[own], poses[own]) for name, own in rows.items()]
    return joined([one for one in tracks if moves(one, MOVED)], MARGIN)


def repeated_boxes(
    source: str,  # of the boxes
    count: int,  # of boxes with the track and the time of an earlier one
) -> Iterator[Doubt]:
    if count:
        boxes, have, are = ("box", "has", "is") if count == 1 else ("boxes", "have", "are")
        sentence = f"{count} {boxes} of {source} {have} the track and the time of an earlier one, and {are} not used."
        yield Doubt(source, False, sentence, "give each object an id of its own, and one box at a time")
