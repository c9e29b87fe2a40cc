# SPDX-License-Identifier: Apache-2.0
"""Arrays of a sweep that are in another unit, or that contradict one another."""

from collections.abc import Iterator

from torch import Tensor

from nurec_lite.capture.units import OF_A_METRE
from nurec_lite.geometry.lidar import Sweep

Flaw = tuple[str, str]  # a sentence without its full stop, and the remedy
UNIT = 0.02  # largest difference of a direction's length from 1
LONG = 300.0  # metres: the median of right ranges is shorter
LONGEST = 3e5  # metres: ranges in millimetres have a shorter median
SHORT = 0.3  # metres: it is longer
STREET = 2.0  # metres: the median of a sweep in a street is longer
BRIGHT = {255.0: "255", 65535.0: "65535"}  # the largest intensity in 8 and in 16 bits
FAINT, MANY = 0.006, 1000  # the largest intensity of so many returns is higher, as 8 bits in the range of 16 are not
BARELY = 2.0  # intensities up to that are no counts of bits
ROUNDING = 1e-3  # excess of an intensity over 1, at most


def value_flaws(
    sweep: Sweep,
    beams: int,  # of the lidar
) -> Iterator[Flaw]:
    """Flaws of one sweep; none of a sweep without rays."""
    if len(sweep):
        yield from _finite(sweep)
        yield from _directions(sweep)
        yield from _returned(sweep)
        yield from _rings(sweep.rings, beams)
        if bool(sweep.returned.any()):
            yield from _ranges(sweep.ranges[sweep.returned])
            yield from _intensities(sweep.intensities[sweep.returned])


def _finite(sweep: Sweep) -> Iterator[Flaw]:
    odd = ~(sweep.ranges.isfinite() & sweep.intensities.isfinite() & sweep.directions.isfinite().all(1))
    if bool(odd.any()):
        yield f"{int(odd.sum())} of {len(sweep)} rays hold values that are no numbers", "leave these rays out"


def _directions(sweep: Sweep) -> Iterator[Flaw]:
    lengths = sweep.directions.norm(dim=1)
    odd = int(((lengths - 1).abs() > UNIT).sum())
    if odd:
        points = sweep.returned & ((lengths - sweep.ranges).abs() < UNIT * sweep.ranges)
        are = "they are points" if 2 * int(points.sum()) > odd else "they are no unit vectors"
        yield (
            f"{odd} of {len(sweep)} directions have another length than 1, {float(lengths.median()):.3g} in the median",
            f"{are}: divide each by its length",
        )


def _returned(sweep: Sweep) -> Iterator[Flaw]:
    count = len(sweep)
    without, beside = (
        int(x.sum()) for x in (sweep.returned & (sweep.ranges <= 0), ~sweep.returned & (sweep.ranges > 0))
    )
    if without + beside > 0.5 * count and beside:
        yield f"{beside} of {count} rays have a range but are marked as not returned", "the array returned is inverted"
    elif without:
        yield (
            f"{without} of {count} rays are marked as returned but have no range",
            "mark only rays with a range as returned",
        )


def _rings(rings: Tensor, beams: int) -> Iterator[Flaw]:
    low, high = int(rings.min()), int(rings.max())
    if low == 1 and high == beams:
        yield f"Rings go from 1 to {beams}, but the lidar has beams 0 to {beams - 1}", "subtract 1 from rings"
    elif low < 0 or high >= beams:
        remedy = "give for each ray the place of its beam in the elevations of the lidar"
        yield f"Rings go from {low} to {high}, but the lidar has beams 0 to {beams - 1}", remedy


def _ranges(ranges: Tensor) -> Iterator[Flaw]:
    middle = float(ranges.median())
    sentence = f"Ranges are {middle:.3g} m in the median"
    if middle > LONGEST:
        yield sentence, "give ranges in metres"
    elif middle > LONG:
        fitting = (unit for unit in OF_A_METRE.items() if middle / unit[1] >= STREET)
        name, factor = next(fitting, ("centimetres", OF_A_METRE["centimetres"]))
        yield sentence, f"they are in {name}: divide ranges by {factor:.0f}"
    elif middle < SHORT:
        yield (
            sentence,
            "they are not in metres, for example in kilometres or parts of the largest range: give ranges in metres",
        )


def _intensities(intensities: Tensor) -> Iterator[Flaw]:
    low, high = float(intensities.min()), float(intensities.max())
    if high > 1 + ROUNDING or low < 0:
        most = next((word for value, word in BRIGHT.items() if low >= 0 and BARELY < high <= value), None)
        remedy = "give intensities of 0 to 1" if most is None else f"divide intensities by {most}"
        yield f"Intensities go from {low:.3g} to {high:.5g}, but must lie between 0 and 1", remedy
    elif 0 < high < FAINT and len(intensities) >= MANY:
        yield f"Intensities are {high:.2g} at most", "give intensities of 0 to 1, here perhaps multiplied by 255"
