# SPDX-License-Identifier: Apache-2.0
"""Lidars of NCore: rays in the lidar's axes at their own times, as they are kept here, and a model of rows and columns.

A ray knows its row and its column. Where a store holds returns alone, the rays that did not return are the elements of the model that
no return has. For a lidar without rows and columns see unstructured.py.
"""

import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nurec_lite.capture.check import MAX_AZIMUTH_STEPS, MAX_BEAMS
from nurec_lite.capture.files import PIECE, short
from nurec_lite.capture.ncore.fields import field, numbers
from nurec_lite.capture.ncore.poses import Poses
from nurec_lite.capture.ncore.sequence import Part, Sequence
from nurec_lite.capture.ncore.store import REMEDY, Array
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.free_lidar import bands_of
from nurec_lite.geometry.lidar import Lidar, Sweep, unit_directions

MODEL = "row-offset-spinning"
FARTHEST = 1e4  # metres of a return
UNIT = 1e-2  # largest difference of a direction's length from 1
RANGE = 200.0  # metres that a lidar sees if its model does not say it


@dataclass(frozen=True)
class Elements:
    """Directions of a model's rays."""

    elevations: Tensor  # [rows] radians
    azimuths: Tensor  # [columns] radians
    offsets: Tensor  # [rows] radians, to the azimuth of a column

    def directions(self, rows: Tensor, columns: Tensor) -> Tensor:  # [m], [m] -> [m, 3]
        angles = torch.stack([self.azimuths[columns] + self.offsets[rows], self.elevations[rows]], dim=1)
        return unit_directions(angles)


@dataclass(frozen=True)
class Rays:
    """Arrays of one revolution. They pickle."""

    where: str  # for messages
    directions: Array  # [N, 3]
    stamps: Array  # [N] microseconds
    distances: Array  # [returns, N] metres, NaN where there is none
    intensities: Array  # [returns, N]
    zero: int  # microseconds at the capture's time 0

    def load(self, rings: Tensor) -> Sweep:  # [N] beams
        directions = self.directions.load().astype(np.float32)
        lengths = np.linalg.norm(directions.astype(np.float64), axis=1)
        if not (np.abs(lengths - 1) < UNIT).all():
            raise CaptureError(f"{self.where} holds directions of a length other than 1; {REMEDY}")
        ranges, intensities = _first(self.distances.load()), _first(self.intensities.load())
        returned = np.isfinite(ranges) & (ranges > 0)
        if returned.any() and float(ranges[returned].max()) > FARTHEST:
            raise CaptureError(f"{self.where} holds returns beyond {FARTHEST / 1000:g} km; {REMEDY}")
        bright = np.where(returned & np.isfinite(intensities), intensities, 0).clip(0, 1)
        return Sweep(
            directions=torch.from_numpy(directions),
            ranges=torch.from_numpy(np.where(returned, ranges, 0).astype(np.float32)),
            intensities=torch.from_numpy(bright.astype(np.float32)),
            times=torch.from_numpy((self.stamps.load().astype(np.int64) - self.zero) * 1e-6),
            rings=rings,
            returned=torch.from_numpy(returned),
        )

    def mark(self, thorough: bool) -> tuple[int, int]:
        spans = (*self.directions.spans, *self.distances.spans)
        parts = b"".join(span.part(0, min(PIECE, span.size)) for span in spans) if thorough else b""
        return sum(span.size for span in spans), zlib.crc32(parts) if thorough else -1


@dataclass(frozen=True)
class StoredSweep:
    """Loads the rays of one revolution that know their row and column. It pickles."""

    rays: Rays
    elements: Array  # [N, 2] row and column
    rings: Tensor  # [rows] the beam of each row
    fill: Elements | None  # for the rays that are missing; None: all are there

    def __call__(self) -> Sweep:
        elements = self.elements.load().astype(np.int64)
        columns = MAX_AZIMUTH_STEPS if self.fill is None else len(self.fill.azimuths)
        if len(elements) and not (elements < (len(self.rings), columns)).all():
            raise CaptureError(f"{self.rays.where} has rows or columns that its lidar lacks; {REMEDY}")
        sweep = self.rays.load(self.rings[torch.from_numpy(elements[:, 0])])
        return sweep if self.fill is None else _filled(sweep, torch.from_numpy(elements), self.fill, self.rings)

    def mark(self, thorough: bool) -> tuple[int, int]:
        return self.rays.mark(thorough)


@dataclass(frozen=True)
class FreeSweep:
    """Loads the rays of a lidar without rows and columns that we have written. It pickles."""

    rays: Rays
    lidar: Lidar

    def __call__(self) -> Sweep:
        sweep = self.rays.load(torch.zeros(self.rays.stamps.shape, dtype=torch.int64))
        return replace(sweep, rings=bands_of(self.lidar, sweep.directions))

    def mark(self, thorough: bool) -> tuple[int, int]:
        return self.rays.mark(thorough)


def _first(values: NDArray[Any]) -> NDArray[Any]:  # [returns, N] -> [N]
    return values[0] if len(values) else np.full(values.shape[1], np.nan, np.float32)


def _filled(sweep: Sweep, elements: Tensor, model: Elements, rings: Tensor) -> Sweep:
    """Sweep with the elements that no ray has, as rays without return, at the times of their columns."""
    rows, columns = len(model.elevations), len(model.azimuths)
    there = torch.zeros(rows, columns, dtype=torch.bool)
    there[elements[:, 0], elements[:, 1]] = True
    row, column = (~there).nonzero().unbind(1)
    if not len(sweep) or not len(row):
        return sweep
    known, place = elements[:, 1].unique(return_inverse=True)
    mean = torch.bincount(place, sweep.times) / torch.bincount(place)
    times = torch.from_numpy(np.interp(column.numpy(), known.numpy(), mean.numpy()))
    none = torch.zeros(len(row))
    more = Sweep(model.directions(row, column).float(), none, none, times, rings[row], none.bool())
    return Sweep(*(torch.cat([getattr(s, f) for s in (sweep, more)]) for f in Sweep.__dataclass_fields__))


@dataclass(frozen=True, eq=False)
class Model:
    """A lidar, and how rows of the store become its beams."""

    lidar: Lidar
    rings: Tensor  # [rows]
    fill: Elements | None


def read_lidar(sequence: Sequence, poses: Poses, name: str) -> Model | None:
    """Returns None for a lidar without rows and columns."""
    own = next((row for row in (sequence.own or {}).get("lidars", ()) if row["name"] == name), None)
    if own is not None:
        pose, beams = (torch.tensor(own[key], dtype=torch.float64) for key in ("T_rig_lidar", "elevations"))
        return Model(Lidar(**own | {"T_rig_lidar": pose, "elevations": beams}), rows_of(beams).argsort(), None)
    part = sequence.part("intrinsics")
    known = {} if part is None else part.attributes(f"lidars/{name}")
    if known.get("lidar_model_type") != MODEL:
        return None
    where = f"{sequence.where}: lidar {name}"
    return _of_model(field(known, "lidar_model_parameters", dict, where), poses.mounting(name), name, where)


def _of_model(known: dict[str, Any], T_rig_lidar: Tensor, name: str, where: str) -> Model:
    elevations, azimuths, offsets = (
        numbers(known, key, (-1,), where)
        for key in ("row_elevations_rad", "column_azimuths_rad", "row_azimuth_offsets_rad")
    )
    if not 1 <= len(elevations) == len(offsets) <= MAX_BEAMS or not 2 <= len(azimuths) <= MAX_AZIMUTH_STEPS:
        raise CaptureError(
            f"{where} has {len(elevations)} rows and {len(azimuths)} columns, which no lidar has; {REMEDY}"
        )
    turn = field(known, "spinning_direction", str, where)
    if turn not in ("cw", "ccw"):
        raise CaptureError(f"{where} turns '{short(turn)}', but must turn cw or ccw; {REMEDY}")
    if float(azimuths.abs().max()) > 4 * torch.pi:
        raise CaptureError(f"{where} has azimuths of {float(azimuths.abs().max()):.3g} radians; {REMEDY}")
    lidar = Lidar(name, T_rig_lidar, elevations, RANGE, len(azimuths), float(azimuths[0]), turn == "cw")
    return Model(lidar, torch.arange(len(elevations)), Elements(elevations, azimuths, offsets))


def rows_of(
    elevations: Tensor,  # [B] radians, of the beams
) -> Tensor:  # [B] the row of each beam: NCore counts rows from the top
    return elevations.argsort(descending=True, stable=True).argsort()


def stored_rays(part: Part, end: int, zero: int) -> Rays:
    """Returns the rays of the frame that ends at a microsecond."""
    frame = f"{part.group}/frames/{end}"
    names = (
        "ray_bundle/direction",
        "ray_bundle/timestamp_us",
        "ray_bundle_returns/distance_m",
        "ray_bundle_returns/intensity",
    )
    arrays = [part.store.array(f"{frame}/{name}") for name in names]
    directions, stamps, distances, intensities = arrays
    n = directions.shape[0] if directions.shape else -1
    shapes = (n, 3), (n,), (*distances.shape[:1], n), distances.shape
    if any(a.shape != shape or a.dtype[1] != kind for a, shape, kind in zip(arrays, shapes, "fuff", strict=True)):
        raise CaptureError(f"{part.store.path}: the arrays of {frame} do not fit one another; {REMEDY}")
    return Rays(f"{part.store.path}: {frame}", directions, stamps, distances, intensities, zero)


def stored_sweep(part: Part, end: int, model: Model, zero: int) -> StoredSweep | FreeSweep | None:
    """Returns the loader of the frame that ends at a microsecond; None where its rays have no rows and columns."""
    if not model.lidar.spins:
        return FreeSweep(stored_rays(part, end, zero), model.lidar)
    name = f"{part.group}/frames/{end}/ray_bundle/model_element"
    if not part.store.has(name):
        return None
    rays, elements = stored_rays(part, end, zero), part.store.array(name)
    if elements.shape != (*rays.stamps.shape, 2) or elements.dtype[1] != "u":
        raise CaptureError(
            f"{part.store.path}: the arrays of {part.group}/frames/{end} do not fit one another; {REMEDY}"
        )
    return StoredSweep(rays, elements, model.rings, model.fill)
