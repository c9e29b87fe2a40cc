# SPDX-License-Identifier: Apache-2.0
"""Jumps of the poses: no sweep before one fits a sweep after it, and sweeps on either side fit each other.

Things that stand still are elsewhere after a jump, and seem to move. So each part of the drive is searched alone.
"""

from dataclasses import replace

import torch

from nurec_lite.capture.tracking.free_space import Candidates
from nurec_lite.geometry.tracks import Tracks, joined

NEAR = 6  # sweeps apart at most: pairs that poses which drift still fit
FEWEST = 4  # pairs on each side and across
SOON = 0.35  # seconds around a jump without a box
FAR, FASTER = 3.0, 2.0  # metres, and metres a second, that an object seems to change its place and its velocity by
SHARE = 0.8  # of the pairs on either side fit, of a pose path without a jump


def jumps(found: list[Candidates]) -> list[int]:
    """The first sweeps after a jump."""
    pairs = {(i, j): fits for i, one in enumerate(found) for j, fits in one.fits.items() if i < j <= i + NEAR}
    doubtful = [first for first in range(1, len(found)) if not pairs.get((first - 1, first), True)]
    return [first for first in doubtful if _jumps(pairs, first)]


def _jumps(pairs: dict[tuple[int, int], bool], first: int) -> bool:
    across = [fits for (i, j), fits in pairs.items() if i < first <= j]
    before = [fits for (i, j), fits in pairs.items() if first - 2 * NEAR <= i and j < first]
    after = [fits for (i, j), fits in pairs.items() if first <= i and j < first + 2 * NEAR]
    alike = all(len(side) < FEWEST or sum(side) >= SHARE * len(side) for side in (before, after))
    return len(across) >= FEWEST and not any(across) and alike


def rejoined(parts: list[Tracks], margin: float) -> Tracks:
    """Tracks of all parts of a drive; one that ends at a jump and one that goes on beyond it are one object."""
    whole: list[Tracks] = []
    for part in parts:
        for new in (part.select([k]) for k in range(len(part))):
            old = next((i for i, one in enumerate(whole) if _goes_on(one, new)), None)
            if old is None:
                whole.append(new)
            else:
                whole[old] = _both(whole[old], new)
    return joined(whole, margin)


def _goes_on(one: Tracks, new: Tracks) -> bool:
    gap = float(new.times[0] - one.times[-1])
    if not 0 < gap < SOON:
        return False
    last, first = _velocity(one, -4), _velocity(new, 0)
    away = new.translations[0] - one.translations[-1] - gap * last
    return float(away[:2].norm()) < FAR and float((first - last)[:2].norm()) < FASTER


def _velocity(track: Tracks, start: int) -> torch.Tensor:  # [3] metres a second, over four keys
    times, places = (values[start:][:4] for values in (track.times, track.translations))
    return (places[-1] - places[0]) / (times[-1] - times[0])


def _both(one: Tracks, new: Tracks) -> Tracks:
    """Class and size are those of the longer one."""
    times = torch.cat([one.times, new.times])
    longer = one if len(one.times) >= len(new.times) else new
    return replace(
        longer, offsets=(0, len(times)), times=times, translations=torch.cat([one.translations, new.translations]),
        quaternions=torch.cat([one.quaternions, new.quaternions]),
    )  # fmt: skip
