# SPDX-License-Identifier: Apache-2.0
"""Choice of a configuration within a data set: one of its drives, some of their sensors."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from nurec_lite.capture.types import CaptureError

_SHOWN = 6  # names that a message lists


def chosen_sensors(
    key: str,  # that chooses, as in data.cameras
    asked: Sequence[str] | None,  # None: all
    there: Collection[str],
    owner: object,  # for the message: the drive, or its folder
) -> tuple[str, ...]:
    """Names in the order in which they are asked for, each once."""
    for name in asked or ():
        if name not in there:
            raise CaptureError(f"{key} names '{name}', but {owner} has {', '.join(sorted(there)) or 'none'}")
    return tuple(dict.fromkeys(asked or there))


def chosen_drive(
    known: Mapping[str, Path],  # drives by name, in order
    drive: str | None,  # a name, the start of one name alone, or a place in the order; None: the only one
    root: Path,  # for the message
    called: str,  # the plural of the word for a drive, as in logs
) -> Path:
    if drive is not None and drive in known:
        return known[drive]
    found = [known[name] for name in known if drive is None or name.startswith(drive)]
    if len(found) == 1:
        return found[0]
    if drive is not None and drive.isascii() and drive.isdecimal() and len(drive) < 10 and int(drive) < len(known):
        return list(known.values())[int(drive)]
    names = ", ".join(list(known)[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
    raise CaptureError(f"{root} holds {len(known)} {called} ({names}); choose one by data.drive")
