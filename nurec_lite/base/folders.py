# SPDX-License-Identifier: Apache-2.0
"""Folders of results. A marker in a folder says that nurec_lite made it, and lists the files that were written there.

Nothing else is ever replaced or removed: a folder that is not empty and has no marker is refused, and so is a file that is not on the
list. The marker is a text: a line with the program, the version of the list and the command, then one path a line. It appears with the
first file.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from nurec_lite.base.errors import FolderError, OutputError, unwritable
from nurec_lite.base.temporary import is_temporary, remove_leftovers
from nurec_lite.base.texts import printable

MARKER, LOCK = ".nurec_lite", ".nurec_lite.lock"
PICTURES = "pictures"  # a folder within
RUN = "train"  # no other command writes into a folder of this one
ANOTHER, ANOTHER_FILE = "give another folder by out=FOLDER", "name another file by out=FILE"
SUFFIXES = {".pack", ".html", ".csv", ".json", ".yaml", ".pt", ".ply", ".spz", ".usdz", ".npz", ".png", ".jpg", ".gif", ".apng", ".mp4",
            ".pdf", ".xlsx"}  # fmt: skip
_FIRST = re.compile(r"nurec_lite 1 ([a-z]+)")
_LARGEST = 1 << 24  # bytes of a marker
_HEAD = 4096  # first bytes of a file, which show its kind
_KINDS = {stat.S_IFREG: "a file", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket",
          stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link"}  # fmt: skip


@dataclass
class Results:
    """A folder of ours."""

    folder: Path
    verb: str  # that made it
    names: set[str] = field(default_factory=set)  # of the files that were written there, relative to the folder

    def record(self, path: Path) -> None:
        """Lists a file that is about to appear; OutputError if something stands there that is not on the list."""
        name = _relative(path, self.folder)
        for parent in list(PurePosixPath(name).parents)[:-1]:
            if os.path.islink(self.folder / parent):
                raise OutputError(f"{self.folder / parent} is a link; replace it by a folder, or {ANOTHER}")
        if os.path.lexists(path) and not self.lists(path):
            raise OutputError(f"{path} was not written by nurec_lite; move it away, or {ANOTHER}")
        self.add([name])

    def lists(self, path: Path) -> bool:
        name = _relative(path, self.folder)
        if name not in self.names:
            self.names |= _read(self.folder)[1]  # files that another process has written meanwhile
        return name in self.names

    def add(self, names: Iterable[str]) -> None:
        new = [name for name in names if name not in self.names]
        if new:
            _append(self.folder / MARKER, f"nurec_lite 1 {self.verb}\n", {*self.names, *new}, new)
            self.names.update(new)

    def paths(self, *names: str) -> list[Path]:
        """Returns the listed files and folders in it; a folder comes after its files."""
        found = [name for name in sorted(self.names) if name in names or name.partition("/")[0] in names]
        inner = {name.partition("/")[0] for name in found if "/" in name}
        return [self.folder / name for name in (*found, *sorted(inner))]


_taken: dict[str, Results] = {}  # folders that this process writes into, by their absolute path


def named(out: str) -> Path:
    """The folder that `out` names."""
    if not out.strip():
        raise FolderError("out is empty; name a folder, as in out=runs/mine")
    return Path(out)


def take(
    out: str | Path,
    verb: str,
    names: Collection[str] = (),  # that the command writes there; those of folders end in a slash
    known: Collection[str] | None = None,  # files of a folder that has no marker and yet is ours
) -> Results:
    """Returns the folder for a command's results before anything is written. FolderError if it is not ours and not empty."""
    folder = named(str(out))
    _check_kind(folder)
    by, listed = _read(folder)
    if by is None and known is not None:
        by, listed = RUN, set(known)
    if by is None:
        _check_empty(folder)
    elif by != verb and RUN in (by, verb):
        what = "a run, and would lose its files" if by == RUN else f"results of {by}"
        raise FolderError(f"{folder} holds {what}; {ANOTHER}")
    _check_names(folder, names, listed)
    for place in (folder, folder / PICTURES):
        remove_leftovers(place)
    found = _taken[os.path.abspath(folder)] = Results(folder, by or verb, listed)
    return found


def owner_of(path: Path) -> Results | None:
    """The folder of results that a file lies in, itself or in a folder within."""
    parent = os.path.dirname(os.path.abspath(path))
    for folder in (parent, os.path.dirname(parent)):
        if folder in _taken:
            return _taken[folder]
        verb, names = _read(Path(folder))
        if verb is not None:
            return Results(Path(folder), verb, names)
    return None


def check_file(
    path: Path,
    ours: Callable[[bytes], bool],  # whether the first bytes of a file say that we wrote it
    suffix: str = "",  # of such files; "": any
) -> None:
    """Raises OutputError if a file at `path` would replace a foreign one, or another kind of ours, such as the checkpoint of a run, or has
    the name of another kind. Leftovers next to it are removed."""
    if not path.name.strip():
        raise OutputError(f"'{path}' names no file; {ANOTHER_FILE}")
    remove_leftovers(path.parent)
    if os.path.lexists(path):
        _check_replaced(path, ours)
    elif suffix and path.suffix.lower() in SUFFIXES - {suffix}:
        raise OutputError(f"{path} is the name of another kind of file; end it in {suffix}")


def _check_replaced(path: Path, ours: Callable[[bytes], bool]) -> None:
    if not stat.S_ISREG((found := os.lstat(path)).st_mode):
        raise OutputError(f"{path} is {_kind(found)}, not a file; {ANOTHER_FILE}")
    owner, head = owner_of(path), _head(path)
    if head and not ours(head) and owner and owner.lists(path):
        raise OutputError(f"{path} is another result of {owner.verb}; {ANOTHER_FILE}")
    if head and not ours(head):
        raise OutputError(f"{path} was not written by nurec_lite; {ANOTHER_FILE}, or remove this one")


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD)
    except OSError as error:
        raise unwritable(path, error) from error


def discard(paths: Iterable[Path]) -> None:
    """Removes files that are on the list of their folder, and folders of such files that are empty. Everything else stays."""
    for path in paths:
        owner = owner_of(path)
        if owner is None or path.parent.is_symlink():
            continue
        if path.is_dir() and not path.is_symlink():
            if owner.paths(_relative(path, owner.folder)):
                with suppress(OSError):  # it holds foreign files
                    path.rmdir()
        elif owner.lists(path):
            path.unlink(missing_ok=True)


def make_way(path: Path) -> None:
    """Makes way for a file of results that another program writes: it joins the list, and an earlier one is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if owner := owner_of(path):
        owner.record(path)
        path.unlink(missing_ok=True)


# ---- the marker


def _read(folder: Path) -> tuple[str | None, set[str]]:  # the command; None without a marker of ours
    marker = folder / MARKER
    try:
        descriptor = os.open(marker, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None, set()
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST:
            return None, set()
        with open(descriptor, "rb", closefd=False) as file:
            lines = file.read(_LARGEST).decode(errors="surrogateescape").split("\n")
    finally:
        os.close(descriptor)
    first = _FIRST.fullmatch(lines[0])
    return (first[1], set(filter(_plain, lines[1:]))) if first else (None, set())


def _plain(name: str) -> bool:
    """Whether it is the path of a file within the folder; the list may come from anywhere."""
    parts = name.split("/")
    return bool(name) and len(parts) <= 2 and all(part not in ("", ".", "..") and "\0" not in part for part in parts)


def _append(marker: Path, first: str, names: Iterable[str], new: Iterable[str]) -> None:
    """A line a name, in one write, so that several processes can add to one marker."""
    try:
        descriptor = os.open(
            marker, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666
        )
        try:
            begins = os.fstat(descriptor).st_size == 0
            text = (first if begins else "") + "".join(f"{name}\n" for name in (sorted(names) if begins else new))
            _write_whole(descriptor, text.encode(errors="surrogateescape"))
        except OSError:
            if os.fstat(descriptor).st_size == 0:  # an empty one is not recognised as ours
                os.unlink(marker)
            raise
        finally:
            os.close(descriptor)
    except OSError as error:
        raise unwritable(marker, error) from error


def _write_whole(descriptor: int, data: bytes) -> None:
    """Writes all bytes; OSError, with the file as it was, where a full disk takes a part only."""
    size = os.fstat(descriptor).st_size
    if os.write(descriptor, data) < len(data):
        os.ftruncate(descriptor, size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _relative(path: Path, folder: Path) -> str:
    return PurePosixPath(os.path.relpath(os.path.abspath(path), os.path.abspath(folder))).as_posix()


# ---- present files


def _kind(found: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(found.st_mode), "something else")


def _check_kind(folder: Path) -> None:
    if not os.path.lexists(folder):
        return
    try:
        found = os.stat(folder)
    except OSError as error:
        raise FolderError(f"{folder} leads nowhere ({error.strerror}); {ANOTHER}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise unwritable(folder, NotADirectoryError(errno.ENOTDIR, f"it is {_kind(found)}, not a folder"))


def _check_empty(folder: Path) -> None:
    """Checks that the folder is empty, except for files of a process that has not written a result yet."""
    try:
        entries = sorted(entry.name for entry in os.scandir(folder)) if os.path.lexists(folder) else []
    except OSError as error:
        raise unwritable(folder, error) from error
    strange = [name for name in entries if name != LOCK and not is_temporary(name)]
    if strange:
        more = f" and {len(strange) - 1} more" if len(strange) > 1 else ""
        raise FolderError(
            f"{folder} holds {printable(strange[0])}{more}, and no {MARKER} that says nurec_lite made this folder; {ANOTHER}"
        )


def _check_names(folder: Path, names: Collection[str], listed: Collection[str]) -> None:
    for name in names:
        path = folder / name
        if not os.path.lexists(path):
            continue
        plain = path.is_dir() if name.endswith("/") else path.is_file() and name in listed
        if path.is_symlink() or not plain:
            raise FolderError(f"{path} was not written by nurec_lite; move it away, or {ANOTHER}")
