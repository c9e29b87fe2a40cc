# SPDX-License-Identifier: Apache-2.0
"""The tiny drive with masks."""

from dataclasses import replace

import torch
from tiny_capture import Loaded, tiny_capture

from nurec_lite.capture.types import Capture

MASK = torch.zeros(24, 40, dtype=torch.bool)
MASK[15:, 3:] = True


def repainted(seed: int | None = None) -> Capture:
    """The tiny drive with masks; with a seed, masked pixels are random."""
    capture = tiny_capture()
    images = capture.images
    if seed is not None:
        g = torch.Generator().manual_seed(seed)
        noise = torch.randint(256, (24, 40, 3), generator=g, dtype=torch.uint8)
        images = tuple(replace(f, load=Loaded(torch.where(MASK[..., None], noise, f.load()))) for f in images)
    return replace(capture, images=images, cameras=tuple(replace(c, mask=MASK) for c in capture.cameras))
