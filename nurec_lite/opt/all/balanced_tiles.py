# SPDX-License-Identifier: Apache-2.0
"""balanced_tiles: a long list is cut into segments that are blended in parallel, a warp each, forward and backward.

Idea: the longest list has many times the mean length, and the GPU waits for its warp while all others are done. Transmittance is a
product, so segments are independent: the transmittance of each segment comes first, then all segments are blended from the products
before them, and the last segment of a list adds up. The second segment of a list of two starts late enough to read the transmittance of
the first. The backward pass starts a segment from the same products and from the sums of the segments before it. Long lists come first,
so that none begins late.
Source: gsplat splits long lists with state kept from the forward pass; partial products are associative, as in any parallel scan.
Gain, code before and after, limits: docs/options/balanced_tiles.md.
Limits: needs warp_cull. Responses of lists with more than two segments are computed twice forward; their partial sums take 6 or 7
numbers a ray and segment. Class exact: products and sums are taken in another order.
"""

from nurec_lite.base.errors import OptionError
from nurec_lite.training.stages import Stages, uncompiled

CLASS = "exact"
REQUIRES: tuple[str, ...] = ("warp_cull",)


def unavailable(stages: Stages) -> str | None:
    return uncompiled(stages)


def apply(stages: Stages, *, part: int) -> Stages:
    """`part`: most entries of a segment; of a sweep's two lists a third as many. Fewer where segments would not occupy every warp of
    the GPU."""
    if part < 1:
        raise OptionError(f"option 'balanced_tiles': part is {part}, but must be at least 1")
    return stages.planned("balanced_tiles", segment_entries=part)
