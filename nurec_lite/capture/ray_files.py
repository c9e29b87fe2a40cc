# SPDX-License-Identifier: Apache-2.0
"""Tables of rays as text: a row a ray with azimuth and elevation in degrees and the part of the sweep before it, 0 to 1."""

from pathlib import Path

import numpy as np
import torch

from nurec_lite.capture.check import MAX_TABLE
from nurec_lite.capture.files import LARGEST_TEXT, read_text, short
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.lidar import RayTable, unit_directions

REMEDY = "write a row a ray: azimuth and elevation in degrees, and the part of the sweep before it, 0 to 1"


def read_rays(path: Path) -> RayTable:
    """The rays in order of time; CaptureError for a file that is no table of rays."""
    lines = [line for line in read_text(path, REMEDY, LARGEST_TEXT).splitlines() if line.split("#")[0].strip()]
    if not 1 <= len(lines) <= MAX_TABLE:
        raise CaptureError(f"{path} has {len(lines)} rays, but must have 1 to {MAX_TABLE}; {REMEDY}")
    try:
        rows = np.loadtxt(lines, delimiter="," if "," in lines[0] else None, ndmin=2)
    except ValueError as error:
        raise CaptureError(f"{path} is no table of numbers ({short(error)}); {REMEDY}") from error
    if rows.shape[1] != 3:
        raise CaptureError(f"{path} has {rows.shape[1]} columns; {REMEDY}")
    azimuth, elevation, fraction = torch.from_numpy(rows).unbind(1)
    inside = (azimuth.abs() <= 360) & (elevation.abs() <= 90) & (fraction >= 0) & (fraction <= 1)  # NaN is not
    if not bool(inside.all()):
        row = int((~inside).double().argmax())
        raise CaptureError(f"{path}: ray {row + 1} is {short(lines[row])}; {REMEDY}")
    order = torch.argsort(fraction, stable=True)
    angles = torch.deg2rad(torch.stack([azimuth, elevation], dim=1))[order]
    return RayTable(unit_directions(angles).float(), fraction[order].contiguous())
