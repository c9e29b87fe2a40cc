# SPDX-License-Identifier: Apache-2.0
"""A capture in one file, for carrying it to another machine.

A pack is a zip whose members are stored, each compressed in its own way, so that a loader reads one with a seek:
`capture.json` (sensors, frames, poses, tracks), `images/CAMERA/NNNNNN.jpg` or `.png`, `sweeps/LIDAR/NNNNNN.sweep`.
"""

from types import TracebackType

from tqdm import tqdm

from nurec_lite.capture.pack_check import IMAGE_FORMATS
from nurec_lite.capture.pack_read import PackImage, PackSweep, read_pack
from nurec_lite.capture.pack_write import write_pack
from nurec_lite.capture.types import Capture

__all__ = ["IMAGE_FORMATS", "MemberBar", "describe", "read_pack", "write_pack"]


class MemberBar:
    """Progress of write_pack: `with MemberBar() as bar: write_pack(capture, path, progress=bar)`."""

    def __init__(self) -> None:
        self.bar = tqdm(unit=" members", bar_format="{percentage:3.0f}% {bar:20} {n_fmt}/{total_fmt}{unit} {postfix}")

    def __enter__(self) -> "MemberBar":
        return self

    def __call__(self, done: int, total: int) -> None:
        self.bar.total = total
        self.bar.update(done - self.bar.n)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.bar.close()


def describe(capture: Capture) -> str:
    """A line for the capture, each sensor and the tracks; how much a frame takes where the capture comes from a pack."""
    frames = (*capture.images, *capture.sweeps)
    seconds = max((f.time_end for f in frames), default=0.0) - min((f.time_start for f in frames), default=0.0)
    lines = [f"{capture.name}: {seconds:.1f} s"]
    for camera in capture.cameras:
        images = [frame for frame in capture.images if frame.sensor == camera.name]
        loads = [frame.load for frame in images if isinstance(frame.load, PackImage)]
        size, encodings = sum(load.member.size for load in loads), sorted({load.encoding for load in loads})
        what = f"camera {camera.name}: {len(images)} images of {camera.width}x{camera.height} pixels"
        lines.append("; ".join([what, *encodings]) + _megabytes(size))
    for lidar in capture.lidars:
        sweeps = [frame for frame in capture.sweeps if frame.sensor == lidar.name]
        size = sum(frame.load.member.size for frame in sweeps if isinstance(frame.load, PackSweep))
        lines.append(f"lidar {lidar.name}: {len(sweeps)} sweeps of {len(lidar.elevations)} beams" + _megabytes(size))
    classes = ", ".join(f"{capture.tracks.classes.count(c)} {c}" for c in sorted(set(capture.tracks.classes)))
    lines.append(f"tracks: {classes or 'none'}")
    return "\n".join(lines + ([f"split: {capture.split.name}"] if capture.split else []))


def _megabytes(size: int) -> str:
    return f"; {size / 1e6:.2f} MB" if size else ""
