# SPDX-License-Identifier: Apache-2.0
"""Choice of a configuration within a data set: one of its drives, some of their sensors, their frames without some."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from nurec_lite.base.key_values import assigned
from nurec_lite.capture.files import short
from nurec_lite.capture.types import CaptureError

_SHOWN = 6  # names that a message lists
_NUMBERED = re.compile(r"(.+)/(\d{1,9})(?:-(\d{1,9}))?")  # sensor, number, last number
Drive = TypeVar("Drive")  # the files of one, as a reader wants them


def chosen_sensors(
    key: str,  # that chooses, as in data.cameras
    asked: Sequence[str] | None,  # None: all
    there: Collection[str],
    owner: object,  # for the message: the drive, or its folder
) -> tuple[str, ...]:
    """Names in the order of the request, each once."""
    for name in asked or ():
        if name not in there:
            raise CaptureError(f"{key} names '{name}', but {owner} has {', '.join(sorted(there)) or 'none'}")
    return tuple(dict.fromkeys(asked or there))


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


class Numbered(Protocol):
    """A frame, or its loader."""

    @property
    def sensor(self) -> str: ...

    @property
    def index(self) -> int: ...


@contextmanager
def naming(frame: Numbered) -> Iterator[None]:
    """Adds to an error of the block that the frame can be left out."""
    try:
        yield
    except CaptureError as error:
        raise CaptureError(f"{error}, or {leave_out(frame.sensor, [frame.index])}") from error


def without(names: Sequence[str]) -> str:
    """The argument that leaves frames out; the key alone where it would be long."""
    return assigned("data.without", names) if len(names) <= _SHOWN else "data.without"


def frame_names(sensor: str, numbers: Iterable[int]) -> list[str]:
    """Names of frames as data.without takes them, neighbours together."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [f"{sensor}/{run[0]}" + f"-{run[-1]}" * (len(run) > 1) for run in runs]


def chosen_drive(
    known: Mapping[str, Drive],  # drives by name, in order
    drive: str | None,  # a name, the start of one name alone, or a place in the order; None: the only one
    root: Path,  # for the message
    called: str,  # the plural of the word for a drive, as in logs
) -> Drive:
    if drive is not None and drive in known:
        return known[drive]
    found = [name for name in known if drive is None or name.startswith(drive)]
    if len(found) == 1:
        return known[found[0]]
    place = int(drive) if drive is not None and drive.isascii() and drive.isdecimal() and len(drive) < 10 else None
    if place is not None and place < len(known):
        return list(known.values())[place]
    names = ", ".join(map(short, list(known)[:_SHOWN])) + (", ..." if len(known) > _SHOWN else "")
    if len(known) == 1:
        raise CaptureError(f"data.drive is '{short(drive)}', but {root} holds {names} alone; leave data.drive out")
    raise CaptureError(f"{root} holds {len(known)} {called} ({names}); choose one by data.drive")


def numbered_drive(
    known: Mapping[str, Drive],  # drives by name, which is a number
    drive: str | None,
) -> str | None:
    """The name of the drive with the same number, such as 007 for 7; else the text as it is."""
    if drive is None or not re.fullmatch("[0-9]{1,9}", drive):
        return drive
    same = [name for name in known if re.fullmatch("[0-9]{1,9}", name) and int(name) == int(drive)]
    return same[0] if len(same) == 1 else drive
