# SPDX-License-Identifier: Apache-2.0
"""Boxes of objects that move: times that are off leave boxes of parked cars where they are."""

from collections.abc import Callable, Sequence
from functools import partial

import torch

from nurec_lite.capture.checks.box_guesses import at_other_times
from nurec_lite.capture.checks.box_rays import BoxFit, Rays, fit_boxes, returned_rays
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.geometry.tracks import Tracks

TRACKS, BOXES = 2, 4  # that move, at least
POOR, GOOD, BETTER = 0.6, 0.6, 0.2  # share of boxes that move: as said, at most; at other times, at least; its gain
STEP, FINE, MOST = 0.1, 0.05, 1.5  # steps and largest shift of times that are tried, in seconds
LITTLE = (0.05, -0.05, 0.1, -0.1, 0.2, -0.2, 0.3, -0.3)  # seconds that all boxes that move may be off alike, and
NEARER = (0.15, -0.15, 0.25, -0.25)  # those that are tried with more sweeps
SEVERAL, EACH = 3, 8  # tracks and boxes, of those
GLANCE, SURE = (0.08, 2.0), (0.1, 2.5)  # mean gain of the tracks, and standard errors: at first, and by more sweeps
FitAt = Callable[[float], BoxFit]  # of boxes that move, if their times are so many seconds late


def fit_moving(sample: Sample, tracks: Tracks, numbers: Sequence[int], seconds: float) -> BoxFit:
    """The fit of boxes that move to the rays that are looked at first, if their times are so many seconds late."""
    name = "boxes that move", round(seconds, 3)
    return sample.kept(name, partial(fit_late, returned_rays(sample), tracks, numbers, seconds))


def fit_late(rays: list[Rays], tracks: Tracks, numbers: Sequence[int], seconds: float) -> BoxFit:
    return fit_boxes(rays, at_other_times(tracks, seconds), list(numbers))


def moving_elsewhere(at: FitAt, numbers: Sequence[int]) -> tuple[str, str] | None:
    """A sentence and a remedy, if boxes that move lie on objects at other times only."""
    said = at(0.0)
    if len(numbers) < TRACKS or said.fewer(BOXES, TRACKS) or said.share > POOR:
        return None
    steps = torch.arange(-MOST, MOST + STEP / 2, STEP).tolist()
    _, _, near = _most_held(at, steps)
    share, _, seconds = _most_held(at, [near + step for step in (-FINE, 0.0, FINE)])
    return (
        None
        if share < max(GOOD, said.share + BETTER)
        else _words(said.share, share, f"{abs(seconds):.2f}".removesuffix("0"), seconds)
    )


def _most_held(at: FitAt, steps: Sequence[float]) -> tuple[float, float, float]:
    """The largest share of boxes, the shortest time that has it, negative, and that with its sign."""
    fits = [(round(s, 3), at(s)) for s in steps]
    return max(((fit.share, -abs(s), s) for s, fit in fits if not fit.fewer(BOXES, TRACKS)), default=(0.0, 0.0, 0.0))


def a_little_late(
    at: FitAt,
    more: Callable[[], FitAt],  # with more sweeps
    numbers: Sequence[int],
) -> tuple[str, str] | None:
    """A sentence and a remedy, if track after track that moves lies better at times that differ by a frame or a few."""
    if len(numbers) < SEVERAL or _best_of_little(at, numbers, LITTLE, GLANCE) is None:
        return None
    many = more()
    best = _best_of_little(many, numbers, LITTLE + NEARER, SURE)
    if best is None or best[1].fewer(EACH, SEVERAL) or best[1].share < GOOD:
        return None
    seconds, fit = best
    return _words(many(0.0).share, fit.share, f"{abs(seconds):.2f}", seconds)


def _best_of_little(
    at: FitAt, numbers: Sequence[int], times: Sequence[float], bar: tuple[float, float]
) -> tuple[float, BoxFit] | None:
    """The seconds with the largest mean gain of the tracks, and their fit."""
    said = at(0.0)
    fits = [(seconds, at(seconds)) for seconds in times]
    gains = [(*fit.above(said, list(numbers)), -abs(seconds), k) for k, (seconds, fit) in enumerate(fits)]
    clear = [(gain, near, k) for gain, errors, near, k in gains if gain >= bar[0] and errors >= bar[1]]
    return fits[max(clear)[2]] if clear else None


def _words(said: float, share: float, amount: str, seconds: float) -> tuple[str, str]:
    sentence = (
        f"Boxes of objects that move hold {100 * said:.0f} % of their returns, and {100 * share:.0f} % if their times are "
        f"{amount} s {'late' if seconds > 0 else 'early'}."
    )
    return sentence, "correct the times of the tracks where the capture was made"
