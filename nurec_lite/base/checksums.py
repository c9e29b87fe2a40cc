# SPDX-License-Identifier: Apache-2.0
"""CRC-32 of bytes that several threads took the sums of.

A sum is a polynomial over the field of two elements, and n more bytes multiply it by x^8n modulo POLYNOMIAL. The idea is that of zlib's
crc32_combine (https://zlib.net, crc32.c). The highest bit of a number is the constant term.
"""

from functools import lru_cache

POLYNOMIAL = 0xEDB88320  # without its term x^32
ONE, BYTE = 1 << 31, 1 << 23  # 1 and x^8


def combined(
    first: int,  # CRC-32 of bytes
    second: int,  # of the bytes after them
    length: int,  # number of the bytes after them
) -> int:
    """Returns the CRC-32 of all the bytes."""
    return _product(_power(length), first) ^ second


@lru_cache(maxsize=64)
def _power(n: int) -> int:
    """Returns x^8n."""
    found, square = ONE, BYTE
    while n:
        if n & 1:
            found = _product(found, square)
        square, n = _product(square, square), n >> 1
    return found


def _product(a: int, b: int) -> int:
    """Returns the product of two polynomials modulo POLYNOMIAL."""
    found = 0
    while a:
        if a & ONE:
            found ^= b
        a = (a << 1) & 0xFFFFFFFF
        b = b >> 1 ^ (POLYNOMIAL if b & 1 else 0)
    return found
