# SPDX-License-Identifier: Apache-2.0
"""scripts/snapshot.py compares machine code and runs without names."""

import struct
from typing import Any

import torch

from scripts.snapshot import code_of, compared, digest_of


def elf(**texts: bytes) -> bytes:
    """A 64-bit ELF file with a section for each text, and one that holds their names."""
    names = b"\0" + b"".join(f"{name}\0".encode() for name in [*texts, "names"])
    offsets, body = [64], b""
    for text in [*texts.values(), names]:
        body += text
        offsets.append(64 + len(body))
    headers = [
        struct.pack("<IIQQQQIIQQ", names.index(f"\0{name}\0".encode()) + 1, 1, 0, 0, at, end - at, 0, 0, 1, 0)
        for name, at, end in zip([*texts, "names"], offsets, offsets[1:], strict=False)
    ]
    head = bytearray(64)
    struct.pack_into("<Q", head, 0x28, 64 + len(body))
    struct.pack_into("<HHH", head, 0x3A, 64, len(headers), len(headers) - 1)
    return bytes(head) + body + b"".join(headers)


def files(*kernels: tuple[str, str, int]) -> dict[str, Any]:
    """A snapshot with one file; of each kernel its name, code and registers."""
    return {"kernels": {"a.cu": {"kernels": [[name, code, [registers, 0, 0, 0]] for name, code, registers in kernels]}}}


def test_code_is_that_of_text_sections_whatever_their_names() -> None:
    one = code_of(elf(**{".text.old": b"code", ".nv.info.old": b"else"}))
    two = code_of(elf(**{".nv.info.new": b"other", ".text.new": b"code"}))
    assert list(one) == ["old"] and list(two) == ["new"] and one["old"] == two["new"]
    assert code_of(elf(**{".text.new": b"cod3"}))["new"] != one["old"]


def test_names_do_not_count() -> None:
    lines = compared(files(("a", "1", 32), ("b", "2", 40)), files(("b", "2", 40), ("c_kernel", "1", 32)))
    assert lines == ["renamed: a -> c_kernel", "same: 1 of 2 kernels, with their names"]


def test_code_registers_and_how_often_a_kernel_is_there_count() -> None:
    before = files(("a", "1", 32))
    gone = "differs: a of before has no counterpart"
    for after in (files(("a", "2", 32)), files(("a", "1", 40))):
        assert gone in compared(before, after)
    assert gone in compared(files(("a", "1", 32), ("a", "1", 32)), before)
    assert any(line.startswith("differs: b") for line in compared(before, files(("a", "1", 32), ("b", "1", 32))))


def test_runs_are_compared_by_their_tensors_alone() -> None:
    first = digest_of({"a": torch.ones(2), "b": [torch.zeros(1), "text"]})
    assert first == digest_of({"c": torch.ones(2), "d": (torch.zeros(1), 3)})
    assert first != digest_of({"a": torch.ones(2), "b": [torch.full((1,), 1e-30), "text"]})
    assert compared({"runs": {"none": first}}, {"runs": {"none": first}}) == ["same: run none"]
    assert compared({"runs": {"none": first}}, {"runs": {"none": ""}}) == ["differs: run none"]
