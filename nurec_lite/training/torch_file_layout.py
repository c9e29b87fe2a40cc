# SPDX-License-Identifier: Apache-2.0
"""Places of the records in a file of torch.save, a zip archive, and the bytes around them.

torch.load calculates places of tensors from their sizes if it is told to (`torch.utils.serialization.config`). All places are therefore
those of torch's own writer: its headers tell neither size nor checksum, a descriptor behind the record does, and padding lets the record
begin at a multiple of 64 bytes. Names and numbers of fields are those of PKWARE's APPNOTE.TXT.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

ALIGNMENT = 64  # bytes
ROOT = "archive"  # folder of all records
WIDE, MANY = 0xFFFFFFFF, 0xFFFF  # sizes and places, and numbers of records, that need fields of zip64
_NAMES_ARE_UTF8, _HAS_DESCRIPTOR = 1 << 11, 1 << 3


@dataclass(frozen=True)
class Record:
    name: str  # below ROOT
    size: int  # bytes
    place: int  # of its header in the file

    @cached_property
    def header(self) -> bytes:
        extra = self._wide
        padding = -(self.place + 30 + len(self._path) + len(extra) + 4) % ALIGNMENT
        extra += b"FB" + struct.pack("<H", padding) + b"Z" * padding
        numbers = 0, self._flags, 0, 0, 0, 0, 0, 0, len(self._path), len(extra)
        return struct.pack("<4s5H3I2H", b"PK\3\4", *numbers) + self._path + extra

    @property
    def data(self) -> int:
        """Place of its first byte."""
        return self.place + len(self.header)

    def descriptor(self, checksum: int) -> bytes:
        sizes = "<4sI2Q" if self._wide else "<4s3I"
        return struct.pack(sizes, b"PK\7\x08", checksum, self.size, self.size) if self.size else b""

    def entry(self, checksum: int) -> bytes:
        """Returns the record's part of the directory at the end."""
        size, place = min(self.size, WIDE), min(self.place, WIDE)
        head = struct.pack("<4s6H3I", b"PK\1\2", 0, 0, self._flags, 0, 0, 0, checksum, size, size)
        rest = struct.pack("<5H2I", len(self._path), len(self._wide), 0, 0, 0, 0, place)
        return head + rest + self._path + self._wide

    @property
    def end(self) -> int:
        return self.data + self.size + len(self.descriptor(0))

    @property
    def _path(self) -> bytes:
        return f"{ROOT}/{self.name}".encode()

    @property
    def _flags(self) -> int:
        return _NAMES_ARE_UTF8 | (_HAS_DESCRIPTOR if self.size else 0)

    @property
    def _wide(self) -> bytes:
        """The extra field of zip64, if a number needs it."""
        numbers = [self.size] * 2 * (self.size >= WIDE) + [self.place] * (self.place >= WIDE)
        return struct.pack(f"<2H{len(numbers)}Q", 1, 8 * len(numbers), *numbers) if numbers else b""


def arranged(
    sizes: Mapping[str, int],  # bytes of each record, by its name, in the order of the file
) -> list[Record]:
    records: list[Record] = []
    for name, size in sizes.items():
        records.append(Record(name, size, records[-1].end if records else 0))
    return records


def frame(
    records: Sequence[Record],  # all of the file
    checksums: Sequence[int],  # CRC-32 of each
) -> Iterator[tuple[int, bytes]]:
    """Yields everything but the records themselves, with the place of each part. The last part ends the file."""
    for record, checksum in zip(records, checksums, strict=True):
        yield record.place, record.header
        yield record.data + record.size, record.descriptor(checksum)
    entries = b"".join(record.entry(checksum) for record, checksum in zip(records, checksums, strict=True))
    start = records[-1].end
    yield start, entries + _ending(len(records), len(entries), start)


def _ending(
    records: int,
    size: int,  # bytes of the directory
    start: int,  # its place
) -> bytes:
    wide = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 0x031E, 45, 0, 0, records, records, size, start)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, start + size, 1)
    shown = min(records, MANY), min(records, MANY), min(size, WIDE), min(start, WIDE)
    return wide + locator + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, *shown, 0)
