# SPDX-License-Identifier: Apache-2.0
"""Whether a capture that is well formed can be true: a rig that does not jump, and rays that were measured while their sweep lasted.

Training would continue without a word, and put the content of a frame with a wrong pose or time in a wrong place.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nurec_lite.capture.types import Capture, CaptureError, Frame, Marked, Returning, SweepFrame
from nurec_lite.capture.units import divided, seconds_in
from nurec_lite.capture.without import naming
from nurec_lite.geometry.lidar import Sweep

FASTEST = 150.0  # metres a second, of a car
JUMP = 20.0  # further metres that a pose may be off: receivers of GPS lose their way between houses
LONGEST_FRAME = 10.0  # seconds, of an exposure or a revolution
USUAL = 0.01, 1.0  # seconds
BESIDE = 0.1  # seconds, or half of the sweep if that is more, that a ray may lie outside of its sweep


@dataclass(frozen=True)
class InTime:
    """Loads a sweep, and refuses it where its rays were stamped at another time. Errors name data.without. It pickles."""

    load: Callable[[], Sweep]
    start: float  # seconds
    end: float
    sensor: str
    index: int
    source: str  # file or folder, for messages

    def __call__(self) -> Sweep:
        with naming(self.sensor, self.index):
            sweep = self.load()
            flaw = out_of_time(sweep.times, self.start, self.end)
            if flaw is not None:
                raise CaptureError(f"{self.source}: sweep {self.index} of {self.sensor} {flaw[0]}; {flaw[1]}")
        return sweep


@dataclass(frozen=True)
class MarkedInTime(InTime):
    """The same for a loader of a file: checks of sweeps compare marks."""

    load: Marked  # type: ignore[assignment]

    def mark(self, thorough: bool) -> tuple[int, int]:
        return self.load.mark(thorough)


@dataclass(frozen=True)
class ReturningInTime(MarkedInTime):
    """The same for a loader that can read points sooner than rays."""

    load: Returning  # type: ignore[assignment]

    def returns(self, every: int = 1) -> tuple[Tensor, Tensor]:
        with naming(self.sensor, self.index):
            return self.load.returns(every)


def in_time(
    capture: Capture,
    source: str,  # file or folder, for messages
) -> Capture:
    """The capture with loaders of sweeps that check their rays."""
    return replace(capture, sweeps=tuple(_in_time(frame, source) for frame in capture.sweeps))


def _in_time(frame: SweepFrame, source: str) -> SweepFrame:
    """The loader of a file keeps its methods."""
    able = isinstance(frame.load, Marked), isinstance(frame.load, Returning)
    kind = ReturningInTime if all(able) else MarkedInTime if able[0] else InTime
    own = frame.time_start, frame.time_end, frame.sensor, frame.index
    return replace(frame, load=kind(frame.load, *own, source))  # type: ignore[arg-type]


def out_of_time(
    times: Tensor,  # [R] seconds, of the rays of a sweep
    start: float,  # seconds, of the sweep
    end: float,
) -> tuple[str, str] | None:
    """The flaw of rays that are stamped outside of their sweep, and the remedy."""
    beside = max(BESIDE, 0.5 * (end - start))
    first, last = (float(t) for t in (times.amin(), times.amax())) if len(times) else (start, end)
    if start - beside <= first and last <= end + beside:
        return None
    flaw = f"lasts from {start:g} s to {end:g} s, but its rays are stamped {first:g} s to {last:g} s"
    return flaw, _remedy(first, last, start, end)


def _remedy(first: float, last: float, start: float, end: float) -> str:
    lasting, spans = last - first, (0.3 * (end - start), 1.5 * (end - start))
    unit = seconds_in(lasting, *spans) if end > start else None
    if unit is not None:
        return f"{divided(unit, 'times of its rays')} where the capture was made"
    if abs(first) < BESIDE and spans[0] <= lasting <= spans[1]:
        return f"times of its rays count from the start of the sweep: add {start:g} s where the capture was made"
    return "correct it where the capture was made"


def plausible(
    capture: Capture,
    source: str,  # file or folder, for messages
) -> Capture:
    """Returns the capture; CaptureError for its first jump or endless frame."""
    for flaw in _flaws(capture):
        raise CaptureError(f"{source}: {flaw}; correct the poses or times, or choose frames without it by data.frames")
    return capture


def _flaws(capture: Capture) -> Iterator[str]:
    for kind, frames in (("image", capture.images), ("sweep", capture.sweeps)):
        for f in frames:
            if f.time_end - f.time_start > LONGEST_FRAME:
                yield f"{kind} {f.index} of {f.sensor} lasts {f.time_end - f.time_start:g} s, but {LONGEST_FRAME:g} s at most{_unit(f)}"
        for sensor in dict.fromkeys(f.sensor for f in frames):
            yield from _jumps([f for f in frames if f.sensor == sensor], kind)


def _unit(frame: Frame) -> str:
    unit = seconds_in(frame.time_end - frame.time_start, USUAL[0], USUAL[1])
    return f": {divided(unit, 'its times')}" if unit else ""


def _jumps(frames: list[Frame], kind: str) -> Iterator[str]:
    """Yields jumps between both ends of each frame, and from one to the next."""
    times = torch.tensor([t for f in frames for t in (f.time_start, f.time_end)], dtype=torch.float64)
    places = torch.stack([T[:3, 3].double() for f in frames for T in (f.T_world_rig_start, f.T_world_rig_end)])
    ways, spans = places.diff(dim=0).norm(dim=1), times.diff().clamp(min=0)
    for i in (ways > FASTEST * spans + JUMP).nonzero()[:, 0].tolist():
        f = frames[(i + 1) // 2]
        yield f"{kind} {f.index} of {f.sensor} stands {ways[i]:.0f} m from where the rig was {spans[i]:.3g} s before"
