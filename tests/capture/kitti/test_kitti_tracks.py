# SPDX-License-Identifier: Apache-2.0
"""Label files and tracklets that cannot be used, or only in part."""

from pathlib import Path

import pytest
from broken_kitti import BIN, PNG, Damage, check, load, put, refusals
from kitti_drive import DRIVE, label, tracklet, tracklet_file, write_drive
from mutations import bounded_memory

from nurec_lite.capture.types import CaptureError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_drive(tmp_path, steps=12)


FIRST = label(1, -5, 1.5, 9.75, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 Car 3\n", r"labels\.txt line 1 is not a KITTI tracking label of 17 fields.*; give the file label_02/NNNN\.txt"),
        (FIRST + label(-1, 0, 0, 9, 0), r"labels\.txt line 2 .* \('-1' is no number from 0 .*\); give the file"),
        (label(10**12, 0, 0, 9, 0), r"labels\.txt line 1 .* is no number from 0 to .*; give the file"),
        (FIRST.replace("1.8", "nan"), r"labels\.txt line 1 .* \(not only finite numbers: .*; give the file"),
        (FIRST.replace("1.8", "0"), r"labels\.txt line 1 .* \(a size is not 0\.001 to 100 m\); give the file"),
        (FIRST.replace("1.8", "-1.8"), r"labels\.txt line 1 .* \(a size is not 0\.001 to 100 m\); give the file"),
        (label(1, 1e30, 0, 9, 0), r"labels\.txt line 1 .* \(a box is farther than 1000 m .*\); give the file"),
        (label(1, 0, 0, 9, 1e9), r"labels\.txt line 1 .* turned by more than 2 pi\); give the file"),
        (FIRST + FIRST, r"labels\.txt has track 3 twice in frame 1; remove one of the boxes"),
        (label(9, 0, 0, 9, 0), r"labels\.txt: track 3 refers to no frame of the drive, .* frames 0 to 2; use the tracks of"),
        (FIRST + label(999, 0, 0, 9, 0, track=7), r"labels\.txt: track 7 refers to no frame of the drive, .*; use the tracks"),
        ("", r"labels\.txt is empty; give the file"),
    ],
)  # fmt: skip
def test_labels(root: Path, text: str, message: str) -> None:
    (root / "labels.txt").write_text(text)
    with pytest.raises(CaptureError, match=message):
        load(root, tracks_file=root / "labels.txt")


def test_labels_may_be_of_a_drive_before_it_was_cut(root: Path) -> None:
    """Tracks after the end are left out, and so are those outside the chosen frames; one in a hole of the drive is an error."""
    path = root / "labels.txt"
    path.write_text(
        FIRST + label(0, 0, 0, 9, 0, track=5) + "".join(label(i, 0, 0, 9, 0, track=7) for i in range(200, 290))
    )
    assert load(root, tracks_file=path).tracks.ids == ("3", "5")
    assert load(root, tracks_file=path, frames=range(0, 1)).tracks.ids == ("5",)
    for file in (BIN, PNG, "image_03/data/0000000000.png"):
        (root / DRIVE / file.replace("0.", "1.")).unlink()
    with pytest.raises(CaptureError, match=r"labels\.txt: track 3 refers to no frame of the drive, .*; use the tracks"):
        load(root, tracks_file=path)


XML = "tracklet_labels.xml"
GOOD = tracklet("10 5 -1 0", first_frame=0)
ENTITIES = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10 if i else "lol"}">' for i in range(10))


@refusals(
    (put(XML, "<boost>"), r"tracklet_labels\.xml is not a KITTI tracklet file \(no element found.*\); download it again or"),
    (put(XML, ""), r"tracklet_labels\.xml is empty; download it again or remove it"),
    (put(XML, b"<a>\xff</a>"), r"tracklet_labels\.xml is no text in UTF-8; download it again or remove it"),
    (lambda root: (root / DRIVE / XML).mkdir(), r"tracklet_labels\.xml is no file; download it again or remove it"),
    (put(XML, "<boost></boost>"), r"tracklet_labels\.xml is not .* \(it lacks the element 'tracklets'\); download it again"),
    (put(XML, f"<!DOCTYPE a [{ENTITIES}]><a>&a9;</a>"), r"tracklet_labels\.xml is not .* \(it defines .*\); download"),
    (put(XML, tracklet_file(GOOD).replace("<count>1", "<count>2", 1)), r"tracklet_labels\.xml .* counts 2 .* holds 1\); down"),
    (put(XML, tracklet_file(GOOD).replace("<count>1", "<count>99999999999")), r"tracklet_labels\.xml .* is no number .*; down"),
    (put(XML, tracklet_file(GOOD.replace("<tx>10", "<tx>nan"))), r"tracklet_labels\.xml .* \(not only finite numbers: 'nan'\); download"),
    (put(XML, tracklet_file(GOOD.replace("<tx>10", "<tx>"))), r"tracklet_labels\.xml .* \('tx' is no number\); download it again"),
    (put(XML, tracklet_file(GOOD.replace("<h>1.5", "<h>0"))), r"tracklet_labels\.xml .* \(a size is not .*\); download it again"),
    (put(XML, tracklet_file(GOOD.replace("frame>0", "frame>-1"))), r"tracklet_labels\.xml .* \('-1' is no number from .*; down"),
    (put(XML, tracklet_file(GOOD.replace("frame>0", "frame>3"))), r"tracklet_labels\.xml: track 0 refers to no frame .*; use"),
    (put(XML, tracklet_file(GOOD.replace("<h>1.5</h>", ""))), r"tracklet_labels\.xml .* element has 'h' 0 times\); download"),
    (put(XML, "<a>" * 200_000), r"tracklet_labels\.xml is not a KITTI tracklet file \(no element found.*\); download it again"),
)  # fmt: skip
def test_tracklets(root: Path, damage: Damage, message: str) -> None:
    with bounded_memory(300 << 20):
        check(root, damage, message)
