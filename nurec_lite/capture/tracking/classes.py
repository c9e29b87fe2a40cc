# SPDX-License-Identifier: Apache-2.0
"""Kinds of objects by how large they are seen to be, and the sizes that sides have that are never seen."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

HIGHEST_CAR = 1.95  # metres above the ground of its highest return
WIDEST_VAN, LOWEST_TRUCK = 2.2, 2.15  # metres: wider and higher ones are trucks, also where no beam reaches the top
LOWEST_CUT = 1.8  # metres, of those whose top no beam reaches
HIGH, HIGH_CUT = 2.7, 2.35  # metres: narrow ones are trucks as well
WALKS = 3.5  # metres a second that a pedestrian does not pass


@dataclass(frozen=True)
class Kind:
    name: str  # as KITTI names classes
    size: tuple[float, float, float]  # length, width, height in metres


_USUAL = {
    "Pedestrian": (0.6, 0.6, 1.7),
    "Cyclist": (1.75, 0.6, 1.7),
    "Car": (4.3, 1.75, 1.5),
    "Van": (4.9, 1.95, 2.1),
    "Truck": (9.5, 2.5, 3.2),
}
MARGIN = 0.05  # metres that returns lie inside the object, on both sides together
MARGIN_TOP = 0.15  # metres between the highest return and the top: beams are further apart than columns
_SHORTEST = 0.7  # of the usual length
_LONGEST = (18.0, 3.0, 4.5)


def kind_of(
    seen: NDArray[np.float64],  # [3] metres: length, width, and the highest return above the ground
    speed: float,  # metres a second
    whole: bool = False,  # both ends were seen
    cut: bool = False,  # no beam reaches the top
    room: float = np.inf,  # metres along that sides which are never seen may have
) -> Kind:
    """Class and size of an object: its seen sides; a car's are no shorter than usual, unless it was seen from end to end."""
    length, width, height = seen.tolist()
    name = _name(length, width, height, speed, cut)
    usual = _usual(name, height)
    size = np.minimum(np.maximum(seen + MARGIN, usual), _LONGEST)
    if whole:
        size[0] = max(float(seen[0]) + MARGIN, _SHORTEST * usual[0])
    if name in ("Pedestrian", "Cyclist"):
        size[:2] = np.minimum(size[:2], np.array(usual[:2]) + 0.4)
    size[2] = min(max(height + MARGIN_TOP, (1.0 if cut else 0.75) * usual[2]), _LONGEST[2])
    size[0] = max(min(size[0], room), seen[0])
    return Kind(name, (float(size[0]), float(size[1]), float(size[2])))


def _usual(name: str, height: float) -> NDArray[np.float64]:  # [3] metres
    """Usual sizes of a class; the higher a car, the more like a van."""
    if name != "Car":
        return np.array(_USUAL[name])
    car, van = np.array(_USUAL["Car"]), np.array(_USUAL["Van"])
    return car + (van - car) * np.clip((height - car[2]) / (HIGHEST_CAR - car[2]), 0, 1)


def _name(length: float, width: float, height: float, speed: float, cut: bool) -> str:
    high = height > (HIGH_CUT if cut else HIGH) and (width > 1.5 or length > 3.0)
    wide = height > (LOWEST_CUT if cut else LOWEST_TRUCK) and width > WIDEST_VAN
    if length > 6.5 or high or wide:
        return "Truck"
    if length < 1.1 and width < 1.1 and speed < WALKS and height < 2.2:
        return "Pedestrian"
    if length < 2.2 and width < 1.0 and height < 2.2:
        return "Cyclist"
    return "Van" if height > HIGHEST_CAR else "Car"
