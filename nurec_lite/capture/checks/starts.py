# SPDX-License-Identifier: Apache-2.0
"""Rotations of cameras and offsets of their clocks that edges show: initial corrections of a training that learns them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nurec_lite.capture.checks.agreed import Agreement

if TYPE_CHECKING:
    from nurec_lite.capture.checks.sample import Sample  # a mere reader of starts goes without the checks

# that edges are off by where nothing else is: on the bundled street by 0.03 degrees and 3.6 ms
DEGREES, SECONDS = 0.08, 0.006
SIGMAS = 4.0  # standard errors of an offset from edges, at least


@dataclass(frozen=True)
class Start:
    """The start of one camera's corrections. Zero: edges do not determine it better than the capture says."""

    degrees: float  # that the camera looks farther left than the capture says
    seconds: float  # that its clock is behind the lidar's


def starts_of(
    sample: "Sample",  # of the checked cameras
) -> dict[str, Start]:
    """Starts by the names of the cameras that have something to correct."""
    found = {name: _start(agreement) for name, agreement in sample.agreements.items()}
    return {name: start for name, start in found.items() if start.degrees or start.seconds}


def _start(found: Agreement) -> Start:
    turned = abs(found.degrees) > max(DEGREES, SIGMAS * found.degrees_error)
    late = found.is_clock and abs(found.seconds) > max(SECONDS, SIGMAS * found.seconds_error)
    return Start(found.degrees if turned else 0.0, found.seconds if late else 0.0)
