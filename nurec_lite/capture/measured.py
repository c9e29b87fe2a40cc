# SPDX-License-Identifier: Apache-2.0
"""The rig's motion, as sensors other than cameras and lidars measured it: inertial units, wheels and satellites."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Measured:
    """Measurements at n times. Every field but the times may be missing. At least two times, in strictly rising
    order."""

    times: Tensor  # [n] seconds on the capture's clock, float64
    velocities: Tensor | None = None  # [n, 3] metres a second in the rig's own axes: forward, left, up
    rates: Tensor | None = None  # [n, 3] radians a second about the rig's own axes
    attitudes: Tensor | None = None  # [n, 4] unit quaternions of the rig in a world with z up
    positions: Tensor | None = None  # [n, 3] metres in that world
