# SPDX-License-Identifier: Apache-2.0
"""Frames that a measurement keeps to look at, and their pictures: threads draw and write them while other frames are measured."""

from collections import deque
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

import numpy as np
import torch

from nurec_lite.base.aside import Aside
from nurec_lite.base.left_out import LeftOut
from nurec_lite.base.pool import in_threads
from nurec_lite.base.ranges import in_span
from nurec_lite.evaluation.pictures import comparison, range_picture, save_png
from nurec_lite.geometry.lidar import Lidar, Sweep
from nurec_lite.splat.render import LidarReturns


@dataclass(frozen=True)
class FrameFigures:
    """Metrics of one image or one sweep; None where one does not apply, NaN where nothing was measured."""

    sensor: str
    index: int
    psnr: float | None = None  # decibel
    ssim: float | None = None
    lidar_median_abs_m: float | None = None


@dataclass(frozen=True)
class DrawnImage:
    figures: FrameFigures
    truth: np.ndarray  # [H, W, 3] uint8, masked pixels hatched
    rendered: np.ndarray  # [H, W, 3] uint8, masked pixels hatched


@dataclass(frozen=True)
class DrawnSweep:
    """R rays of a sweep, on the host."""

    figures: FrameFigures
    sweep: Sweep
    returns: LidarReturns
    lidar: Lidar


class Drawing:
    """Pictures of a measurement, as PNG. The end of the block waits for them."""

    def __init__(self, folder: Path, left_out: LeftOut) -> None:
        self._folder, self._left_out = folder, left_out
        self._begun, self._open = list[Aside[None]](), ExitStack()

    def begin(self, images: Iterable[DrawnImage] = (), sweeps: Iterable[DrawnSweep] = ()) -> None:
        """Draws these while the caller goes on."""
        works = [("A picture of an image", partial(_save_image, self._folder, image)) for image in images]
        works += [("A picture of a sweep", partial(_save_sweep, self._folder, sweep)) for sweep in sweeps]

        def drawn() -> None:
            deque(in_threads(lambda work: self._left_out.tried(*work), works), maxlen=0)

        self._begun.append(self._open.enter_context(Aside(in_span("pictures", drawn))))

    def written(self) -> None:
        """Waits for the pictures; OutputError of the first that could not be written."""
        for aside in self._begun:
            aside.result()

    def __enter__(self) -> "Drawing":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            for aside in self._begun:
                aside.wait()
        self._open.close()


def _save_image(folder: Path, image: DrawnImage) -> None:
    picture = comparison(torch.from_numpy(image.truth), torch.from_numpy(image.rendered), image.figures.psnr)
    save_png(folder / f"{_name(image.figures)}.png", picture)


def _save_sweep(folder: Path, sweep: DrawnSweep) -> None:
    save_png(folder / f"{_name(sweep.figures)}.png", range_picture(sweep.sweep, sweep.returns, sweep.lidar))


def _name(figures: FrameFigures) -> str:
    return f"{figures.sensor}_{figures.index:04d}"
