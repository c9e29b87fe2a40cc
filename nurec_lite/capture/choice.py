# SPDX-License-Identifier: Apache-2.0
"""Choice of a configuration within a data set: one of its drives, some of their sensors."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from nurec_lite.capture.files import short
from nurec_lite.capture.types import CaptureError

_SHOWN = 6  # names that a message lists
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
