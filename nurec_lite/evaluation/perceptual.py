# SPDX-License-Identifier: Apache-2.0
"""FLIP and LPIPS over held-out images, within a number of images or of seconds."""

import time
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nurec_lite.base.left_out import LeftOut
from nurec_lite.evaluation.flip import mean_flip
from nurec_lite.evaluation.lpips import Lpips, LpipsError, load_lpips
from nurec_lite.evaluation.spread import spread
from nurec_lite.geometry.masks import blackened


@dataclass
class Perceptual:
    """Measures images as they come. Where not all are measured, those that are spread over the drive."""

    seconds: float  # that it may take; 0: nothing is measured
    images: int  # that come
    device: torch.device
    left_out: LeftOut
    most: int | None = None  # images that are measured at most; None: as many as the time allows
    notes: list[str] = field(default_factory=list)  # sentences on figures that are left out
    spent: float = 0.0
    come: int = 0
    flips: list[Tensor] = field(default_factory=list)  # []
    chosen: set[int] = field(default_factory=set)  # their numbers
    lpips: list[float] = field(default_factory=list)
    network: Lpips | None = None

    def __post_init__(self) -> None:
        self.chosen = set(spread(range(self.images), self.images if self.most is None else self.most))
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
        late = self.spent > self.seconds * (self.come - 1) / self.images
        if self.seconds <= 0 or late or self.come - 1 not in self.chosen:
            return
        begin = time.monotonic()
        self.left_out.tried("FLIP or LPIPS of an image", lambda: self._measure(rendered, target, mask))
        self.spent += time.monotonic() - begin

    def _measure(self, rendered: Tensor, target: Tensor, mask: Tensor | None) -> None:
        rendered, target = (blackened(image.to(self.device), mask) for image in (rendered, target))
        self.flips.append(mean_flip(rendered, target, mask))
        if self.most is None:  # the time decides, so it must be that of the work
            self.flips[-1].item()
        if self.network is None:
            return
        try:
            self.lpips.append(self.network(rendered, target, mask))
        except LpipsError as error:
            self._without_lpips(error)

    def summary(self) -> dict[str, float]:
        """`flip` and `lpips`: means over the images that were measured. Empty without one."""
        flips = torch.stack(self.flips).tolist() if self.flips else []
        named = {"flip": flips, "lpips": self.lpips}
        if 0 < len(self.flips) < self.come:
            self.notes.append(
                f"FLIP is of {len(self.flips)} of {self.come} images, spread over the drive; measure.seconds=N measures as many as fit."
            )
        return {name: sum(values) / len(values) for name, values in named.items() if values}
