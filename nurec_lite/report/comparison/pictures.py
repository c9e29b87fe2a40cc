# SPDX-License-Identifier: Apache-2.0
"""The pictures of held-out frames that several runs have: each run's render of the same frame, side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
from PIL import Image

from nurec_lite.base.folders import PICTURES
from nurec_lite.evaluation.pictures import parted
from nurec_lite.report.comparison.runs import Run

IMAGES, SWEEPS = 6, 2  # frames that are shown at most
_PANELS = 3  # of a picture: measured, rendered, error
_LARGEST = 1 << 25  # pixels of a picture
_SMALL = (24, 16)  # pixels of measured pictures for a comparison
_SAME = 6.0  # of 255: measured pictures of one frame differ less in the mean, also at other sizes


@dataclass(frozen=True)
class Frame:
    """One frame as the runs that have it show it."""

    name: str
    measured: np.ndarray  # [H, W, 3] uint8, of the first run
    rendered: dict[int, np.ndarray]  # number of the run -> [H, W, 3] uint8
    errors: dict[int, np.ndarray]


@dataclass
class Frames:
    images: list[Frame] = field(default_factory=list)
    sweeps: list[Frame] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # sentences on pictures that are left out


def frames_of(runs: Sequence[Run]) -> Frames:
    """Frames with a picture from two runs or more, evenly over the drive."""
    found = Frames()
    found.images = _shown(runs, [list(run.psnrs) for run in runs], IMAGES, found.notes)
    found.sweeps = _shown(runs, [run.sweeps for run in runs], SWEEPS, found.notes)
    if not found.images and not found.sweeps:
        found.notes.append("No held-out frame has a picture in two of the runs, so no pictures are shown.")
    return found


def _shown(runs: Sequence[Run], names: list[list[str]], most: int, notes: list[str]) -> list[Frame]:
    has = {name for run, own in zip(runs, names, strict=True) for name in own if _path(run, name).is_file()}
    owners = {
        name: [k for k, own in enumerate(names) if name in own and _path(runs[k], name).is_file()]
        for name in sorted(has)
    }
    shared = [name for name, among in owners.items() if len(among) > 1]
    chosen = [shared[round(k)] for k in np.linspace(0, len(shared) - 1, min(most, len(shared)))]
    frames = (_frame(runs, name, owners[name], notes) for name in chosen)
    return [frame for frame in frames if frame is not None]


def _path(run: Run, name: str) -> Path:
    return run.folder / PICTURES / f"{name}.png"


def _frame(runs: Sequence[Run], name: str, among: list[int], notes: list[str]) -> Frame | None:
    """Returns a frame side by side; None, with a sentence in the notes, where fewer than two runs show it."""
    parts = {k: panels for k in among if (panels := _panels(runs[k], name, notes)) is not None}
    if not parts:
        return None
    first = next(iter(parts))
    measured = parts[first][0]
    same = [k for k in parts if _alike(measured, parts[k][0])]
    others = [runs[k].name for k in parts if k not in same]
    if others:
        notes.append(
            f"{name} of {', '.join(others)} is another picture than that of {runs[first].name}, and is left out."
        )
    if len(same) < 2:
        return None
    return Frame(name, measured, {k: parts[k][1] for k in same}, {k: parts[k][2] for k in same})


def _panels(run: Run, name: str, notes: list[str]) -> list[np.ndarray] | None:
    try:
        path = _path(run, name)
        height, width, *_ = imageio.improps(path, plugin="pillow").shape  # without its pixels
        if height * width > _LARGEST:
            raise ValueError(f"it has {width} x {height} pixels")
        panels = parted(imageio.imread(path, plugin="pillow", mode="RGB"), _PANELS)
        if panels is None:
            raise ValueError(f"it does not show {_PANELS} pictures")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        notes.append(f"The picture {name} of {run.name} cannot be read ({' '.join(str(error).split())[:200]}).")
        return None
    return panels


def _alike(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two measured pictures of any sizes show the same."""
    return float(np.abs(_small(a) - _small(b)).mean()) < _SAME


def _small(picture: np.ndarray) -> np.ndarray:  # [16, 24, 3] float32
    return np.asarray(Image.fromarray(picture).resize(_SMALL, Image.Resampling.BOX), dtype=np.float32)


def captions(runs: Sequence[Run], frame: Frame) -> Iterator[tuple[int, str]]:
    """Number and caption of each run that shows the frame."""
    for k in frame.rendered:
        psnr = runs[k].psnrs.get(frame.name)
        yield k, runs[k].name + ("" if psnr is None else f", {psnr:.2f} dB")
