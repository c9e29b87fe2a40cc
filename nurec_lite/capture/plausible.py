# SPDX-License-Identifier: Apache-2.0
"""Whether a capture that is well formed can be true: a rig that does not jump, and rays that were measured while their sweep lasted.

Training would go on without a word, and put what a lying pose or time saw where it never was.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from nurec_lite.capture.types import Capture, CaptureError, Frame
from nurec_lite.geometry.lidar import Sweep

FASTEST = 150.0  # metres a second, of a car
JUMP = 20.0  # metres that a pose may be off besides: receivers of GPS lose their way between houses
LONGEST_FRAME = 10.0  # seconds, of an exposure or a revolution
BESIDE = 0.1  # seconds, or half of the sweep if that is more, that a ray may lie outside of its sweep


@dataclass(frozen=True)
class InTime:
    """Loads a sweep, and refuses it where its rays were stamped at another time. Plain data, so that it pickles."""

    load: Callable[[], Sweep]
    start: float  # seconds
    end: float
    name: str  # for the message

    def __call__(self) -> Sweep:
        sweep = self.load()
        beside = max(BESIDE, 0.5 * (self.end - self.start))
        first, last = (float(t) for t in (sweep.times.amin(), sweep.times.amax())) if len(sweep) else (self.start,) * 2
        if not (self.start - beside <= first and last <= self.end + beside):
            raise CaptureError(
                f"{self.name} lasts from {self.start:g} s to {self.end:g} s, but its rays are stamped {first:g} s to {last:g} s; "
                "correct it where the capture was made, or leave the frame out by data.frames"
            )
        return sweep


def plausible(
    capture: Capture,
    source: str,  # file or folder, for messages
) -> Capture:
    """The capture, whose sweeps are checked when they are loaded; CaptureError for the first jump or endless frame."""
    for flaw in _flaws(capture):
        raise CaptureError(f"{source}: {flaw}; correct the poses or times, or leave the frame out by data.frames")
    checked = (
        replace(f, load=InTime(f.load, f.time_start, f.time_end, f"{source}: sweep {f.index} of {f.sensor}"))
        for f in capture.sweeps
    )
    return replace(capture, sweeps=tuple(checked))


def _flaws(capture: Capture) -> Iterator[str]:
    for kind, frames in (("image", capture.images), ("sweep", capture.sweeps)):
        for f in frames:
            if f.time_end - f.time_start > LONGEST_FRAME:
                yield f"{kind} {f.index} of {f.sensor} lasts {f.time_end - f.time_start:g} s, but {LONGEST_FRAME:g} s at most"
        for sensor in dict.fromkeys(f.sensor for f in frames):
            yield from _jumps([f for f in frames if f.sensor == sensor], kind)


def _jumps(frames: list[Frame], kind: str) -> Iterator[str]:
    """Between both ends of each frame, and from one to the next."""
    times = torch.tensor([t for f in frames for t in (f.time_start, f.time_end)], dtype=torch.float64)
    places = torch.stack([T[:3, 3].double() for f in frames for T in (f.T_world_rig_start, f.T_world_rig_end)])
    ways, spans = places.diff(dim=0).norm(dim=1), times.diff().clamp(min=0)
    for i in (ways > FASTEST * spans + JUMP).nonzero()[:, 0].tolist():
        f = frames[(i + 1) // 2]
        yield f"{kind} {f.index} of {f.sensor} stands {ways[i]:.0f} m from where the rig was {spans[i]:.3g} s before"
