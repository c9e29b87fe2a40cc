# SPDX-License-Identifier: Apache-2.0
"""Every so many pixels of an image: they tell its contents and its colours."""

from torch import Tensor

from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.types import ImageFrame

ROWS = 192  # at least, of a thumbnail


def thumbnail(sample: Sample, frame: ImageFrame) -> Tensor:  # [h, w, 3] uint8
    return sample.kept(("thumbnail", frame.sensor, frame.index), lambda: _thumbnail(sample.image(frame)))


def _thumbnail(image: Tensor) -> Tensor:
    step = max(1, image.shape[0] // ROWS)
    return image[::step, ::step].clone()
