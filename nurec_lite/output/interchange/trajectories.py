# SPDX-License-Identifier: Apache-2.0
"""Poses of actors over time as JSON, for a folder that holds a file of each node."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from nurec_lite.geometry.se3 import quat_conjugate, quat_multiply, quat_normalize, quat_rotate
from nurec_lite.geometry.tracks import end_times
from nurec_lite.output.interchange.flatten import UPS
from nurec_lite.output.interchange.notes import Notes
from nurec_lite.scene.scene import Scene

KIND = "nurec_lite trajectories"


def trajectories_text(
    scene: Scene,
    nodes: Sequence[int],  # that are exported
    files: Mapping[int, str],  # of the nodes that have one
    notes: Notes,
) -> str:
    """JSON: `background` names its file; `tracks` hold id, class, file, size, first and last second, and the poses of an actor.
    Between two poses an actor moves evenly and turns by slerp; before the first and after the last it stands."""
    shown = [_track(scene, node, files.get(node), notes.up) for node in nodes if node > 0]
    head = {
        "kind": KIND,
        "notes": notes.lines(),
        "up": notes.up,
        "origin_m": list(notes.origin),
        "background": files.get(0),
    }
    return json.dumps(head | {"tracks": shown}, indent=1) + "\n"


def is_trajectories(
    head: bytes,  # of a file
) -> bool:
    """Whether it begins as ours do."""
    return head.startswith(b'{\n "kind": "' + KIND.encode())


def _track(scene: Scene, node: int, file: str | None, up: str) -> dict[str, Any]:
    """T' = R T R^-1: the world and the actor's own frame are turned alike."""
    tracks, k = scene.learned_tracks().to("cpu", torch.float64), node - 1
    rows = slice(tracks.offsets[k], tracks.offsets[k + 1])
    turn = torch.tensor(UPS[up], dtype=torch.float64).expand(rows.stop - rows.start, 4)
    places = quat_rotate(turn, tracks.translations[rows].detach())
    quats = quat_normalize(tracks.quaternions[rows].detach())
    quats = quat_multiply(quat_multiply(turn, quats), quat_conjugate(turn))
    first, last = (float(times[k]) for times in end_times(tracks))
    known = torch.isfinite(torch.cat([places, quats], dim=1)).all(1)  # JSON has no word for another number
    poses = zip(*(values[known].tolist() for values in (tracks.times[rows], places, quats)), strict=True)
    return {
        "id": tracks.ids[k], "class": tracks.classes[k], "file": file, "length_width_height_m": tracks.sizes[k].tolist(),
        "first_s": first - tracks.margin, "last_s": last + tracks.margin,
        "poses": [{"time_s": t, "position_m": place, "quaternion_wxyz": q} for t, place, q in poses],
    }  # fmt: skip
