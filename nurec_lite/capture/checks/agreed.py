# SPDX-License-Identifier: Apache-2.0
"""Rotation and clock offset with the best agreement of edges of a camera and of the lidars."""

from dataclasses import dataclass

ERRORS = 3.0  # standard errors that a turn or an offset has at least
SURE = 2.0  # least growth of a clock's offset with the speed, in standard errors


@dataclass(frozen=True)
class Agreement:
    """Rotation and clock offset with the best agreement of edges."""

    degrees: float  # that the camera looks farther left than the capture says
    degrees_error: float  # standard error
    seconds: float  # that its clock is behind the lidar's
    seconds_error: float  # infinite where too few images are of a moving vehicle
    by_speed: tuple[float, float] | None = None  # growth of the offset with the speed, seconds, and its standard error

    few: float = 1.0  # times as many errors are needed to be as sure, since few groups of images tell them

    @property
    def degrees_least(self) -> float:
        """The largest turn that chance explains."""
        return ERRORS * self.few * self.degrees_error

    @property
    def seconds_least(self) -> float:
        return ERRORS * self.few * self.seconds_error

    @property
    def is_clock(self) -> bool:
        """Whether the offset is that of a clock: edges then move with the speed. A camera that sits elsewhere moves them by the same way at
        any speed. True where the speed does not vary enough to tell."""
        if self.by_speed is None:
            return True
        seconds, error = self.by_speed
        return seconds * self.seconds > 0 and abs(seconds) > SURE * error
