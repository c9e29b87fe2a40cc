# SPDX-License-Identifier: Apache-2.0
"""The sections with pictures and curves: images with their renders, sweeps, and the course of training."""

import math

import numpy as np

from nurec_lite.base.pool import in_threads
from nurec_lite.evaluation.drawing import DrawnImage, DrawnSweep, FrameFigures
from nurec_lite.evaluation.pictures import COLOUR_ERROR, ERROR_MAP, MEASURED, RENDERED, Bar
from nurec_lite.report.charts import Mark, line_chart
from nurec_lite.report.content import Report
from nurec_lite.report.lidar import BOTH, Map, from_above, range_maps
from nurec_lite.report.parts import escaped, image, legend, section, swatch

TERMS = {  # loss terms by name: title and unit
    "image": ("Image: L1 and SSIM", ""), "range": ("Range: L1", "m"), "intensity": ("Intensity: L1", ""),
    "drop": ("Ray drop: cross entropy", ""), "opacity": ("Mean opacity, of camera and lidar", ""),
    "tie": ("Difference of both opacities", ""), "scale": ("Mean scale", "m"),
    "exposure": ("Exposure: squares of gain and offset", ""), "gaussians": ("Gaussians", ""),
}  # fmt: skip
_TIMES = ((600, 1, "s"), (7200, 60, "min"), (math.inf, 3600, "h"))  # up to so many seconds: the unit, and its length


def time_unit(
    seconds: float,  # that an axis spans
) -> tuple[float, str]:  # length of the unit in seconds, and its name
    return next((length, unit) for limit, length, unit in _TIMES if seconds <= limit)


def images(report: Report) -> str:
    """Truth and render with a wipe between them, and their difference."""
    drawn = report.evaluation.images if report.evaluation else ()
    if not drawn:
        return ""
    note = f"Some of the {report.measured}: ground truth left of the line, render right of it; drag the line or the slider."
    return section("images", "Images", "".join(in_threads(_image, drawn)), note)


def _image(drawn: DrawnImage) -> str:
    f = drawn.figures
    name, bar = f"{f.sensor}, frame {f.index}", Bar(ERROR_MAP, 0, COLOUR_ERROR)
    difference = bar.paint(np.abs(drawn.truth.astype(np.float32) - drawn.rendered).mean(-1) / 255)
    figures = f"{f.psnr:.2f} dB PSNR · {f.ssim:.3f} SSIM"
    truth, rendered = image(drawn.truth, f"{name}, ground truth"), image(drawn.rendered, f"{name}, rendered")
    wipe = (
        '<figure class="wipe"><div class="pane">'
        f'<div class="side">{truth}<span class="badge">ground truth</span></div>'
        f'<div class="side over">{rendered}<span class="badge">rendered</span></div></div>'
        f'<input type="range" min="0" max="100" value="50" step="any" hidden aria-label="{escaped(name)}: share of ground truth"></figure>'
    )
    error = f"<figure>{image(difference, f'{name}, absolute error')}<figcaption>absolute error {legend(bar)}</figcaption></figure>"
    return f'<article class="image">{_head(f, figures)}{wipe}{error}</article>'


def _head(f: FrameFigures, figures: str) -> str:
    return f'<h3>{escaped(f.sensor)}, frame {f.index} <span class="unit">{escaped(figures)}</span></h3>'


def sweeps(report: Report) -> str:
    """Range maps and the view from above."""
    drawn = report.evaluation.sweeps if report.evaluation else ()
    if not drawn:
        return ""
    note = "Range maps: a row a beam, the highest on top; straight ahead in the middle, backwards at both ends; black: no return."
    return section("lidar", "Lidar", "".join(in_threads(_sweep, drawn)), note)


def _sweep(drawn: DrawnSweep) -> str:
    f = drawn.figures
    strips = "".join(_strip(f, shown) for shown in range_maps(drawn))
    picture, reach = from_above(drawn)
    kinds = ((BOTH, "both"), (MEASURED, "measured only"), (RENDERED, "rendered only"))
    colours = f"<span>{' '.join(swatch(*kind) for kind in kinds)}</span>"
    above = image(picture, f"{f.sensor}, frame {f.index}, points from above", exact=True)
    caption = f"<figcaption>from above, {2 * reach:g}\u202fm across, ahead on top {colours}</figcaption>"
    seen = f'<figure class="above">{above}{caption}</figure>'
    error = f.lidar_median_abs_m
    figures = f"median error {error:.3f} m" if error is not None and math.isfinite(error) else "nothing returned"
    return f'<article class="sweep">{_head(f, figures)}<div class="strips">{strips}</div>{seen}</article>'


def _strip(f: FrameFigures, shown: Map) -> str:
    picture = image(shown.picture, f"{f.sensor}, frame {f.index}, {shown.title}", exact=True)
    return f"<figure>{picture}<figcaption>{shown.title} {legend(shown.bar)}</figcaption></figure>"


def curves(report: Report) -> str:
    """PSNR, loss terms and number of Gaussians over the time of training."""
    rows = report.history
    if not rows:
        return ""
    psnr = report.metrics.get("psnr", math.nan)
    last = report.metrics["seconds_train"]
    length, unit = time_unit(last)
    mark = (
        Mark(last / length, psnr, f"{report.measured} {psnr:.2f} dB")
        if psnr is not None and math.isfinite(psnr)
        else None
    )
    charts = ""
    names = dict.fromkeys(name for row in rows for name in row if name not in ("step", "seconds"))
    for name in sorted(names, key=lambda name: (name == "gaussians", name != "psnr")):
        known = [row for row in rows if math.isfinite(row.get(name, math.nan))]
        if known:
            xs, ys = [row["seconds"] / length for row in known], [row[name] for row in known]
            title, y_unit = ("PSNR of training images", "dB") if name == "psnr" else TERMS.get(name, (name, ""))
            charts += line_chart(title, y_unit, xs, ys, unit, mark if name == "psnr" else None)
    note = "Running means over the steps, before weights."
    return section("training", "Training", f'<div class="grid">{charts}</div>', note)
