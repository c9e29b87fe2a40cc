# SPDX-License-Identifier: Apache-2.0
"""Decoder of the part of CBOR (RFC 8949) that NCore's indexes are written in: numbers, texts, lists and maps.

A general decoder also builds dates, fractions and regular expressions as a file asks for them. This one refuses such tags, and counts
values, so that a damaged file cannot take the memory or hang.
"""

import lzma
import struct
from typing import Any

MOST_VALUES = 3_000_000  # a capture of 20 s with seven cameras has about 300 000
LARGEST = 1 << 28  # bytes of an unpacked index
DEEPEST = 24  # lists and maps within one another
_FLOATS = {25: ">e", 26: ">f", 27: ">d"}
_CONSTANTS = {20: False, 21: True, 22: None, 23: None}
_WIDTHS = {24: 1, 25: 2, 26: 4, 27: 8}  # bytes of the number that follows
_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _LIST, _MAP, _SIMPLE = 0, 1, 2, 3, 4, 5, 7


def unpacked(data: bytes) -> Any:
    """Returns the value of CBOR that xz has packed; ValueError where it is damaged or too large."""
    try:
        plain = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=LARGEST)
        found = plain.decompress(data, LARGEST)
    except lzma.LZMAError as error:
        raise ValueError(f"it cannot be unpacked: {error}") from error
    if not plain.eof:
        raise ValueError("it is cut short" if len(found) < LARGEST else f"it unpacks to more than {LARGEST >> 20} MiB")
    return decoded(found)


def decoded(data: bytes) -> Any:
    """Returns the one value that `data` holds; ValueError for anything else."""
    reader = _Reader(data)
    try:
        found = reader.value(0)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ValueError("it is cut short or damaged") from error
    if reader.at != len(data):
        raise ValueError("something follows its value")
    return found


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.left = data, 0, MOST_VALUES

    def value(self, depth: int) -> Any:
        self.left -= 1
        if self.left < 0 or depth > DEEPEST:
            raise ValueError("it has too many values, or is nested too deeply")
        kind, info = divmod(self.data[self.at], 32)
        self.at += 1
        if kind == _SIMPLE:
            return self._simple(info)
        number = self._number(info)
        if kind in (_UNSIGNED, _NEGATIVE):
            return number if kind == _UNSIGNED else -1 - number
        if kind in (_BYTES, _TEXT):
            part = self._take(number)
            return part if kind == _BYTES else part.decode()
        if kind in (_LIST, _MAP) and number <= self.left:
            return self._list(number, depth) if kind == _LIST else self._map(number, depth)
        raise ValueError("it has too many values, or such as no index has")

    def _list(self, count: int, depth: int) -> list[Any]:
        return [self.value(depth + 1) for _ in range(count)]

    def _map(self, count: int, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(count):
            key = self.value(depth + 1)
            if not isinstance(key, str) or key in found:
                raise ValueError("a key is no text, or is there twice")
            found[key] = self.value(depth + 1)
        return found

    def _simple(self, info: int) -> Any:
        if info in _FLOATS:
            return struct.unpack(_FLOATS[info], self._take(_WIDTHS[info]))[0]
        if info not in _CONSTANTS:
            raise ValueError("it has values that no index has")
        return _CONSTANTS[info]

    def _number(self, info: int) -> int:
        if info < 24:
            return info
        if info not in _WIDTHS:
            raise ValueError("it has values of no known length")
        return int.from_bytes(self._take(_WIDTHS[info]), "big")

    def _take(self, count: int) -> bytes:
        part = self.data[self.at : self.at + count]
        if len(part) != count:
            raise ValueError("it is cut short")
        self.at += count
        return part
