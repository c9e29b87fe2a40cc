# SPDX-License-Identifier: Apache-2.0
"""Single frames that are left out: data.without, and the remedies that name it."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from torch import Tensor

from nurec_lite.base.consecutive import consecutive
from nurec_lite.base.key_values import assigned
from nurec_lite.capture.types import CaptureError, ImageFrame

FEW = 0.5  # of the frames that are looked at: so many may be left out
_SHOWN = 6  # names that a remedy lists
_NUMBERED = re.compile(r"(.+)/(\d{1,9})(?:-(\d{1,9}))?")  # sensor, number, last number


def left_out(
    asked: Sequence[str],  # data.without
    there: Mapping[str, Collection[int]],  # numbers of frames, by sensor
    owner: str,  # for the message
) -> dict[str, set[int]]:
    """Numbers of the frames to leave out, by sensor."""
    found = defaultdict[str, set[int]](set)
    for entry in asked:
        sensor, numbers = _numbered(entry, min(there, default="camera"))
        if sensor not in there:
            raise CaptureError(f"data.without names '{sensor}', but {owner} has {', '.join(sorted(there)) or 'none'}")
        some = {number for number in there[sensor] if number in numbers}
        if not some:
            known = f"{min(there[sensor])} to {max(there[sensor])}" if there[sensor] else "none"
            raise CaptureError(
                f"data.without names {entry}, but the frames of {sensor} are {known}; choose among these"
            )
        found[sensor] |= some
    return found


def _numbered(entry: str, example: str) -> tuple[str, range]:
    parts = _NUMBERED.fullmatch(entry)
    if parts is None:
        shown = assigned("data.without", [f"{example}/7", f"{example}/9-12"])
        raise CaptureError(f"data.without holds '{entry}', but takes SENSOR/NUMBER or SENSOR/FIRST-LAST, as in {shown}")
    sensor, first, last = parts.groups()
    return sensor, range(int(first), int(last or first) + 1)


def leave_out(sensor: str, numbers: Iterable[int]) -> str:
    """The remedy for frames that cannot be mended, as the end of a sentence."""
    some = list(numbers)
    return f"leave the frame{'s' * (len(some) > 1)} out by {without(frame_names(sensor, some))}"


@contextmanager
def naming(sensor: str, index: int) -> Iterator[None]:
    """Adds to an error of the block that the frame can be left out, unless an inner block has added it."""
    try:
        yield
    except CaptureError as error:
        remedy = leave_out(sensor, [index])
        if remedy in str(error):
            raise
        raise CaptureError(f"{error}, or {remedy}") from error


def loaded(frame: ImageFrame) -> Tensor:  # [H, W, 3] uint8
    """The pixels of an image; its errors name data.without."""
    with naming(frame.sensor, frame.index):
        return frame.load()


def without(names: Sequence[str]) -> str:
    """The argument that leaves frames out; the key alone where it would be long."""
    return assigned("data.without", names) if len(names) <= _SHOWN else "data.without"


def frame_names(sensor: str, numbers: Iterable[int]) -> list[str]:
    """Names of frames as data.without takes them, neighbours together."""
    return [f"{sensor}/{run[0]}" + f"-{run[-1]}" * (len(run) > 1) for run in consecutive(sorted(numbers))]
