# SPDX-License-Identifier: Apache-2.0
"""The far side of actors: a symmetric object shows both sides to a sensor that passes one."""

from dataclasses import replace

import torch
from torch import Tensor

from nurec_lite.geometry.tracks import Tracks
from nurec_lite.scene.neighbours import nearest
from nurec_lite.scene.points import Points

SYMMETRIC = frozenset({"car", "van", "truck", "bus", "tram", "trailer"})  # as sources name them, in any case
APART_METRES = 0.2  # from every measured point: nearer ones say nothing new


def symmetric_nodes(tracks: Tracks) -> frozenset[int]:
    return frozenset(k + 1 for k, name in enumerate(tracks.classes) if name.lower() in SYMMETRIC)


def with_mirrored(
    points: Points,  # of actors, in the frames of their boxes: x ahead, y to the left
    symmetric: frozenset[int],  # nodes
) -> Points:
    """Points, then mirror images of the symmetric actors' about the plane y = 0 where nothing was measured, with the colours of their
    originals. All actors are searched at once, far from one another."""
    nodes = torch.tensor(sorted(symmetric), dtype=torch.int64).to(points.node.device)
    own = points.select(torch.isin(points.node, nodes))
    if len(own) == 0:
        return points
    image = replace(own, xyz=_reflected(own.xyz))
    places = torch.zeros_like(own.xyz)
    places[:, 0] = own.node * (4 * own.xyz.abs().amax() + 1)
    new = nearest(image.xyz + places, own.xyz + places, 1)[0][:, 0] > APART_METRES
    return Points.cat([points, image.select(new)])


def _reflected(xyz: Tensor) -> Tensor:
    x, y, z = xyz.unbind(-1)
    return torch.stack([x, -y, z], dim=-1)
