# SPDX-License-Identifier: Apache-2.0
"""Damaged files: `mutated` and `mutated_text` draw files that are 1 to 4 mutations away from a valid one.

    @hundreds
    @given(mutated_text(VALID))
    def test_property(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
        path = folder_of(tmp_path_factory, "property") / "name"
        overwrite(path, data)
        result = read_or_refuse(lambda: read(path), path.name)
        assert result is None or is_sane(result)

`read_or_refuse` knows the form of a refusal, and `bounded_memory` its limit of memory.
"""

import random
import re
import resource
import struct
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import reduce
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from nurec_lite.capture.types import CaptureError

Result = TypeVar("Result")
Mutation = Callable[[bytes, int, int], bytes]  # the data; two arbitrary numbers choose place and change
Step = tuple[Mutation, int, int]

_FLOATS = (float("nan"), float("inf"), -float("inf"), 1e30, -1e30, -1.0, 0.0, 1e-40)
WORDS = [struct.pack(f"{order}f", value) for value in _FLOATS for order in "<>"]
WORDS += [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\1\0", b"\x80\0\0\0"]
BYTES = [
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\n",
    b"\r",
    b" ",
    b"-",
    b"9",
    b"<",
    b"&",
    b"\xc3\x28",
    b"\xef\xbb\xbf",
    *WORDS,
]
NUMBERS = [
    b"nan",
    b"NaN",
    b"inf",
    b"-inf",
    b"1e308",
    b"-1e308",
    b"1e30",
    b"1e-320",
    b"1e999",
    b"-0",
    b"0",
    b"-1",
    b"",
    b"x",
]
NUMBERS += [b"9" * 19, b"9" * 300, b"9" * 5000, b"-" + b"9" * 30, b"0.5", b"1_0", b"0x10", b"1,5", b"1e", b"+3", b"2.0"]
NUMBERS += ["٣".encode(), "²".encode(), "１".encode(), "１e5".encode(), b"4294967296", b"2147483647", b"-2147483649"]
_NUMBER = re.compile(rb"[-+]?\d[\d.]*(?:[eE][-+]?\d+)?")


def mutated(data: bytes) -> SearchStrategy[bytes]:
    """Bytes flipped, replaced, inserted and deleted; slices doubled and swapped; the file cut short or grown."""
    return _mutated(data, BINARY)


def mutated_text(data: bytes) -> SearchStrategy[bytes]:
    """Likewise, and numbers replaced by texts that are hardly numbers, lines dropped, repeated and swapped."""
    return _mutated(data, BINARY + TEXT + TEXT)


def _mutated(data: bytes, kinds: tuple[Mutation, ...]) -> SearchStrategy[bytes]:
    """A seed stands for all mutations: drawing each number costs twice the time and repeats itself more often."""

    def apply(drawn: tuple[int, int]) -> bytes:
        return applied(data, steps_of(random.Random(drawn[1]), drawn[0], kinds))

    return st.tuples(st.integers(1, 4), st.integers(0, (1 << 62) - 1)).map(apply)


def steps_of(rng: random.Random, count: int, kinds: tuple[Mutation, ...]) -> list[Step]:
    return [(rng.choice(kinds), rng.getrandbits(24), rng.getrandbits(24)) for _ in range(count)]


def applied(data: bytes, steps: Iterable[Step]) -> bytes:
    return reduce(lambda result, step: step[0](result, *step[1:]), steps, data)


# ---- bytes


def _flip(data: bytes, a: int, b: int) -> bytes:
    i = a % max(len(data), 1)
    return data[:i] + bytes(byte ^ 1 << b % 8 for byte in data[i : i + 1]) + data[i + 1 :]


def _replace(data: bytes, a: int, b: int) -> bytes:
    i, new = a % (len(data) + 1), BYTES[b % len(BYTES)]
    return data[:i] + new + data[i + len(new) :]


def _replace_word(data: bytes, a: int, b: int) -> bytes:
    """Replaces a word at a multiple of four bytes, where the numbers of a binary file lie."""
    i = a % (len(data) // 4 + 1) * 4
    return data[:i] + WORDS[b % len(WORDS)] + data[i + 4 :]


def _insert(data: bytes, a: int, b: int) -> bytes:
    i = a % (len(data) + 1)
    return data[:i] + BYTES[b % len(BYTES)] + data[i:]


def _delete(data: bytes, a: int, b: int) -> bytes:
    i = a % (len(data) + 1)
    return data[:i] + data[i + 1 + b % 16 :]


def _cut(data: bytes, a: int, b: int) -> bytes:
    return data[: a % (len(data) + 1)]


def _double(data: bytes, a: int, b: int) -> bytes:
    i, j = sorted((a % (len(data) + 1), b % (len(data) + 1)))
    return data[:j] + data[i:]


def _swap(data: bytes, a: int, b: int) -> bytes:
    """Two neighbouring slices of equal length."""
    i = a % (len(data) + 1)
    n = b % ((len(data) - i) // 2 + 1)
    return data[:i] + data[i + n : i + 2 * n] + data[i : i + n] + data[i + 2 * n :]


def _grow(data: bytes, a: int, b: int) -> bytes:
    """A run of up to 64 KiB of one byte, often one that stands there already."""
    i = a % (len(data) + 1)
    return data[:i] + (data[i : i + 1] or b"\0") * (1 << b % 17) + data[i:]


# ---- text


def _number(data: bytes, a: int, b: int) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return data
    i, j = found[a % len(found)].span()
    return data[:i] + NUMBERS[b % len(NUMBERS)] + data[j:]


def _drop_line(data: bytes, a: int, b: int) -> bytes:
    lines = data.splitlines(keepends=True)
    i = a % max(len(lines), 1)
    return b"".join(lines[:i] + lines[i + 1 :])


def _repeat_line(data: bytes, a: int, b: int) -> bytes:
    lines = data.splitlines(keepends=True)
    i = a % max(len(lines), 1)
    return b"".join(lines[:i] + lines[i : i + 1] * (1 << b % 8) + lines[i:])


def _swap_lines(data: bytes, a: int, b: int) -> bytes:
    lines = data.splitlines(keepends=True)
    if lines:
        i, j = a % len(lines), b % len(lines)
        lines[i], lines[j] = lines[j], lines[i]
    return b"".join(lines)


BINARY: tuple[Mutation, ...] = (_flip, _replace, _replace_word, _insert, _delete, _cut, _double, _swap, _grow)
TEXT: tuple[Mutation, ...] = (_number, _number, _drop_line, _repeat_line, _swap_lines)


# ---- duties of readers

hundreds = settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])


def folder_of(factory: pytest.TempPathFactory, name: str) -> Path:
    """The same folder for all examples of a test."""
    path = factory.getbasetemp() / name
    path.mkdir(exist_ok=True)
    return path


def overwrite(path: Path, data: bytes) -> None:
    """Writes a file anew. It is removed before: ext4 writes a file that is cut to nothing to the disk at once, which takes 1 ms."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def read_or_refuse(read: Callable[[], Result], name: str) -> Result | None:
    """Returns the result of `read`, or None where it refuses properly: CaptureError with one sentence, the file's name and a remedy. Any
    other exception goes through, and a warning counts as one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return read()
    except CaptureError as error:
        message = str(error)
        assert name in message, f"does not name {name}: {message}"
        assert message.isprintable() and len(message) < 600, f"is no sentence of one line: {message[:1000]!r}"
        assert message.partition("; ")[2], f"names no remedy after a semicolon: {message}"
        return None


@contextmanager
def bounded_memory(limit: int) -> Iterator[None]:  # bytes that the process's peak may gain
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten, where the system allows it
    before = _peak_memory()
    yield
    growth = _peak_memory() - before
    assert growth <= limit, f"memory grew by {growth / 1e6:.0f} MB"


def _peak_memory() -> int:  # bytes
    """VmHWM follows the reset above; getrusage does not, and stands in where there is no VmHWM."""
    with suppress(OSError):
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        if found:
            return int(found[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
