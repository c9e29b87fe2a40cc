# SPDX-License-Identifier: Apache-2.0
"""Types of a drive from any source: sensors, frames, tracks and a split.

World, rig and lidar frames: x forward, y left, z up (the world has the axes of the rig's first pose, roughly). Metres; seconds
in double precision from the start of the capture. Poses are 4x4 float64 `T_to_from`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from nurec_lite.base.converted_fields import convert_fields, converted
from nurec_lite.base.errors import UserError
from nurec_lite.base.texts import excerpt
from nurec_lite.capture.measured import Measured
from nurec_lite.capture.moments import Moments, moments_of
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar, Sweep
from nurec_lite.geometry.tracks import Tracks

Origin = tuple[float, float, float]  # metres
FOUND = "found-"  # begin of the ids of tracks that come from sweeps, not from labels
HOLD_OUT_EVERY = 5  # moments, of the split `interp`: the fifth, tenth and so on are held out
TRY_EVERY = 10  # moments, of `validation`: the third, thirteenth and so on are measured, those that `interp` holds out not looked at
SPLITS = ("interp", "side", "validation", "half")


# How the poses of the rig are known
GIVEN, POSITIONED, UNKNOWN, CHOSEN, ESTIMATED = "given", "positioned", "unknown", "chosen", "estimated"
POSES_FROM = (GIVEN, POSITIONED, UNKNOWN, CHOSEN, ESTIMATED)


class CaptureError(UserError):
    """The capture cannot be read; the message names the file and the remedy."""


@dataclass(frozen=True)
class Frame:
    """One exposure of a camera or one revolution of a lidar."""

    sensor: str  # name of the camera or lidar
    index: int  # number of the frame among those of its sensor, as in the names of its files
    time_start: float  # seconds: first row of an image, first ray of a sweep
    time_end: float  # seconds: last row, last ray; equal to time_start for a global shutter
    T_world_rig_start: Tensor  # [4, 4] at time_start
    T_world_rig_end: Tensor  # [4, 4] at time_end

    def __post_init__(self) -> None:
        convert_fields(self, f"frame {self.index!s:.20} of {self.sensor!s:.40}")

    @property
    def time_mid(self) -> float:
        return 0.5 * (self.time_start + self.time_end)


@dataclass(frozen=True)
class Encoded:
    """An image as its file holds it, and the data that decoding needs."""

    data: bytes  # a PNG or JPEG file
    name: str  # for messages
    size: tuple[int, int]  # width, height that the calibration demands
    downscale: int  # to the mean of blocks of so many pixels a side, once it is decoded
    calibration: str = "the calibration"  # for messages


@dataclass(frozen=True)
class Glance:
    """The part of an image's file that is read to judge the whole."""

    first: Encoded  # its data are the first bytes alone
    last: bytes
    size: int  # bytes of the whole file


@runtime_checkable
class Glanced(Protocol):
    """A loader of an image that can read a part of its file."""

    def glance(self) -> Glance: ...


@runtime_checkable
class Stored(Protocol):
    """A loader of an image that lies encoded in a file."""

    def encoded(self) -> Encoded: ...


@runtime_checkable
class Marked(Protocol):
    """A loader of a frame that is encoded in a file."""

    def mark(self, thorough: bool) -> tuple[int, int]:
        """Bytes of the encoded frame and a checksum. UNKNOWN stands for a value that is unknown, or costly and not asked for."""
        ...


@dataclass(frozen=True)
class ImageFrame(Frame):
    """`load()` decodes the image: uint8 [H, W, 3], of the camera's size. It pickles, so that loader processes can call it."""

    load: Callable[[], Tensor]

    def encoded(self) -> Encoded | None:
        """The encoded image, for decoding elsewhere; None: it does not come from an encoded file."""
        return self.load.encoded() if isinstance(self.load, Stored) else None


@dataclass(frozen=True)
class SweepFrame(Frame):
    """`load()` decodes the rays of the revolution. It pickles."""

    load: Callable[[], Sweep]


@dataclass(frozen=True)
class UnusedFrame:
    """A frame that data.without leaves out."""

    sensor: str
    index: int
    time_mid: float  # seconds


@runtime_checkable
class Returning(Protocol):
    """A loader of a sweep that can read its points sooner than its rays."""

    def returns(
        self,
        every: int = 1,  # about so many points, one is read
    ) -> tuple[Tensor, Tensor]: ...  # [n, 3] metres in the lidar's axes at their own times, [n] seconds


@dataclass(frozen=True)
class Reading:
    """Another way to read the file that the poses come from."""

    meaning: str  # completes "the poses fit if", for example: "they are those of camera 0"
    remedy: str  # for example: "give data.poses.convention=camera"
    poses: Callable[[Tensor], Tensor]  # [n] seconds -> T_world_rig [n, 4, 4]


@dataclass(frozen=True)
class Mounting:
    """Another way to read the files that say where cameras sit."""

    meaning: str  # completes "edges agree if", for example: "calib_velo_to_cam.txt holds the inverse"
    remedy: str
    T_lidar_cam: Mapping[str, Tensor]  # [4, 4] of each camera
    missing: bool = False  # the place of the lidar: the files have zeros, and it is searched for
    of_lidar: bool = False  # the lidar sits elsewhere on the rig, too
    of_labels: bool = False  # the boxes of a label file, too


@dataclass(frozen=True)
class Labels:
    """Another way to read the file that the tracks come from."""

    meaning: str  # completes "boxes hold the returns if", for example: "the labels count frames from 1"
    remedy: str
    tracks: Callable[[], Tracks]


@dataclass(frozen=True)
class Doubt:
    """A sentence of the reader about the files of a drive. A pack stores it, so that the pack says the same."""

    subject: str  # the file or the sensor
    certain: bool  # training stops, unless data.trust=true
    sentence: str
    remedy: str | None = None


@dataclass(frozen=True)
class Split:
    """Frames that train, and frames that are held out: indices into `Capture.images` and `Capture.sweeps`."""

    name: str
    train_images: tuple[int, ...]
    test_images: tuple[int, ...]
    train_sweeps: tuple[int, ...]
    test_sweeps: tuple[int, ...]


@dataclass(frozen=True, eq=False)  # compared by identity: results for a capture are cached by the object
class Capture:
    """A drive: sensors, frames in time order (per sensor), tracks of moving objects, and a split once one is chosen."""

    name: str
    cameras: tuple[Camera, ...]
    lidars: tuple[Lidar, ...]
    images: tuple[ImageFrame, ...]
    sweeps: tuple[SweepFrame, ...]
    tracks: Tracks
    split: Split | None = None
    readings: tuple[Reading, ...] = ()  # of the poses, for the checks
    doubts: tuple[Doubt, ...] = ()  # of the reader, also of the reader of a pack's source
    mountings: tuple[Mounting, ...] = ()  # other readings of the calibration
    labels: tuple[Labels, ...] = ()  # other readings of the tracks
    origin: Origin = (0.0, 0.0, 0.0)  # where the origin of these poses lies in the world of the source, see origin.py
    # GIVEN by the user; POSITIONED by satellites or an inertial unit; UNKNOWN: all are the identity; CHOSEN: compared with the sweeps and
    # kept; ESTIMATED from the sweeps
    poses_from: str = GIVEN
    measured: Measured | None = None  # of the rig's motion, by other sensors than cameras and lidars
    points: Tensor | None = None  # [n, 3] metres, world: places of surfaces that somebody measured, where no lidar did
    part_labelled: bool = False  # tracks are only of objects that some of the sensors see
    searched: bool = False  # the tracks are also all that a search of the sweeps found
    left_out: tuple[UnusedFrame, ...] = ()  # by data.without, also of a pack's source

    def __post_init__(self) -> None:
        for name, kind in (("cameras", Camera), ("lidars", Lidar), ("images", ImageFrame), ("sweeps", SweepFrame)):
            object.__setattr__(self, name, _all_of(kind, getattr(self, name), f"capture {self.name!s:.40}: {name}"))
        if self.points is not None:
            object.__setattr__(self, "points", converted(Tensor, self.points, f"capture {self.name!s:.40}: points"))
        if not isinstance(self.tracks, Tracks):
            raise CaptureError(f"capture {self.name}: tracks must be Tracks, such as Tracks.empty()")
        if not isinstance(self.split, Split | None):
            raise CaptureError(
                f"capture {self.name}: split is no Split; leave it out, and choose one by with_split('interp')"
            )

    def camera(self, name: str) -> Camera:
        return next(c for c in self.cameras if c.name == name)

    def camera_index(self, name: str) -> int:
        return [c.name for c in self.cameras].index(name)

    def lidar(self, name: str) -> Lidar:
        return next(s for s in self.lidars if s.name == name)

    def by_sensor(self) -> dict[str, list[ImageFrame | SweepFrame]]:
        """Frames of each sensor that has any, lidars first."""
        found: dict[str, list[ImageFrame | SweepFrame]] = {}
        every: tuple[ImageFrame | SweepFrame, ...] = (*self.sweeps, *self.images)
        for frame in every:
            found.setdefault(frame.sensor, []).append(frame)
        return found

    @cached_property
    def moments(self) -> Moments:
        """The moment of each image and sweep."""
        return moments_of(self.images, self.sweeps)

    def __getstate__(self) -> dict[str, object]:
        """A copy: `moments` may come while another thread pickles the capture."""
        return dict(self.__dict__)

    def with_split(self, name: str) -> "Capture":
        """The capture with a split of SPLITS."""
        return replace(self, split=make_split(self, name))


def _all_of(kind: type, given: Any, what: str) -> tuple[Any, ...]:
    values = tuple(given) if isinstance(given, Iterable) else (given,)
    for value in values:
        if not isinstance(value, kind):
            raise CaptureError(f"{what} holds {excerpt(value)}, but must hold {kind.__name__} objects")
    return values


def _part_of(
    place: int,  # of a moment
    split: str,  # of SPLITS but `side`
) -> str | None:  # train or test; None: neither
    if split == "half":
        return "test" if place % 2 else "train"
    held_out = place % HOLD_OUT_EVERY == HOLD_OUT_EVERY - 1
    if split == "validation":
        return None if held_out else "test" if place % TRY_EVERY == 2 else "train"
    return "test" if held_out else "train"


def make_split(capture: Capture, name: str) -> Split:
    """`interp` holds out every fifth moment of all sensors, `half` every second one. `side` trains on all sweeps and all cameras but the
    last, which it tests. `validation` tests some moments that `interp` trains on, and leaves out those that it holds out."""
    if name not in SPLITS:
        raise CaptureError(f"split '{name}' is unknown; choose one of {', '.join(SPLITS)}")
    if name == "side" and len(capture.cameras) < 2:
        raise CaptureError(
            f"split 'side' tests the last of several cameras, but capture {capture.name} has {len(capture.cameras)}; give more "
            "(data.cameras), or another data.split"
        )

    images, sweeps = parts_of(capture, name)

    def indices(parts: list[str | None], part: str) -> tuple[int, ...]:
        return tuple(i for i, found in enumerate(parts) if found == part)

    split = Split(
        name, indices(images, "train"), indices(images, "test"), indices(sweeps, "train"), indices(sweeps, "test")
    )
    _check_split(capture, split)
    return split


def _check_split(capture: Capture, split: Split) -> None:
    """Refuses a split that trains on no image or tests none, and one that holds out all sweeps."""
    if not split.test_images or not split.train_images:
        few = _few_images(len(set(capture.moments.images)), split.name)
        raise CaptureError(
            f"split '{split.name}' leaves no image to train on or none to test: capture {capture.name} has {few}"
        )
    if capture.sweeps and not split.train_sweeps:
        raise CaptureError(
            f"split '{split.name}' leaves no sweep to train on: capture {capture.name} has {len(capture.sweeps)} in all; "
            "choose other frames (data.frames) or another data.split"
        )


def _few_images(moments: int, split: str) -> str:
    """Words for the number of moments with images, and the remedy."""
    if moments == 0:
        return "no images; choose cameras and frames that have some (data.cameras, data.frames)"
    half = ", or data.split=half" if split != "half" and moments > 1 else ""
    return f"images at {moments} moment{'s' * (moments != 1)}; use more frames (data.frames){half}"


def parts_of(
    capture: Capture,
    split: str,  # of SPLITS
) -> tuple[list[str | None], list[str | None]]:  # of each image and sweep: train, test, or None: neither
    if split == "side":
        last = capture.cameras[-1].name
        return ["test" if f.sensor == last else "train" for f in capture.images], ["train"] * len(capture.sweeps)
    moments = capture.moments
    part = {number: _part_of(place, split) for number, place in moments.places().items()}
    return [part[n] for n in moments.images], [part[n] for n in moments.sweeps]
