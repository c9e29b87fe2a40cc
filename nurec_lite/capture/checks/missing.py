# SPDX-License-Identifier: Apache-2.0
"""Frames of a sensor that are missing: numbers that another sensor has at the same times, and gaps of its stamps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.base.consecutive import consecutive
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.types import Capture, Frame, UnusedFrame

NAME = "time stamps"
FEWEST = 5  # frames of a sensor that have a rate
GAP, TWICE = 1.5, 0.1  # periods between two stamps: frames are missing, and a stamp is there twice
BACK = 0.3  # of a step's difference that is left where the step beside makes it good
SAME = 0.5  # largest difference of frames with one number, in periods
LATE, OF_ALL = 5, 0.1  # frames, and part of another sensor's: a sensor may begin so much later or end so much earlier
LISTED = 3  # numbers in a sentence
REMEDY = "restore them if they exist; training goes on with those that are there"


@dataclass(frozen=True)
class Stamps:
    """Time stamps of one sensor."""

    sensor: str
    frames: Sequence[Frame]  # n, in time order
    times: Tensor  # [n] seconds, at the middle of the frames
    left_out: Sequence[UnusedFrame] = ()  # by data.without: nobody misses them

    @property
    def steps(self) -> Tensor:  # [n - 1] seconds
        return self.times.diff()

    @property
    def period(self) -> float:
        return float(self.steps.median())

    @property
    def span(self) -> tuple[float, float]:
        return float(self.times[0]), float(self.times[-1])

    @property
    def way(self) -> float:  # metres
        places = torch.stack([frame.T_world_rig_start[:3, 3] for frame in self.frames])
        return float(places.diff(dim=0).norm(dim=1).sum())

    @property
    def by_number(self) -> dict[int, float]:  # seconds
        return {frame.index: frame.time_mid for frame in self.frames}


def stamps_of(capture: Capture) -> list[Stamps]:
    """Time stamps of each sensor with frames, lidars first."""
    return [
        Stamps(name, frames, _middles(frames), [frame for frame in capture.left_out if frame.sensor == name])
        for name, frames in capture.by_sensor().items()
    ]


def _middles(frames: Sequence[Frame]) -> Tensor:  # [n] seconds, float64
    return torch.tensor([frame.time_mid for frame in frames], dtype=torch.float64)


def missing(stamps: Stamps, every: Sequence[Stamps]) -> Iterator[Verdict]:
    """Yields at most one verdict: about numbers if they show more missing frames than gaps do, else about gaps."""
    counts = {i: _lost_in(stamps, i) for i in _gaps(stamps)}
    gaps, lost = [i for i, count in counts.items() if count > 0], sum(counts.values())
    numbers, other = max(((_lacks(stamps, o), o) for o in every), key=lambda pair: len(pair[0]), default=([], stamps))
    if len(numbers) > lost:
        yield _by_numbers(stamps, other, numbers)
    elif gaps:
        yield _by_gaps(stamps, gaps, lost)


def _gaps(stamps: Stamps) -> list[int]:
    if len(stamps.frames) < FEWEST:
        return []
    periods = stamps.steps / stamps.period
    twice = F.pad(periods < TWICE, (1, 1))  # the frame after a stamp that is there twice seems to come late
    return ((periods > GAP) & ~twice[:-2] & ~twice[2:] & ~made_good(stamps)).nonzero()[:, 0].tolist()


def _lost_in(stamps: Stamps, gap: int) -> int:
    """Number of frames that a gap lacks."""
    begin, end = stamps.times[gap : gap + 2].tolist()
    known = sum(begin < frame.time_mid < end for frame in stamps.left_out)
    return max(0, round(float(stamps.steps[gap]) / stamps.period) - 1 - known)


def made_good(stamps: Stamps) -> Tensor:  # [n - 1] bool
    """Steps that are too long by as much as a step beside them is too short, or the reverse: one stamp is off."""
    off = stamps.steps - stamps.period
    beside = F.pad(off, (1, 1))
    left = torch.minimum((off + beside[:-2]).abs(), (off + beside[2:]).abs())
    return left < BACK * off.abs()


def _by_gaps(stamps: Stamps, gaps: list[int], lost: int) -> Verdict:
    longest = max(gaps, key=lambda i: float(stamps.steps[i]))
    where = f"after frame {stamps.frames[longest].index}, {float(stamps.steps[longest]):.2f} s without any"
    more = f" (the longest of {len(gaps)} gaps)" if len(gaps) > 1 else ""
    sentence = f"About {lost} {_are(lost)} missing of {stamps.sensor}: {where}{more}."
    return Verdict(NAME, stamps.sensor, Level.LIKELY, sentence, REMEDY, {"lost": float(lost), "gaps": float(len(gaps))})


def _lacks(own: Stamps, other: Stamps) -> list[int]:
    """Numbers of another sensor's frames that this one lacks, if frames of one number are of one moment. A few at either end may
    lack: sensors start and stop one after another."""
    a, b = own.by_number, other.by_number
    both = sorted(a.keys() & b.keys())
    if len(b) < FEWEST or not both or median(abs(a[n] - b[n]) for n in both) > SAME * other.period:
        return []
    known = {frame.index for frame in own.left_out}
    lost, most = sorted(b.keys() - a.keys() - known), max(LATE, OF_ALL * len(b))
    first, last = min(a), max(a)
    ends = [n for n in lost if n < first], [n for n in lost if n > last]
    few = {n for end in ends if len(end) <= most for n in end}
    return [n for n in lost if n not in few]


def _by_numbers(own: Stamps, other: Stamps, numbers: list[int]) -> Verdict:
    lost = len(numbers)
    sentence = f"{lost} {_are(lost)} missing of {own.sensor}, which has {len(own.frames)}: {other.sensor} has {_listed(numbers)}."
    return Verdict(NAME, own.sensor, Level.LIKELY, sentence, REMEDY, {"lost": float(lost)})


def _listed(numbers: list[int]) -> str:
    """Text such as `frames 1, 3, 5 and 20 more` or `frames 10 to 21`."""
    runs = consecutive(numbers)
    words = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs[:LISTED]]
    rest = sum(len(run) for run in runs[LISTED:])
    return f"frame{'s' * (len(numbers) > 1)} {', '.join(words)}{f' and {rest} more' if rest else ''}"


def _are(count: int) -> str:
    return "frame is" if count == 1 else "frames are"
