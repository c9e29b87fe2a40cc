# SPDX-License-Identifier: Apache-2.0
"""Recordings that are truncated, damaged, or lie about their size: one sentence each, and no more memory than a recording may take."""

import random
import shutil
import struct
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_bag import street
from tiny_capture import tiny_capture

from nurec_lite.capture.check import check_capture
from nurec_lite.capture.rosbag import storage
from nurec_lite.capture.rosbag.read import read_rosbag
from nurec_lite.capture.rosbag.storage import decompressed
from nurec_lite.capture.types import CaptureError

CAPTURE = tiny_capture()
KINDS = {
    "ros1": ("ros1", ""),
    "ros1-lz4": ("ros1", "lz4"),
    "sqlite3": ("sqlite3", ""),
    "mcap": ("mcap", ""),
    "mcap-zstd": ("mcap", "storage"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of each kind."""
    folder, files = tmp_path_factory.mktemp("bags"), {}
    for kind, (container, compression) in KINDS.items():
        path = folder / (f"{kind}.bag" if container == "ros1" else kind)
        street(CAPTURE, ros1=container == "ros1").write(path, container, compression)
        files[kind] = path if path.is_file() else next(p for p in path.iterdir() if p.suffix in (".db3", ".mcap"))
    return files


def used(path: Path) -> None:
    """Reads the recording as a training would."""
    capture = read_rosbag(path)
    check_capture(capture, str(path))
    for frame in (*capture.images[:4], *capture.sweeps[:2]):
        frame.load()


def sentence(path: Path) -> str | None:
    """The sentence that refuses it; None if it is read. Any other error is a defect."""
    try:
        used(path)
    except CaptureError as error:
        text = str(error)
        assert text.isprintable() and len(text) < 600 and ";" in text and "\n" not in text, text
        return text
    return None


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_one_sentence(kind: str, whole: dict[str, Path], tmp_path: Path) -> None:
    chance, data, refused = random.Random(kind), whole[kind].read_bytes(), 0
    path = tmp_path / whole[kind].name
    for trial in range(15):
        damaged = bytearray(data)
        if trial % 3 == 0:
            damaged = damaged[: chance.randrange(len(data))]
        elif trial % 3 == 1:
            for _ in range(chance.randrange(1, 40)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        else:  # the index, or the bytes before the data
            at = chance.choice([chance.randrange(400), len(data) - 1 - chance.randrange(4000)])
            damaged[at : at + 8] = struct.pack("<Q", chance.choice([0, 1, 2**31, 2**63 - 1, chance.getrandbits(64)]))
        path.write_bytes(bytes(damaged))
        refused += sentence(path) is not None
    assert refused >= 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_file_is_refused(kind: str, whole: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / whole[kind].name
    for share in (0.0, 0.3, 0.9):
        data = whole[kind].read_bytes()
        path.write_bytes(data[: int(share * len(data))])
        assert sentence(path) is not None, share


def test_a_ros1_bag_without_an_index_names_the_program_that_makes_one(whole: dict[str, Path], tmp_path: Path) -> None:
    data = bytearray(whole["ros1"].read_bytes())
    at = data.index(b"index_pos=") + len(b"index_pos=")
    data[at : at + 8] = bytes(8)  # as while it is recorded
    path = tmp_path / "a.bag.active"
    path.write_bytes(bytes(data))
    assert "not indexed" in (text := sentence(path) or "") and "rosbag reindex" in text


@pytest.mark.parametrize("compression", ["bz2", "lz4", "zstd"])
def test_nothing_is_decompressed_beyond_a_limit(compression: str) -> None:
    import bz2

    import lz4.frame
    from backports import zstd

    press: dict[str, Callable[[bytes], bytes]] = {"bz2": bz2.compress, "lz4": lz4.frame.compress, "zstd": zstd.compress}
    data = press[compression](bytes(1 << 26))
    tracemalloc.start()
    with pytest.raises(CaptureError, match=r"here holds .* damaged or exceed 1 MiB; copy the bag again"):
        decompressed(data, compression, 1 << 20, "here")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 23
    assert decompressed(press[compression](b"abc"), compression, 3, "here") == b"abc"


def test_an_unknown_compression_is_named_with_its_file() -> None:
    with pytest.raises(
        CaptureError, match=r"^drive.bag cannot be read \(compression 'xz' is none of bz2, lz4 and zstd\)"
    ):
        decompressed(b"abc", "xz", 3, "drive.bag")


def test_a_chunk_with_another_checksum_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "chunk"
    path.write_bytes(b"message")
    assert storage.Chunk(path, 0, 0, 7, "", zlib.crc32(b"message")).data() == b"message"
    with pytest.raises(CaptureError, match="another checksum"):
        storage.Chunk(path, 0, 0, 7, "", 1).data()


def test_a_view_in_place_of_the_messages_is_refused(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "a.db3"
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT)"
        )
        endless = "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT id, id AS topic_id, id AS timestamp, '' AS data"
        connection.execute(f"CREATE VIEW messages AS {endless} FROM n")
    assert "has no table 'messages'" in (sentence(path) or "")


def test_a_file_that_is_compressed_as_a_whole_names_the_program(whole: dict[str, Path], tmp_path: Path) -> None:
    from backports import zstd

    path = tmp_path / "a.db3.zstd"
    path.write_bytes(zstd.compress(whole["sqlite3"].read_bytes()))
    assert "decompress it by zstd -d" in (sentence(path) or "")


def test_files_that_follow_one_another_are_one_recording(whole: dict[str, Path], tmp_path: Path) -> None:
    recording = street(CAPTURE)
    rows, parts = sorted(recording.rows, key=lambda row: row[0]), tmp_path / "parts"
    parts.mkdir()
    for k in range(2):
        recording.rows = rows[k * len(rows) // 2 : (k + 1) * len(rows) // 2]
        made = recording.write(tmp_path / f"part{k}", "mcap")
        shutil.copy(next(made.glob("*.mcap")), parts)
    read = read_rosbag(parts)
    assert (len(read.images), len(read.sweeps)) == (len(CAPTURE.images), len(CAPTURE.sweeps))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rosbag2_bagfile_information: 5\n", "names no files"),
        ("a: [1\n", "is no YAML"),
        (
            "rosbag2_bagfile_information: {relative_file_paths: [other.db3]}\n",
            "which metadata.yaml names, does not exist",
        ),
        (
            "rosbag2_bagfile_information: {relative_file_paths: [a.db3], compression_mode: MESSAGE, compression_format: xz}\n",
            "none of zstd",
        ),
    ],
)
def test_metadata_that_do_not_fit(text: str, words: str, whole: dict[str, Path], tmp_path: Path) -> None:
    shutil.copy(whole["sqlite3"], tmp_path / "a.db3")
    (tmp_path / "metadata.yaml").write_text(text)
    assert words in (sentence(tmp_path) or "")


def test_what_is_no_bag(tmp_path: Path) -> None:
    (tmp_path / "a.bag").write_text("hello, world, this is a text")
    assert "is no ROS bag" in (sentence(tmp_path / "a.bag") or "")
    assert "does not exist" in (sentence(tmp_path / "b.bag") or "")
    (tmp_path / "empty").mkdir()
    assert "must be a bag" in (sentence(tmp_path / "empty") or "")


def test_without_the_library_one_sentence_names_it(whole: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rosbags", None)
    assert "pip install rosbags" in (sentence(whole["mcap"]) or "")


def test_memory_does_not_grow_with_what_frames_hold(tmp_path: Path) -> None:
    """Images of twice as many bytes take no more memory to open."""
    peaks = []
    for repeat in (1, 40):
        recording = street(CAPTURE, compressed=None)
        for _, topic, _, message in recording.rows:
            if topic.endswith("image_raw"):
                message.data = message.data.reshape(message.height, -1).repeat(repeat, axis=1).reshape(-1)
                message.step *= repeat  # bytes after each row
        path = recording.write(tmp_path / f"bag{repeat}", "sqlite3")
        tracemalloc.start()
        read_rosbag(path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        size = sum(file.stat().st_size for file in path.iterdir())
    assert size > 2_000_000 and peaks[1] - peaks[0] < 0.3 * size


def test_an_mcap_of_another_system_is_named(whole: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    path.write_bytes(whole["mcap"].read_bytes().replace(b"\x04\0\0\0ros2", b"\x04\0\0\0ros1", 1))
    assert "is of the profile 'ros1', but MCAP is read of the profile 'ros2' alone" in (sentence(path) or "")


def test_a_database_that_was_not_closed_names_its_journal(whole: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "a.db3"
    shutil.copy(whole["sqlite3"], path)
    (tmp_path / "a.db3-wal").write_bytes(b"journal")
    assert "was not closed: a.db3-wal holds a part of it" in (sentence(path) or "")
