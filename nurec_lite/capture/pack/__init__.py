# SPDX-License-Identifier: Apache-2.0
"""A capture in one file, for carrying it to another machine.

A pack is a zip with stored members, each compressed in its own way, so that a loader reads one with a seek:
`capture.json` (sensors, frames, poses, tracks), `images/CAMERA/NNNNNN.jpg` or `.png`, `sweeps/LIDAR/NNNNNN.sweep`.
"""

from collections import Counter
from collections.abc import Sequence
from types import TracebackType

from nurec_lite.base.meter import Meter
from nurec_lite.capture.pack.check import IMAGE_FORMATS
from nurec_lite.capture.pack.read import PackImage, PackSweep, read_pack
from nurec_lite.capture.pack.write import is_pack, write_pack
from nurec_lite.capture.plausible import InTime
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar

__all__ = ["IMAGE_FORMATS", "MemberBar", "describe", "is_pack", "read_pack", "write_pack"]


class MemberBar:
    """Progress of write_pack: `with MemberBar() as bar: write_pack(capture, path, progress=bar)`."""

    def __init__(self) -> None:
        self.meter: Meter | None = None  # appears with the first member

    def __enter__(self) -> "MemberBar":
        return self

    def __call__(self, done: int, total: int) -> None:
        if self.meter is None:
            self.meter = Meter(total, "members", "writing")
        self.meter.to(done)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.meter is not None:
            self.meter.close()


def describe(capture: Capture) -> str:
    """A line for the capture, each sensor and the tracks; how much a sensor's frames take where a pack holds them."""
    frames = (*capture.images, *capture.sweeps)
    seconds = max((f.time_end for f in frames), default=0.0) - min((f.time_start for f in frames), default=0.0)
    classes = [f"{n} {name}" for name, n in sorted(Counter(capture.tracks.classes).items())]
    return "\n".join([
        f"{capture.name}: {seconds:.1f} s",
        *(_describe_camera(capture, camera) for camera in capture.cameras),
        *(_describe_lidar(capture, lidar) for lidar in capture.lidars),
        f"tracks: {', '.join(classes) or 'none'}",
        *([f"split: {capture.split.name}"] if capture.split else []),
    ])  # fmt: skip


def _describe_camera(capture: Capture, camera: Camera) -> str:
    loads = [frame.load for frame in capture.images if frame.sensor == camera.name]
    stored = [load for load in loads if isinstance(load, PackImage)]
    what = f"camera {camera.name}: {len(loads)} images of {camera.width}x{camera.height} pixels"
    return "; ".join([what, *sorted({load.encoding for load in stored}), *_megabytes(stored)])


def _describe_lidar(capture: Capture, lidar: Lidar) -> str:
    own = [frame.load for frame in capture.sweeps if frame.sensor == lidar.name]
    loads = [load.load if isinstance(load, InTime) else load for load in own]
    what = f"lidar {lidar.name}: {len(loads)} sweeps of {len(lidar.elevations)} beams"
    return "; ".join([what, *_megabytes([load for load in loads if isinstance(load, PackSweep)])])


def _megabytes(stored: Sequence[PackImage | PackSweep]) -> list[str]:
    return [f"{sum(load.member.size for load in stored) / 1e6:.2f} MB"] if stored else []
