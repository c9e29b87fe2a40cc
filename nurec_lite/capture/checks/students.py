# SPDX-License-Identifier: Apache-2.0
"""Bounds for means of few values."""


def students(
    z: float,  # standard deviations of a normal distribution
    freedom: int,  # degrees of freedom
) -> float:  # quantile of Student's distribution with the same probability
    """Quantile by four terms of the series in Abramowitz and Stegun, 26.7.5."""
    terms = (
        z,
        (z**3 + z) / (4 * freedom),
        (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3),
    )
    return sum(terms)
