# SPDX-License-Identifier: Apache-2.0
"""Units that are easily taken for another one: the one that makes sense of a number."""

SUBDIVISIONS = {"milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}  # of a second
OF_A_METRE = {"millimetres": 1e3, "centimetres": 1e2}


def seconds_in(
    value: float,  # that is said to be in seconds
    least: float,  # seconds that make sense
    most: float,
) -> tuple[str, float] | None:
    """The unit that makes sense of the value, and how many of it are a second; None: no known one."""
    fitting = (unit for unit in SUBDIVISIONS.items() if least <= value / unit[1] <= most)
    return next(fitting, None)


def divided(
    unit: tuple[str, float],
    what: str,  # is in that unit, as in `the times`
) -> str:
    """Remedy for values in another unit."""
    name, factor = unit
    return f"{what} are in {name}: divide them by {factor:.0f}"
