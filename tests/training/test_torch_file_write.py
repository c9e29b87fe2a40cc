# SPDX-License-Identifier: Apache-2.0
"""Files of our writer are those of torch.save, however many threads write them, and end whole or with an error."""

import errno
import os
import resource
import signal
import struct
import threading
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.serialization import skip_data
from torch.utils.serialization import config as settings

from nurec_lite.training import torch_file_write
from nurec_lite.training.torch_file import DTYPES, read_torch_file
from nurec_lite.training.torch_file_layout import arranged, frame
from nurec_lite.training.torch_file_write import write_torch_file

LARGE = (1 << 32) + 5  # bytes; zip's own fields end before
TENSORS: dict[str, Callable[[], Tensor]] = {  # torch.save writes these as we do
    **{name: lambda dtype=dtype: torch.arange(33).to(dtype) for name, dtype in DTYPES.items()},  # type: ignore[misc]
    "no dimension": lambda: torch.tensor(2.5), "one element": lambda: torch.ones(1, 1), "no element": lambda: torch.zeros(0, 3),
    "transposed": lambda: torch.rand(31, 33).T, "permuted": lambda: torch.rand(2, 3, 4).permute(2, 0, 1),
    "no element of a view": lambda: torch.zeros(0, 6)[:, :3], "odd bytes": lambda: torch.arange(201, dtype=torch.uint8),
    "not a number": lambda: torch.tensor([float("nan"), -0.0, float("inf")]),
}  # fmt: skip
VIEWS: dict[str, Callable[[], Tensor]] = {  # torch.save writes all of the larger tensor
    "a part": lambda: torch.rand(33)[7:20], "a column": lambda: torch.rand(31, 3)[:, 1], "steps": lambda: torch.rand(33)[::2],
    "a corner of the transposed": lambda: torch.rand(5, 7).T[1:4, 1:3], "expanded": lambda: torch.rand(3, 1).expand(3, 5),
    "a parameter": lambda: nn.Parameter(torch.rand(3, 5)), "a gradient": lambda: torch.rand(4, requires_grad=True) * 2,
}  # fmt: skip
PLAIN = {
    "a": [1, -2, 2**40, 0.5, float("inf")],
    "b": ("x", None, True, False),
    3: {"é": {}},
    "c": [],
    "d": (),
    "e": [(1, 2)],
}


def write(path: Path, content: Any) -> Path:
    with open(path, "wb") as file:
        write_torch_file(content, file)
        assert file.tell() == path.stat().st_size
    return path


def loaded(path: Path) -> Iterator[Any]:
    """The content by each reader."""
    yield read_torch_file(path)
    for mapped in (False, True):
        yield torch.load(path, weights_only=True, mmap=mapped)
    with settings.patch("load.calculate_storage_offsets", True):  # type: ignore[attr-defined]
        yield torch.load(path, weights_only=True, mmap=True)


def same(a: Tensor, b: Tensor) -> bool:
    bits = [torch.empty(t.shape, dtype=t.dtype).copy_(t.detach()).flatten().view(torch.uint8) for t in (a, b)]
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(*bits)


def small_pieces(monkeypatch: pytest.MonkeyPatch, size: int = 13) -> None:
    monkeypatch.setattr(torch_file_write, "PIECE", size)


@contextmanager
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) == before


# ---- content


@pytest.mark.parametrize("name", [*TENSORS, *VIEWS])
@pytest.mark.parametrize("size", [13, 1 << 24])
def test_tensors_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, size: int) -> None:
    small_pieces(monkeypatch, size)
    tensor = (TENSORS | VIEWS)[name]()
    path = write(tmp_path / "f", {"t": tensor})
    for found in loaded(path):
        assert same(found["t"], tensor) and not found["t"].requires_grad
        assert name in VIEWS or found["t"].stride() == tensor.stride()
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.getinfo("archive/data/0").file_size == tensor.numel() * tensor.itemsize


def test_plain_values_come_back(tmp_path: Path) -> None:
    path = write(tmp_path / "f", PLAIN)
    for found in loaded(path):
        assert found == PLAIN and type(found["b"]) is tuple and type(found["b"][2]) is bool


def test_nothing_at_all_comes_back(tmp_path: Path) -> None:
    assert list(loaded(write(tmp_path / "f", None))) == [None] * 4


@pytest.mark.parametrize("size", [1, 13, 1 << 24])
def test_the_file_is_that_of_torch_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Up to the number that torch gives each file, its last record."""
    small_pieces(monkeypatch, size)
    content = {"tensors": {name: make() for name, make in TENSORS.items()}, "plain": PLAIN}
    with open(tmp_path / "torch", "wb") as file:
        torch.save(content, file)
    path = write(tmp_path / "ours", content)
    with zipfile.ZipFile(tmp_path / "torch") as theirs, zipfile.ZipFile(path) as ours:
        *same_records, last = theirs.infolist()
        assert last.filename == "archive/.data/serialization_id" and ours.testzip() is None
        assert [repr(m) for m in ours.infolist()] == [repr(m) for m in same_records]
        assert [m.CRC for m in ours.infolist()] == [m.CRC for m in same_records]
    start = last.header_offset
    assert path.read_bytes()[:start] == (tmp_path / "torch").read_bytes()[:start]


def test_tensors_begin_at_multiples_of_64_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "f", [torch.rand(n) for n in range(40)])
    reader = torch._C.PyTorchFileReader(str(path))
    assert all(reader.get_record_offset(f"data/{n}") % 64 == 0 for n in range(40))


def test_tensors_of_one_memory_are_written_each(tmp_path: Path) -> None:
    whole = torch.rand(33)
    path = write(tmp_path / "f", [whole, whole[3:5], whole.detach()])
    for a, b, c in loaded(path):
        assert same(a, whole) and same(b, whole[3:5]) and same(c, whole)


def test_a_tensor_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """The reader refuses such a file."""
    tensor = torch.rand(3)
    with pytest.raises(ValueError, match="a tensor is there twice"):
        write(tmp_path / "f", {"a": tensor, "b": [tensor]})


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.float16, torch.complex64])
def test_types_that_the_reader_does_not_know_are_refused(tmp_path: Path, dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=f"type {dtype}; the reader of checkpoints knows no such type"):
        write(tmp_path / "f", torch.ones(3, dtype=dtype))


# ---- files of gigabytes, most of them holes


def large() -> list[Tensor]:
    """Memory that is never touched takes no room."""
    small = torch.arange(3.0), torch.arange(5), torch.zeros(0)
    return [
        small[0],
        torch.empty(LARGE, dtype=torch.uint8),
        small[1],
        small[2],
        torch.empty(LARGE + 2, dtype=torch.uint8),
    ]


def leave_holes(pieces: Sequence[Any], file: int) -> dict[int, int]:
    """Writes small pieces alone. Checksums of the others are 0, as those of torch's writer with `skip_data`."""
    found = {}
    for piece in pieces:
        data = piece.values.numpy().tobytes() if len(piece.values) < 1 << 16 else b""
        os.pwrite(file, data, piece.place)
        found[piece.place] = zlib.crc32(data)
    return found


def test_records_and_places_over_4_gib_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_file_write, "_in_threads", leave_holes)
    path = write(tmp_path / "f", large())
    assert path.stat().st_size > 2 * LARGE and path.stat().st_blocks < 1000
    for calculated in (False, True):
        with settings.patch("load.calculate_storage_offsets", calculated):  # type: ignore[attr-defined]
            found = torch.load(path, weights_only=True, mmap=True)
        assert [t.numel() for t in found] == [3, LARGE, 5, 0, LARGE + 2]
        assert found[0].tolist() == [0, 1, 2] and found[2].tolist() == [0, 1, 2, 3, 4] and found[4][-1] == 0
    with zipfile.ZipFile(path) as archive:
        assert (
            archive.read("archive/data/2") == torch.arange(5).numpy().tobytes()
            and archive.read("archive/version") == b"3\n"
        )
        assert [m.file_size for m in archive.infolist()[4:-1]] == [12, LARGE, 40, 0, LARGE + 2]


def test_records_and_places_over_4_gib_are_those_of_torch(tmp_path: Path) -> None:
    """All bytes but the second size in a header, the compressed one, where torch writes 0."""
    with open(tmp_path / "torch", "wb") as file, skip_data(), warnings.catch_warnings(action="ignore"):
        torch.save(large(), file)
    with zipfile.ZipFile(tmp_path / "torch") as archive:
        members = archive.infolist()
    records = arranged({m.filename.removeprefix("archive/"): m.file_size for m in members})
    assert [r.place for r in records] == [m.header_offset for m in members]
    with open(tmp_path / "torch", "rb") as file:
        for place, data in frame(records, [m.CRC for m in members]):
            for size in (LARGE, LARGE + 2) if data.startswith(b"PK\3\4") else ():
                data = data.replace(struct.pack("<2Q", size, size), struct.pack("<2Q", size, 0))
            file.seek(place)
            assert file.read(len(data)) == data
        assert not file.read()


def test_more_records_than_a_plain_zip_can_have(tmp_path: Path) -> None:
    count = 65_537
    with open(tmp_path / "f", "wb") as file:
        for place, data in frame(arranged(dict.fromkeys(map(str, range(count)), 0)), [0] * count):
            file.seek(place)
            file.write(data)
    with zipfile.ZipFile(tmp_path / "f") as archive:
        assert len(archive.namelist()) == count


# ---- errors and interruptions


def test_a_system_that_takes_a_few_bytes_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, whole = [torch.rand(33), torch.rand(31)], os.pwrite
    before = write(tmp_path / "f", content).read_bytes()
    monkeypatch.setattr(os, "pwrite", lambda file, data, place: whole(file, data[:7], place))
    assert write(tmp_path / "g", content).read_bytes() == before


@pytest.mark.parametrize("bound", [0, 2000, 300_000])
def test_a_file_that_may_not_be_so_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: int) -> None:
    small_pieces(monkeypatch, 1 << 14)
    content, (soft, hard) = [torch.rand(100_000), torch.rand(50_000)], resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bound, hard))
    try:
        with no_thread_is_left(), pytest.raises(OSError) as found:
            write(tmp_path / "f", content)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert found.value.errno == errno.EFBIG and (tmp_path / "f").stat().st_size <= bound


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("nth", [1, 7, 300])
def test_an_error_of_the_disk_ends_all_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, nth: int
) -> None:
    small_pieces(monkeypatch)
    calls, whole = [], os.pwrite

    def fails_once(file: int, data: Any, place: int) -> int:
        calls.append(place)
        if len(calls) == nth:
            raise OSError(code, os.strerror(code))
        return whole(file, data, place)

    monkeypatch.setattr(os, "pwrite", fails_once)
    with no_thread_is_left(), pytest.raises(OSError) as found:
        write(tmp_path / "f", torch.rand(5000))  # 1539 pieces
    assert found.value.errno == code and len(calls) < 1539


def test_ctrl_c_leaves_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_pieces(monkeypatch)
    calls, whole, come, main = [], os.pwrite, threading.Event(), threading.main_thread().ident
    assert main is not None

    def interrupted(*_: Any) -> None:
        come.set()
        raise KeyboardInterrupt

    def interrupts(file: int, data: Any, place: int) -> int:
        calls.append(place)
        if len(calls) == 100:
            signal.pthread_kill(main, signal.SIGINT)
        assert len(calls) < 100 or come.wait(60)
        return whole(file, data, place)

    monkeypatch.setattr(os, "pwrite", interrupts)
    before = signal.signal(signal.SIGINT, interrupted)
    try:
        with no_thread_is_left(), pytest.raises(KeyboardInterrupt):
            write(tmp_path / "f", torch.rand(5000))
    finally:
        signal.signal(signal.SIGINT, before)
    assert 100 <= len(calls) < 1539


# ---- tensors of a GPU


@pytest.mark.parametrize("message", [None, "CUDA error: out of memory"])
def test_pieces_go_through_memory_of_each_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str | None
) -> None:
    """Tensors of the host stand for those of a GPU."""
    small_pieces(monkeypatch, 64)
    content, asked = [torch.rand(n, n + 1) for n in range(12)], list[int]()
    before = write(tmp_path / "f", content).read_bytes()

    def memory(like: Tensor) -> Tensor:
        asked.append(like.numel())
        if message:
            raise RuntimeError(message)
        return torch.zeros_like(like)

    monkeypatch.setattr(torch_file_write, "_is_elsewhere", lambda values: True)
    monkeypatch.setattr(torch_file_write, "locked", memory)
    assert write(tmp_path / "g", content).read_bytes() == before
    assert 0 < len(asked) <= torch_file_write.MOST_THREADS and set(asked) == {64}


def test_another_error_of_the_gpu_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def memory(like: Tensor) -> Tensor:
        raise RuntimeError("CUDA error: unspecified launch failure")

    monkeypatch.setattr(torch_file_write, "_is_elsewhere", lambda values: True)
    monkeypatch.setattr(torch_file_write, "locked", memory)
    with no_thread_is_left(), pytest.raises(RuntimeError, match="launch failure"):
        write(tmp_path / "f", torch.rand(3))


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1 << 16, 1 << 24])
def test_tensors_of_a_gpu_are_written_as_those_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """The last work that the present stream has before is part of them."""
    small_pieces(monkeypatch, size)
    tensors = [torch.rand(n, 45, device="cuda") for n in (0, 1, 31, 100_003)] + [torch.rand(33, 31, device="cuda").T]
    expected = [t.cpu() * 2 for t in tensors] + [torch.arange(3)]
    with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        torch.cuda._sleep(100_000_000)
        for tensor in tensors:
            tensor.mul_(2)
        path = write(tmp_path / "gpu", [*tensors, torch.arange(3)])
    assert path.read_bytes() == write(tmp_path / "cpu", expected).read_bytes()
