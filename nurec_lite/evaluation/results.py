# SPDX-License-Identifier: Apache-2.0
"""Names and meanings of a run's figures, and their files."""

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from statistics import fmean
from typing import Any

from nurec_lite.base.files import write_text
from nurec_lite.base.texts import printable
from nurec_lite.evaluation.beside import DISTANCES
from nurec_lite.evaluation.drawing import FrameFigures
from nurec_lite.evaluation.metrics import to_json


@dataclass(frozen=True)
class Figure:
    """Form of a value of metrics.json for a person."""

    key: str
    label: str
    unit: str
    digits: int
    meaning: str
    factor: float = 1.0  # of the value of metrics.json, for a unit that people read

    def text(self, value: Any) -> str:
        """The value without its unit; a dash without a measurement."""
        if not measured(value):
            return "–"
        if isinstance(value, int | float) and not isinstance(value, bool):
            return f"{value * self.factor:,.{self.digits}f}".replace(",", "\u202f").replace("inf", "∞")
        return printable(str(value))


def _beside(key: str, label: str, unit: str, meaning: str) -> list[tuple[Any, ...]]:
    """Rows of a figure that is measured at several distances from the path."""
    return [
        (key.format(d), label.format(d) if d else label.partition(",")[0] + ", on the path", unit, 3, meaning)
        for d in DISTANCES
    ]


GONE = "gaussians_left_scene"
_ROWS: tuple[tuple[Any, ...], ...] = (
    ("psnr", "PSNR", "dB", 2, "Peak signal-to-noise ratio, mean over images; higher is better"),
    ("ssim", "SSIM", "", 3, "Structural similarity, mean over images; 1: identical"),
    ("flip", "FLIP", "", 3, "Visible difference when one alternates between both images; 0: identical"),
    ("lpips", "LPIPS", "", 3, "Difference of a network's features (AlexNet); 0: identical"),
    ("psnr_actors", "PSNR of moving actors", "dB", 2, "Inside the projected boxes of moving objects, mean over them"),
    ("lidar_median_abs_m", "Lidar error, median", "m", 3, "Rendered against measured range over the rays that returned"),
    ("lidar_mean_abs_m", "Lidar error, mean", "m", 3, "The same as a mean; rays that meet nothing count as 80 m"),
    ("lidar_errors", "Lidar errors are of", "", 0, "z of pixels where returns fall, 0 if nothing is drawn: render=gsplat has no lidar"),
    ("lidar_median_sq_m2", "Lidar error, median of squares", "m²", 4, "The same errors squared, as some papers state them"),
    ("lidar_opacity_half", "Rays that meet something", "", 3, "Share of returned rays with an opacity of 0.5 or more; 1 is best"),
    ("intensity_rmse", "Intensity error", "", 3, "Root mean square over the rays that returned, of values from 0 to 1"),
    ("drop_accuracy", "Ray drop, accuracy", "", 3, "Share of all rays with a correctly predicted return; 1 is best"),
    ("chamfer_m", "Chamfer distance", "m", 3, "Rendered points to measured ones and back, sum of both means"),
    *_beside("lidar_beside_{}m", "Lidar error, {} m to the side", "m", "Median, towards measured points that are seen from there"),
    *_beside("boxes_beside_{}m", "Boxes found, {} m to the side", "", "Share of actors' boxes that hold the rendered depth; 1 is best"),
    ("corrections", "Sensors corrected by", "", 0, "Cameras' places on the rig and clocks, and how far rig and exposures change"),
    ("gaussians", "Gaussians", "", 0, "Ellipsoids that the scene is made of"),
    (GONE, "Left the scene", "", 0, "Gaussians that flew far beyond the capture or were not finite, and were put elsewhere"),
    ("steps", "Steps", "", 0, "Updates of all parameters; each renders an image and lidar rays"),
    ("seconds_train", "Training", "s", 1, "Time spent in steps"),
    ("step_ms", "A step", "ms", 2, "Mean time from one step to the next, over the second half of them"),
    ("peak_memory_bytes", "Memory, at most", "MiB", 0, "Held by torch on the GPU; on a CPU by the whole process", 2.0**-20),
    ("seconds_total", "Start to checkpoint", "s", 1, "With reading and initialisation, without measuring"),
    ("device", "Device", "", 0, "The device of the run"),
    ("commit", "Commit", "", 0, "Version of the code; + marks changes"),
    ("split", "Split", "", 0, "Held-out frames: interp every fifth moment, half every second one, side one camera"),
    ("subset", "Frames", "", 0, "Which of them were measured: test (held out), train or all"),
    ("trained_split", "Split of training", "", 0, "Another one than the measured split, so that both mix"),
    ("trained_on", "Trained on", "", 0, "Of the frames measured, which are not all held out"),
    ("trained_frames", "Trained on frames", "", 0, "Which of them these are, by sensor"),
    ("checkpoint", "Checkpoint", "", 0, "The file that was measured"),
)  # fmt: skip
FIGURES = tuple(Figure(*row) for row in _ROWS)


def pace(
    laps: Sequence[float],  # seconds from step to step
    peak: int | None,  # bytes
) -> dict[str, float]:
    """Figures for metrics.json, without unknown ones. First steps wait for frames, so the second half of the laps counts. Their median
    would mislead: the host begins steps of a GPU ahead, some at once and some after a wait."""
    found = {"step_ms": 1000 * fmean(laps[len(laps) // 2 :])} if laps else {}
    return found | ({} if peak is None else {"peak_memory_bytes": peak})


def left_scene(gone: int) -> dict[str, int]:
    """Figures for metrics.json; empty if no Gaussian left the scene."""
    return {GONE: gone} if gone else {}


def measured(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def known_figures(metrics: dict[str, Any]) -> list[Figure]:
    """Figures that the metrics have, in their order."""
    return [figure for figure in FIGURES if figure.key in metrics]


def table(metrics: dict[str, Any]) -> str:
    """The measured figures line by line, and the findings about the capture."""
    lines = [(f, metrics[f.key]) for f in known_figures(metrics) if measured(metrics[f.key])]
    figures = [f"  {f.label:32} {f.text(value):>10} {f.unit}".rstrip() for f, value in lines]
    return "\n".join([*figures, *(f"  {sentence}" for sentence in metrics.get("findings", ()))])


def write_metrics(path: Path, metrics: dict[str, Any]) -> None:
    write_text(path, json.dumps(to_json(metrics), indent=2) + "\n")


def write_frames(path: Path, frames: tuple[FrameFigures, ...]) -> None:
    """One line a frame; empty where a figure does not apply or was not measured."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(f.name for f in fields(FrameFigures))
    rows.writerows(["" if to_json(value) is None else value for value in astuple(frame)] for frame in frames)
    write_text(path, text.getvalue())
