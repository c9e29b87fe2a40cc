# SPDX-License-Identifier: Apache-2.0
"""Checksums of parts give that of the whole."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nurec_lite.base.checksums import combined


@given(parts=st.lists(st.binary(max_size=300), max_size=6))
def test_parts_give_the_checksum_of_the_whole(parts: list[bytes]) -> None:
    found = 0
    for part in parts:
        found = combined(found, zlib.crc32(part), len(part))
    assert found == zlib.crc32(b"".join(parts))


@pytest.mark.parametrize("length", [0, 1, 31, 33, (1 << 20) - 1, 1 << 20])
def test_long_parts(length: int) -> None:
    first, second = bytes(range(256)), b"\xa5" * length
    assert combined(zlib.crc32(first), zlib.crc32(second), length) == zlib.crc32(first + second)


@given(first=st.integers(0, 2**32 - 1), one=st.integers(0, 1 << 40), other=st.integers(0, 1 << 40))
def test_lengths_beyond_any_memory(first: int, one: int, other: int) -> None:
    assert combined(combined(first, 0, one), 0, other) == combined(first, 0, one + other)
