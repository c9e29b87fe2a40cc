# SPDX-License-Identifier: Apache-2.0
"""Nearest points: by a tree of boxes on a GPU where the kernels are loaded, else by scipy's tree on the host."""

import torch
from torch import Tensor

KERNEL = "find_nearest"  # kernels/scene/nearest.cu
MOST = 8  # neighbours that the kernel finds
Found = tuple[
    Tensor, Tensor
]  # of each query the distances [q, k] in metres, ascending, and the numbers of the points [q, k]


def nearest(
    queries: Tensor,  # [q, 3] metres, float64
    points: Tensor,  # [n, 3]
    k: int,  # n and MOST at most
) -> Found:
    """The k points nearest to each query. The order of equally near ones is not determined, but always the same on the same processor."""
    if queries.is_cuda and hasattr(torch.ops.nurec_lite, KERNEL):
        distances, numbers = torch.ops.nurec_lite.find_nearest(queries.contiguous(), points.contiguous(), k)
        return distances, numbers
    return nearest_by_tree(queries, points, k)


def nearest_by_tree(queries: Tensor, points: Tensor, k: int) -> Found:
    """Does the same on the host, for tensors of any device."""
    from scipy.spatial import cKDTree  # 0.3 s of the start, which a GPU does without

    tree = cKDTree(points.cpu().numpy())
    distances, numbers = tree.query(queries.cpu().numpy(), k=k, workers=torch.get_num_threads())
    shape, device = (len(queries), k), queries.device
    return torch.from_numpy(distances).reshape(shape).to(device), torch.from_numpy(numbers).reshape(shape).to(device)
