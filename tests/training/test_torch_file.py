# SPDX-License-Identifier: Apache-2.0
"""A file of torch.save is read as torch.load reads it, or refused: nothing is executed, and nothing becomes larger than the file."""

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from mutations import bounded_memory
from torch import Tensor

from nurec_lite.training.torch_file import TorchFileError, read_torch_file


def written(path: Path, content: Any) -> Path:
    torch.save(content, path)
    return path


def with_record(path: Path, ending: str, data: bytes) -> None:
    """Replaces a record of the zip; its CRC is right."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, old in members.items():
            archive.writestr(name, data if name.endswith(ending) else old)


def pickled(path: Path) -> bytes:
    with zipfile.ZipFile(path) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))


@pytest.mark.parametrize(
    "tensor",
    [torch.arange(6.0), torch.arange(6.0).view(2, 3).T, torch.zeros(0, 3), torch.zeros(0, 6)[:, :3], torch.tensor(2.5), torch.arange(3),
     torch.arange(24.0).view(2, 3, 4).permute(2, 0, 1), torch.ones(3, dtype=torch.uint8), torch.ones(1, 5, 1).double()],
)  # fmt: skip
def test_tensors_come_back_with_their_strides(tmp_path: Path, tensor: Tensor) -> None:
    found = read_torch_file(written(tmp_path / "f", {"t": tensor}))["t"]
    assert torch.equal(found, tensor) and found.dtype == tensor.dtype and found.stride() == tensor.stride()


def test_plain_values_come_back(tmp_path: Path) -> None:
    content = {"a": [1, -2, 2**40, 0.5, float("inf")], "b": ("x", None, True), 3: {"é": {}}, "c": [(1, 2)] * 2, "d": ()}
    assert read_torch_file(written(tmp_path / "f", content)) == content


def test_a_storage_that_claims_more_than_its_record(tmp_path: Path) -> None:
    """torch.load reads beyond the end of the record."""
    path = written(tmp_path / "f", torch.zeros(7))
    with_record(path, "data/0", b"\0" * 8)
    with pytest.raises(TorchFileError, match="another size than its record"):
        read_torch_file(path)


def test_strides_of_zero(tmp_path: Path) -> None:
    path = written(tmp_path / "f", torch.zeros(1).expand(1 << 31))
    with bounded_memory(10 << 20), pytest.raises(TorchFileError, match="does not fill its record"):
        read_torch_file(path)


@pytest.mark.parametrize("value", [torch.zeros(4)[1:], torch.eye(2)[::2], torch.zeros(3, dtype=torch.complex64)])
def test_tensors_that_do_not_fill_their_record(tmp_path: Path, value: Tensor) -> None:
    with pytest.raises((TorchFileError, KeyError)):
        read_torch_file(written(tmp_path / "f", value))


def test_lists_that_hold_one_another(tmp_path: Path) -> None:
    """2^40 leaves of forty lists: walking them takes hours."""
    nested: list[Any] = []
    for _ in range(40):
        nested = [nested, nested]
    with pytest.raises(TorchFileError, match="there twice"):
        read_torch_file(written(tmp_path / "f", nested))


def test_deep_tuples_as_keys(tmp_path: Path) -> None:
    """Hashing one recurses without a limit and ends in a crash."""
    path = written(tmp_path / "f", {})
    with_record(path, "data.pkl", b"\x80\x02}" + b")" + b"\x85" * 200_000 + b"Ns.")
    with pytest.raises(TorchFileError, match="neither a name nor a number"):
        read_torch_file(path)


@pytest.mark.parametrize(
    ("data", "pattern"),
    [
        (b"\x80\x02" + b"N" * 400_000 + b".", "too long"),
        (b"\x80\x02cos\nsystem\nX\x01\x00\x00\x00x\x85R.", "another way"),
        (b"\x80\x02cos\nsystem\n)\x81.", "uses NEWOBJ"),
        (b"\x80\x02)e.", "list index|damaged|pop from empty"),
        (b"\x80\x02]X\x01\x00\x00\x00aNs.", "damaged"),
    ],
)
def test_other_operations(tmp_path: Path, data: bytes, pattern: str) -> None:
    path = written(tmp_path / "f", {})
    with_record(path, "data.pkl", data)
    with pytest.raises((TorchFileError, IndexError), match=pattern):
        read_torch_file(path)


def test_a_memo_of_gigabytes(tmp_path: Path) -> None:
    """Python's own reader makes room for every number up to the one that is named."""
    path = written(tmp_path / "f", {})
    with_record(path, "data.pkl", b"\x80\x02Nr\xff\xff\xff\x7f.")
    with bounded_memory(10 << 20):
        assert read_torch_file(path) is None


def test_numbers_of_the_other_end(tmp_path: Path) -> None:
    path = written(tmp_path / "f", torch.zeros(2))
    with_record(path, "byteorder", b"big")
    with pytest.raises(TorchFileError, match="little-endian"):
        read_torch_file(path)


def test_no_zip_at_all(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    pickle.dump({"a": 1}, buffer)
    (tmp_path / "f").write_bytes(buffer.getvalue())
    with pytest.raises(zipfile.BadZipFile):
        read_torch_file(tmp_path / "f")
