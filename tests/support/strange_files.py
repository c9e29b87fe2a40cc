# SPDX-License-Identifier: Apache-2.0
"""A folder full of files that nurec_lite did not write, and the contents of a folder, byte for byte."""

import os
from pathlib import Path

STRANGE = {
    "pictures/2019/holiday.jpg": b"x", "pictures/IMG_0001.png": b"photo", "config.yaml": b"mine: 1\n", "report.html": b"my report",
    "frames.csv": b"a,b\n", "metrics.json": b"{}", "history.csv": b"of my run", "timing.csv": b"t", "broken.json": b"[]",
    "tensorboard/events.out.tfevents.1.mine": b"curves", ".bashrc.20241126": b"alias", ".python_history-3.99999": b"import os",
    ".checkpoint.pt.4194305": b"half", ".lock": b"of another program", ".drive.pack.x1y2z3w4": b"half a pack", "scene.ply": b"ply\nmine",
    "drive.pack": b"PK\3\4 a zip of mine", "summary.json": b"{}", "nsys.nsys-rep": b"r", "window-torch.json": b"{}", "a\x1b[2Jb": b"esc",
}  # fmt: skip


def fill(folder: Path, names: dict[str, bytes] = STRANGE) -> dict[str, bytes]:
    for name, data in names.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    """Files by their bytes, links by where they lead, folders as nothing; links are not followed."""
    found = {}
    for top, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(top) / name
            what = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
            found[str(path.relative_to(folder))] = what
    return found
