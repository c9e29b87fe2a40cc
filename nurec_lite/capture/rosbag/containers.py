# SPDX-License-Identifier: Apache-2.0
"""Files of a recording: which topics they hold, and their messages, chunk by chunk."""

import os
import struct
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nurec_lite.base.texts import open_file
from nurec_lite.capture.files import short
from nurec_lite.capture.rosbag.library import damaged
from nurec_lite.capture.rosbag.storage import (
    COPY,
    MAX_MESSAGE,
    Chunk,
    InChunk,
    InTable,
    Location,
    Window,
    check_size,
    database,
    decompressed,
    table_names,
)
from nurec_lite.capture.types import CaptureError

_CONNECTION, _MESSAGE = 7, 2  # kinds of ROS 1 records
_MCAP_MESSAGE = 5
_MCAP_HEADER = 22  # bytes of a message before its data


@dataclass(frozen=True)
class Topic:
    name: str
    kind: str  # type of its messages, as ROS 2 writes it
    count: int  # messages
    ros1: bool
    digest: str = ""  # of the definition, in ROS 1


@dataclass(frozen=True)
class Message:
    topic: str
    received: int  # nanoseconds
    data: bytes
    location: Location


class Container(Protocol):
    """One file."""

    topics: list[Topic]
    start: int  # nanoseconds: time of the first message

    def messages(self, topics: Collection[str], window: Window) -> Iterator[Message]: ...


def open_container(path: Path, message_compression: str = "") -> Container:
    """Opens a container with any name by its first bytes."""
    try:
        with open_file(path) as file:
            magic = file.read(16)
    except OSError as error:
        raise CaptureError(f"{path} cannot be read ({error.strerror}); restore the file") from error
    if magic.startswith(b"#ROSBAG V"):
        return Ros1File(path)
    if magic.startswith(b"\x89MCAP"):
        return McapFile(path, message_compression)
    if magic.startswith(b"SQLite format 3"):
        return TableFile(path, message_compression)
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        raise CaptureError(
            f"{path} is compressed as a whole; decompress it by zstd -d, and give the file that appears as data.root"
        )
    raise CaptureError(f"{path} is no ROS bag (its first bytes are none of rosbag 2.0, MCAP and SQLite); {COPY}")


# ---- ROS 1


class Ros1File:
    """A bag of ROS 1, version 2.0."""

    def __init__(self, path: Path) -> None:
        from rosbags.rosbag1 import Reader

        class Once(Reader):
            """Refuses an index that names a chunk twice, as that could claim any number of messages."""

            def read_chunk_info(self) -> Any:
                info = super().read_chunk_info()
                if info.pos in self.chunks:
                    raise ValueError("its index names a chunk twice")
                self.chunks[info.pos] = None  # type: ignore[assignment]
                return info

        self.path = path
        remedy = "rebuild its index by rosbag reindex, or copy the bag again"
        with damaged(str(path), remedy), Once(path) as reader:
            self.topics = [Topic(c.topic, c.msgtype, c.msgcount, True, c.digest) for c in reader.connections]
            self.start = reader.start_time
            self._index = {c.id: (c.topic, reader.indexes[c.id]) for c in reader.connections}
            changed = os.stat(path).st_mtime_ns
            kinds = {pos: _kind(chunk.decompressor) for pos, chunk in reader.chunks.items()}
            self._chunks = {
                pos: Chunk(path, changed, c.datapos, c.datasize, kinds[pos]) for pos, c in reader.chunks.items()
            }

    def messages(self, topics: Collection[str], window: Window) -> Iterator[Message]:
        rows = [
            (entry.chunk_pos, entry.offset, entry.time, topic)
            for topic, entries in self._index.values() if topic in topics
            for entry in entries if window[0] <= entry.time < window[1]
        ]  # fmt: skip
        for position, offset, time, topic in sorted(rows):
            chunk = self._chunks[position]
            with damaged(f"{self.path}: a message of {topic}", COPY):
                start, size = _ros1_data(chunk.data(), offset)
                check_size(self.path, size)
                place = InChunk(chunk, start, size)
            yield Message(topic, time, place.read(), place)


def _kind(decompressor: Any) -> str:
    """The name of the compression that the library chose."""
    from rosbags.rosbag1.reader import decompressors

    return next(name for name, function in decompressors.items() if function is decompressor)


def _ros1_data(data: bytes, offset: int) -> tuple[int, int]:  # where the message's data begin, and their bytes
    """Data of a message; records of connections may stand before it."""
    while True:
        (header,) = struct.unpack_from("<I", data, offset)
        operation = _operation(data[offset + 4 : offset + 4 + header])
        (size,) = struct.unpack_from("<I", data, offset + 4 + header)
        start = offset + 8 + header
        if operation != _CONNECTION:
            break
        offset = start + size
    if operation != _MESSAGE or start + size > len(data):
        raise ValueError("its index points to no message")
    return start, size


def _operation(header: bytes) -> int:
    at = 0
    while at + 4 <= len(header):
        (size,) = struct.unpack_from("<I", header, at)
        field = header[at + 4 : at + 4 + size]
        if field.startswith(b"op="):
            return field[3]
        at += 4 + size
    return -1


# ---- MCAP


class McapFile:
    """A file of the storage MCAP."""

    def __init__(self, path: Path, message_compression: str) -> None:
        from rosbags.rosbag2.storage_mcap import McapReader

        self.path, self._message_compression = path, message_compression
        remedy = "rebuild its index by mcap recover, or copy the bag again"
        _check_profile(path)
        with damaged(str(path), remedy):
            reader = McapReader(path)
            reader.open()
            try:
                self.topics = [Topic(c.topic, c.msgtype, c.msgcount, False) for c in reader.connections]
                self._names = {c.id: c.topic for c in reader.connections}
                self._encodings = {c.topic: c.ext.serialization_format for c in reader.connections}  # type: ignore[union-attr]
                self._changed = os.stat(path).st_mtime_ns
                self.start, self._chunks = reader.metadata.start_time, list(reader.chunks)
                count = reader.metadata.message_count
            finally:
                reader.close()
        if count and not self._chunks:
            raise CaptureError(f"{path} has no index of its messages; {remedy}")

    def messages(self, topics: Collection[str], window: Window) -> Iterator[Message]:
        for topic in topics:
            if self._encodings.get(topic, "cdr") != "cdr":
                raise CaptureError(
                    f"{self.path}: {topic} is encoded as '{self._encodings[topic]}', but ROS 2 writes cdr; leave the topic out"
                )
        for info in sorted(self._chunks, key=lambda c: c.message_start_time):
            if info.message_end_time >= window[0] and info.message_start_time < window[1]:
                yield from self._of_chunk(info, topics, window)

    def _of_chunk(self, info: Any, topics: Collection[str], window: Window) -> Iterator[Message]:
        with damaged(str(self.path), COPY):
            chunk = self._chunk(info)
            rows = list(_mcap_messages(chunk.data()))
        for channel, time, start, size in rows:
            topic = self._names.get(channel, "")
            if topic in topics and window[0] <= time < window[1]:
                check_size(self.path, size)
                place = InChunk(chunk, start, size, self._message_compression)
                yield Message(topic, time, place.read(), place)

    def _chunk(self, info: Any) -> Chunk:
        with open_file(self.path) as file:
            file.seek(info.chunk_start_offset + 9 + 24)  # after the record's kind and length, two times and a size
            (crc,) = struct.unpack("<I", file.read(4))
        start = info.chunk_start_offset + 9 + 40 + len(info.compression)
        return Chunk(self.path, self._changed, start, info.compressed_size, info.compression, crc)


def _check_profile(path: Path) -> None:
    """Refuses messages of another system than ROS; the first record of MCAP names it."""
    with open_file(path) as file:
        head = file.read(21 + 64)  # magic, kind and length of the record, length of the text, and the text
    (length,) = struct.unpack("<I", head[17:21].ljust(4, b"\0"))
    profile = head[21 : 21 + min(length, 64)].decode(errors="replace")
    if len(head) > 21 and profile != "ros2":
        raise CaptureError(
            f"{path} is of the profile '{short(profile)}', but MCAP is read of the profile 'ros2' alone; give the bag that it was made "
            "from, or record it by ros2 bag"
        )


def _mcap_messages(data: bytes) -> Iterator[tuple[int, int, int, int]]:  # channel, time, where its data begin, bytes
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from("<BQ", data, at)
        start, at = at + 9, at + 9 + size
        if at > len(data):
            raise ValueError("a record is longer than its chunk")
        if kind == _MCAP_MESSAGE:
            channel, _, time = struct.unpack_from("<HIQ", data, start)
            yield channel, time, start + _MCAP_HEADER, size - _MCAP_HEADER


# ---- sqlite3


class TableFile:
    """A file of the storage sqlite3."""

    def __init__(self, path: Path, message_compression: str) -> None:
        self.path, self._message_compression = path, message_compression
        journal = path.with_name(f"{path.name}-wal")
        if journal.exists() and journal.stat().st_size:
            raise CaptureError(
                f"{path} was not closed: {journal.name} holds a part of it; run sqlite3 {path} 'PRAGMA wal_checkpoint(TRUNCATE)'"
            )
        with damaged(str(path), COPY), closing(database(path)) as connection:
            missing = {"topics", "messages"} - set(table_names(connection))
            if missing:
                raise CaptureError(f"{path} has no table '{min(missing)}', so it is no ROS 2 bag; {COPY}")
            rows = connection.execute(
                "SELECT t.id, t.name, t.type, t.serialization_format, count(m.id) "
                "FROM topics t LEFT JOIN messages m ON m.topic_id = t.id GROUP BY t.id"
            ).fetchall()
            (first,) = connection.execute("SELECT min(timestamp) FROM messages").fetchone()
        self.start = int(first or 0)
        self._ids = {int(number): str(name) for number, name, *_ in rows}
        self.topics = [Topic(str(name), str(kind), int(count), False) for _, name, kind, _, count in rows]

    def messages(self, topics: Collection[str], window: Window) -> Iterator[Message]:
        ids = [number for number, name in self._ids.items() if name in topics]
        marks = ",".join("?" * len(ids))
        with damaged(str(self.path), COPY), closing(database(self.path)) as connection:
            query = (
                f"SELECT id, topic_id, timestamp, length(data), data FROM messages WHERE topic_id IN ({marks}) "
                "AND timestamp >= ? AND timestamp < ?"
            )
            for row, number, time, size, data in connection.execute(query, (*ids, *window)):
                check_size(self.path, size)
                whole = decompressed(bytes(data), self._message_compression, MAX_MESSAGE, str(self.path))
                yield Message(self._ids[number], int(time), whole, InTable(self.path, row, self._message_compression))
