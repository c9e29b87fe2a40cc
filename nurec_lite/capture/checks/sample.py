# SPDX-License-Identifier: Apache-2.0
"""Frames that checks look at. Each is decoded once, however many checks ask for it, as long as all of them fit into KEPT_BYTES."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Lock
from typing import Generic, TypeVar

from torch import Tensor

from nurec_lite.capture.checks.agreed import Agreement
from nurec_lite.capture.checks.ordered import Ordered, ordered
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.evenly import spread
from nurec_lite.capture.images import as_image
from nurec_lite.capture.trajectory import nearest
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.geometry.lidar import Sweep

T = TypeVar("T")
IMAGES = 8  # of a camera, before training
SWEEPS = 12  # of a lidar, before training; pairs of neighbours, see Sample.sweep_pairs
MOTIONS = 3  # sweeps for each motion of a lidar that is measured
SPAN = 1.0  # seconds that a motion lasts at most, about
# figures of a verdict: first and last second of poses that are known to be wrong
JUMP_AT, JUMP_END = "at_s", "until_s"
BY_SWEEPS = "by_sweeps"  # 1: sweeps contradict those poses
KEPT_BYTES = 1 << 30  # of decoded frames at most


@dataclass(eq=False)
class Sample:
    """A capture and the frames of it that are decoded for its checks."""

    capture: Capture
    images: int | None = IMAGES  # of a camera at most; None: all
    sweeps: int | None = SWEEPS  # of a lidar at most; None: all
    found: list[Verdict] = field(default_factory=list)  # of the checks so far
    agreements: dict[str, Agreement] = field(
        default_factory=dict
    )  # of the cameras that look where they say, by their names
    processes: int = 1  # that share the work of the checks
    _kept: OrderedDict[Hashable, "_Once"] = field(default_factory=OrderedDict, repr=False)  # the last used comes last
    _made: dict[Hashable, "_Once"] = field(default_factory=dict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def of_frames(self, capture: Capture) -> "Sample":
        """Returns a sample of another capture with the same loaders, without decoding frames again."""
        return Sample(capture, self.images, self.sweeps, _kept=self._kept, _lock=self._lock)

    def blamed(
        self,
        *what: str,  # how the names of checks begin
        subject: str | None = None,  # None: any
    ) -> bool:
        """Whether an earlier check is certain that one of these is wrong."""
        certain = [v for v in self.found if v.level is Level.CERTAIN and subject in (None, v.subject)]
        return any(v.check.startswith(what) for v in certain)

    def jumps(self) -> list[tuple[float, float]]:
        """First and last second of each jump of the poses that earlier checks are certain of, or that sweeps contradict."""
        sure = [v for v in self.found if v.level is Level.CERTAIN or v.figures.get(BY_SWEEPS)]
        known = [v.figures for v in sure if JUMP_AT in v.figures]
        return [(figures[JUMP_AT], figures.get(JUMP_END, figures[JUMP_AT])) for figures in known]

    def images_of(self, camera: str) -> list[ImageFrame]:
        """Frames of a camera, spread evenly over the drive; with sweeps, those of the decoded moments."""
        frames = [frame for frame in self.capture.images if frame.sensor == camera]
        if self.images is None or len(frames) <= self.images:
            return frames
        sweeps = [sweep for lidar in self.capture.lidars for sweep in self.decoded(lidar.name)]
        chosen = {nearest(frames, sweep.time_mid).index for sweep in sweeps}
        return spread([frame for frame in frames if frame.index in chosen] or frames, self.images)

    def sweep_pairs(self, lidar: str) -> list[tuple[SweepFrame, SweepFrame]]:
        """Pairs of neighbouring sweeps of a lidar, spread evenly over the drive; half as many as sweeps are allowed."""
        pairs = list(pairwise(self.of_lidar(lidar)))
        return spread(pairs, None if self.sweeps is None else self.sweeps // 2)

    def motion_starts(self, lidar: str) -> list[int]:
        """Places, among a lidar's sweeps, of those that begin a motion: first ones of pairs, if there are enough of them."""
        frames, first = self.of_lidar(lidar), {frame.index for frame, _ in self.sweep_pairs(lidar)}
        possible = range(len(frames) - frames_in(frames, SPAN)) if len(frames) > 1 else range(0)
        count = None if self.sweeps is None else max(1, self.sweeps // MOTIONS)
        known = [k for k in possible if frames[k].index in first]
        return spread(possible if count is None or len(known) < count else known, count)

    def decoded(self, lidar: str) -> list[SweepFrame]:
        """Sweeps that several checks decode, in time order: the first of each pair, the next where a motion begins, and the last one."""
        frames, first = self.of_lidar(lidar), {frame.index for frame, _ in self.sweep_pairs(lidar)}
        seconds = {k + 1 for k in self.motion_starts(lidar)} | {len(frames) - 1}
        return [frame for k, frame in enumerate(frames) if frame.index in first or k in seconds]

    def some_sweeps(self, lidar: str, most: int) -> list[SweepFrame]:
        """Sweeps of a lidar, spread over the drive: those that begin a pair, so that no other ones are decoded."""
        return spread([first for first, _ in self.sweep_pairs(lidar)], most) or self.of_lidar(lidar)

    def of_lidar(self, lidar: str) -> list[SweepFrame]:
        return [frame for frame in self.capture.sweeps if frame.sensor == lidar]

    def kept(self, name: Hashable, make: Callable[[], T]) -> T:
        """A value that several checks need, made once."""
        with self._lock:
            made = self._made.setdefault(name, _Once(make))
        return made.value()

    def made(self) -> dict[Hashable, object]:
        """Values of `kept` so far."""
        with self._lock:
            return {name: once.value() for name, once in self._made.items() if once.known}

    def keep(self, name: Hashable, value: object) -> None:
        """Keeps a value that another process has made."""
        self.kept(name, lambda: value)

    def image(self, frame: ImageFrame) -> Tensor:  # [H, W, 3] uint8
        return as_image(self._once(frame.load))

    def sweep(self, frame: SweepFrame) -> Sweep:
        return self._once(frame.load)

    def ordered(self, frame: SweepFrame) -> Ordered:
        name = "ordered", frame.sensor, frame.index
        return self._once(lambda: ordered(self.sweep(frame)), name)

    def _once(self, load: Callable[[], T], name: Hashable = None) -> T:
        name = id(load) if name is None else name
        with self._lock:
            kept = self._kept.setdefault(name, _Once(load))
            self._kept.move_to_end(name)
        value = kept.value()
        with self._lock:
            self._forget()
        return value

    def _forget(self) -> None:
        """Drops the least recently used frames until the rest fits. Frames that are still being decoded do not count."""
        total = sum(kept.bytes for kept in self._kept.values())
        while total > KEPT_BYTES and len(self._kept) > 1:
            total -= self._kept.popitem(last=False)[1].bytes


class _Once(Generic[T]):
    """Calls a function once, also when several threads ask."""

    def __init__(self, load: Callable[[], T]) -> None:
        self._load, self._lock, self._found = load, Lock(), list[T]()
        self.bytes = 0  # of the result

    @property
    def known(self) -> bool:
        return bool(self._found)

    def value(self) -> T:
        with self._lock:
            if not self._found:
                self._found.append(self._load())
                self.bytes = _bytes(self._found[0])
            return self._found[0]


def _bytes(value: object) -> int:
    """Bytes of the tensors in an image, in a sweep or in the order of its rays. The sweep itself counts once."""
    tensors = vars(value).values() if isinstance(value, Sweep | Ordered) else (value,)
    return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, Tensor))


def frames_in(frames: Sequence[SweepFrame], seconds: float) -> int:
    """Steps from sweep to sweep, of at least two sweeps, that take so long."""
    steps = sorted(b.time_mid - a.time_mid for a, b in pairwise(frames))
    return max(1, min(len(frames) - 1, round(seconds / max(1e-3, steps[(len(steps) - 1) // 2]))))
