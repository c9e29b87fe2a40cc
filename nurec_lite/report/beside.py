# SPDX-License-Identifier: Apache-2.0
"""The section with views off the path, where nothing was captured, and their figures."""

from functools import partial

import numpy as np

from nurec_lite.base.pool import in_threads
from nurec_lite.evaluation.beside import DISTANCES
from nurec_lite.evaluation.results import FIGURES, measured
from nurec_lite.report.content import Report
from nurec_lite.report.parts import escaped, image, section, table

_BY_KEY = {figure.key: figure for figure in FIGURES}
_COLUMNS = {"lidar_beside_{}m": "lidar error, median, m", "boxes_beside_{}m": "boxes found again"}


def beside(report: Report) -> str:
    """A row of pictures of one moment, and a line of figures for each distance; empty without such views."""
    drawn = report.evaluation.beside if report.evaluation else None
    if drawn is None:
        return ""
    shown = "".join(
        in_threads(partial(_shown, f"{drawn.sensor}, frame {drawn.index}", drawn.side), drawn.pictures.items())
    )
    note = (
        "Rendered from where no sensor was. Ranges are compared with the distances of measured points that are seen from there; a box is "
        "found again if the image's depth lies within it."
    )
    body = f'<h3>{escaped(f"{drawn.sensor}, frame {drawn.index}")}</h3><div class="pictures">{shown}</div>{_figures(report)}'
    return section("beside", "Off the path", body, note)


def _shown(name: str, side: str, seen: tuple[int, np.ndarray]) -> str:
    where = _where(seen[0], side)
    return f"<figure>{image(seen[1], f'{name}, {where}')}<figcaption>{where}</figcaption></figure>"


def _where(distance: int, side: str) -> str:
    return f"{distance} m to the {side}" if distance else "on the path"


def _figures(report: Report) -> str:
    keys = [key for key in _COLUMNS if any(measured(report.metrics.get(key.format(d))) for d in DISTANCES)]
    if not keys:
        return ""
    rows = [
        (f"{d} m" if d else "on the path", *(escaped(_text(report, key.format(d))) for key in keys)) for d in DISTANCES
    ]
    return table(("to the side", *(_COLUMNS[key] for key in keys)), rows, "facts")


def _text(report: Report, key: str) -> str:
    return _BY_KEY[key].text(report.metrics.get(key))
