# SPDX-License-Identifier: Apache-2.0
"""The street for the kernels of kernels/simulate/: tables of its solids, and a tree over those that stand still."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.simulate.cast import World
from nurec_lite.native import ops
from nurec_lite.native.build import BuildError

_LEAF = 2  # solids of a leaf, at most
_SLACK = 1e-3  # metres that boxes are larger than their solids, for rounding


def available() -> bool:
    """Whether the kernels can be had: without a compiler, torch casts the rays."""
    try:
        ops.load()
    except BuildError:
        return False
    return True


def tables(world: World) -> list[Tensor]:
    """The `world` of the kernels: solids, kinds, boxes, nodes, order, cars, reach."""
    solids = [world.planes, world.from_owner, world.half, world.colour, world.trim]
    kinds = torch.stack([world.faces, world.material, world.owner], dim=1).to(torch.int32)
    *cars, standing = (torch.cat(rows) for rows in world.groups)
    spans = [[int(rows.min()), int(rows.max()) + 1] for rows in cars]
    reach = [(world.centres[rows].norm(dim=1) + world.reach[rows]).amax() + 0.01 for rows in cars]
    boxes, nodes, order = _tree(*_boxes(world, standing))
    return [
        torch.cat([x.flatten(1) for x in solids], dim=1).contiguous(), kinds, boxes.to(world.half), _ints(nodes, 2, world),
        standing[order].to(torch.int32), _ints(spans, 2, world), torch.stack([*reach, world.reach[:0].sum()])[:-1].contiguous(),
    ]  # fmt: skip


def _ints(rows: list[list[int]], width: int, world: World) -> Tensor:
    return torch.tensor(rows, dtype=torch.int32, device=world.half.device).view(-1, width)


def _boxes(world: World, rows: Tensor) -> tuple[np.ndarray, np.ndarray]:  # [n, 3] each
    """Lowest and highest corner of solids of the world."""
    turned = (world.from_owner[rows, :, :3].abs() * world.half[rows][:, :, None]).sum(1) + _SLACK
    centres = world.centres[rows]
    return (centres - turned).double().cpu().numpy(), (centres + turned).double().cpu().numpy()


@dataclass
class _Tree:
    """A tree of boxes in the order of its nodes: children follow their parent, the left one at once."""

    low: np.ndarray  # [n, 3] of the solids
    high: np.ndarray
    boxes: list[np.ndarray]  # [6] each
    nodes: list[list[int]]
    order: list[int]

    def add(self, solids: np.ndarray) -> None:
        """Halves the solids along the longest side of their middles, down to leaves."""
        node, middles = len(self.nodes), self.low[solids] + self.high[solids]
        self.boxes.append(np.concatenate([self.low[solids].min(0), self.high[solids].max(0)]))
        self.nodes.append([len(self.order), len(solids)])
        if len(solids) <= _LEAF:
            self.order += solids.tolist()
            return
        along = np.argsort(middles[:, np.ptp(middles, axis=0).argmax()], kind="stable")
        self.add(solids[along[: len(solids) // 2]])
        self.nodes[node] = [len(self.nodes), 0]
        self.add(solids[along[len(solids) // 2 :]])


def _tree(low: np.ndarray, high: np.ndarray) -> tuple[Tensor, list[list[int]], list[int]]:
    """Boxes [M, 6], nodes (kernels/simulate/street.h), and the solids of the leaves."""
    tree = _Tree(low, high, [], [], [])
    if len(low):
        tree.add(np.arange(len(low)))
    return torch.from_numpy(np.array(tree.boxes).reshape(-1, 6)), tree.nodes, tree.order
