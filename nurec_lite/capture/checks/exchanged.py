# SPDX-License-Identifier: Apache-2.0
"""Mountings of two lidars that stand in each other's place."""

from collections.abc import Collection, Mapping
from itertools import combinations

from nurec_lite.capture.checks.conventions import FITS, MADE
from nurec_lite.capture.checks.motion import Motions
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import invert


def exchanged(known: Mapping[str, Motions], wrong: Collection[str], check: str) -> list[Verdict]:
    """A verdict about each two lidars with motions that agree with the poses if their mountings are exchanged."""
    return [
        _verdict(a, b, check)
        for a, b in combinations(wrong, 2)
        if _fits(known[a], known[b].lidar) and _fits(known[b], known[a].lidar)
    ]


def _fits(motions: Motions, other: Lidar) -> bool:
    X = other.T_rig_lidar.double()
    posed = invert(X) @ motions.of_rig(motions.posed) @ X
    return len(motions.all) > 1 and motions.excess(posed) < FITS < motions.excess(motions.posed)


def _verdict(a: str, b: str, check: str) -> Verdict:
    sentence = f"The poses fit the sweeps of {a} and {b} if T_rig_lidar of both are exchanged, not as the capture says."
    return Verdict(check, a, Level.CERTAIN, sentence, f"exchange them, or the sweeps, {MADE}")
