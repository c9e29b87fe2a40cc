# SPDX-License-Identifier: Apache-2.0
"""FLIP and LPIPS over held-out images, within a number of seconds."""

import time
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nurec_lite.base.left_out import LeftOut
from nurec_lite.evaluation.flip import mean_flip
from nurec_lite.evaluation.lpips import Lpips, LpipsError, load_lpips
from nurec_lite.geometry.masks import blackened


@dataclass
class Perceptual:
    """Measures images as they come. Where the time does not last for all, those that are measured spread over the drive."""

    seconds: float  # that it may take; 0: nothing is measured
    images: int  # that come
    device: torch.device
    left_out: LeftOut
    notes: list[str] = field(default_factory=list)  # sentences on figures that are left out
    spent: float = 0.0
    come: int = 0
    flips: list[float] = field(default_factory=list)
    lpips: list[float] = field(default_factory=list)
    network: Lpips | None = None

    def __post_init__(self) -> None:
        if self.seconds > 0 and self.images:
            try:
                self.network = load_lpips(self.device)
            except LpipsError as error:
                self._without_lpips(error)

    def _without_lpips(self, error: LpipsError) -> None:
        self.network = None
        self.notes.append(f"LPIPS is left out: {error}.")

    def add(
        self,
        rendered: Tensor,  # [H, W, 3] 0 to 1
        target: Tensor,  # [H, W, 3] 0 to 1
        mask: Tensor | None = None,  # [H, W] bool, pixels that do not count
    ) -> None:
        self.come += 1
        if self.seconds <= 0 or self.spent > self.seconds * (self.come - 1) / self.images:
            return
        begin = time.monotonic()
        self.left_out.tried("FLIP or LPIPS of an image", lambda: self._measure(rendered, target, mask))
        self.spent += time.monotonic() - begin

    def _measure(self, rendered: Tensor, target: Tensor, mask: Tensor | None) -> None:
        rendered, target = (blackened(image.to(self.device), mask) for image in (rendered, target))
        self.flips.append(mean_flip(rendered, target, mask))
        if self.network is None:
            return
        try:
            self.lpips.append(self.network(rendered, target, mask))
        except LpipsError as error:
            self._without_lpips(error)

    def summary(self) -> dict[str, float]:
        """`flip` and `lpips`: means over the images that were measured. Empty without one."""
        named = {"flip": self.flips, "lpips": self.lpips}
        if 0 < len(self.flips) < self.come:
            self.notes.append(
                f"FLIP is of {len(self.flips)} of {self.come} images; measure.seconds=N gives it more time."
            )
        return {name: sum(values) / len(values) for name, values in named.items() if values}
