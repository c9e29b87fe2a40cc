# SPDX-License-Identifier: Apache-2.0
"""A mounting that is wrong in the files is named with its key, and nothing that follows from it is reported beside it."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest
import torch
from tiny_capture import ROOT
from torch import Tensor

from nurec_lite.capture.checks import boxes, cameras, rays
from nurec_lite.capture.checks.alignment import Fit
from nurec_lite.capture.checks.found import Found, verdicts_of
from nurec_lite.capture.checks.guesses import FILES, Guess, as_said, missing_places, mountings
from nurec_lite.capture.checks.other_files import as_others, without_what_follows
from nurec_lite.capture.checks.run import verdicts
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.kitti.calibration import read_calibration
from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.types import Capture, Labels, Mounting
from nurec_lite.geometry.se3 import invert
from nurec_lite.geometry.tracks import Tracks

DATE, VELO = "2011_09_26", "calib_velo_to_cam.txt"
DOUBTS = (Level.CERTAIN, Level.LIKELY, Level.FAILED)


@lru_cache(maxsize=1)
def street() -> Capture:
    return read_pack(ROOT / "data/street.pack")


def the_only_doubt(capture: Capture) -> Verdict:
    (verdict,) = (v for v in verdicts(Sample(capture)) if v.level in DOUBTS)
    return verdict


# ---- a pack


def without_place(T: Tensor) -> Tensor:
    placed = T.clone()
    placed[:3, 3] = 0
    return placed


def at_the_opposite_place(T: Tensor) -> Tensor:
    placed = T.clone()
    placed[:3, 3] *= -1
    return placed


def with_lidars(change: Callable[[Tensor], Tensor]) -> Capture:
    return replace(street(), lidars=tuple(replace(x, T_rig_lidar=change(x.T_rig_lidar)) for x in street().lidars))


def with_cameras(change: Callable[[Tensor], Tensor], names: tuple[str, ...]) -> Capture:
    cameras = (replace(c, T_rig_cam=change(c.T_rig_cam)) if c.name in names else c for c in street().cameras)
    return replace(street(), cameras=tuple(cameras))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "meaning", "remedy"),
    [
        (invert, "if T_rig_lidar of lidar is inverted, not", "invert it where the capture was made"),
        (without_place, "which is (0, 0, 0), is missing: lidar sits 1.9 m farther up, not", "give the place in T_rig_lidar of lidar"),
    ],
)  # fmt: skip
def test_a_lidar_s_mounting_is_named_beside_no_camera_and_no_box(
    change: Callable[[Tensor], Tensor], meaning: str, remedy: str
) -> None:
    verdict = the_only_doubt(with_lidars(change))
    assert verdict.level is Level.CERTAIN and meaning in verdict.sentence and verdict.remedy == remedy


@pytest.mark.slow
@pytest.mark.parametrize("names", [("camera_0",), ("camera_0", "camera_1")])
@pytest.mark.parametrize(
    ("change", "meaning"),
    [
        (without_place, "if its place in the mounting, which is (0, 0, 0), is missing (contrast"),
        (at_the_opposite_place, "if the translation has the opposite sign (contrast"),
    ],
)
def test_the_place_of_cameras_is_named(
    change: Callable[[Tensor], Tensor], meaning: str, names: tuple[str, ...]
) -> None:
    verdict = the_only_doubt(with_cameras(change, names))
    assert verdict.level is Level.CERTAIN and verdict.subject == ", ".join(names) and meaning in verdict.sentence


# ---- KITTI's files


def opposite(R: Tensor, T: Tensor) -> tuple[Tensor, Tensor]:
    return R, -T


def missing(R: Tensor, T: Tensor) -> tuple[Tensor, Tensor]:
    return R, 0 * T


def transposed(R: Tensor, T: Tensor) -> tuple[Tensor, Tensor]:
    return R.T, T


def in_centimetres(R: Tensor, T: Tensor) -> tuple[Tensor, Tensor]:
    return R, 100 * T


def copied(kitti_root: Path, folder: Path) -> Path:
    """Links to 20 frames of the drive and to its stamps, and copies of its calibration."""
    for path in (kitti_root / DATE).rglob("*"):
        copy = folder / path.relative_to(kitti_root)
        if path.is_file() and (path.parent.name != "data" or int(path.stem) < 20):
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes()) if path.name.startswith("calib") else copy.symlink_to(path)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "meaning"),
    [
        (opposite, f"T of {VELO} has the opposite sign"),
        (missing, f"T of {VELO}, which is (0, 0, 0), is missing"),
        (transposed, f"R of {VELO} is transposed"),
        (in_centimetres, f"T of {VELO} is in centimetres"),
    ],
)
def test_the_file_and_key_of_kitti_are_named(
    change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], meaning: str, kitti_root: Path, tmp_path: Path
) -> None:
    root = copied(kitti_root, tmp_path)
    path = root / DATE / VELO
    R, T = (torch.tensor(read_calibration(path)[key], dtype=torch.float64) for key in "RT")
    rows = zip("RT", change(R.view(3, 3), T), strict=True)
    path.write_text("".join(f"{key}: {' '.join(map(str, row.flatten().tolist()))}\n" for key, row in rows))
    verdict = the_only_doubt(read_kitti_raw(root, downscale=6, frames=range(20)))
    assert verdict.subject == "image_02, image_03" and f"if {meaning} (contrast" in verdict.sentence


# ---- words


def found(name: str, level: Level, kind: str = FILES) -> Found:
    camera = replace(street().cameras[0], name=name)
    figures = {"said": 0.0, "guessed": 0.2}
    said = Fit(as_said(camera), torch.zeros(0), 0.0, 0)
    return Found(
        camera, level, said, "{cameras}: T is missing", None, figures, Guess("T is missing", camera, kind=kind)
    )


def test_a_reading_is_as_sure_for_all_cameras() -> None:
    (verdict,) = verdicts_of("cameras", [found("a", Level.LIKELY), found("b", Level.CERTAIN)])
    assert verdict.level is Level.CERTAIN and verdict.sentence == "a and b: T is missing"
    assert len(verdicts_of("cameras", [found("a", Level.LIKELY, ""), found("b", Level.CERTAIN, "")])) == 2


def test_only_what_follows_from_a_reading_is_left_out() -> None:
    of_files, labels = Mounting("T is missing", "give T", {}, of_labels=True), Labels("", "", Tracks.empty)
    capture = replace(street(), mountings=(of_files,), labels=(labels,))
    camera = Verdict(cameras.CHECK, "a", Level.CERTAIN, "Edges agree if T is missing.")
    box, ray = Verdict(boxes.NAME, "b", Level.LIKELY, "Empty."), Verdict(rays.NAME, "c", Level.LIKELY, "Odd.")
    assert without_what_follows(capture, cameras.CHECK, [camera, box, ray]) == [camera, ray]
    assert without_what_follows(replace(capture, labels=()), cameras.CHECK, [camera, box]) == [camera, box]
    turned = replace(capture, mountings=(replace(of_files, of_lidar=True),))
    assert without_what_follows(turned, cameras.CHECK, [ray, camera, box]) == [camera]
    assert without_what_follows(capture, cameras.CHECK, [box, ray]) is None
    assert without_what_follows(capture, cameras.CHECK, []) is None


def test_little_shows_no_reading() -> None:
    camera = street().cameras[0]
    assert not list(mountings(street(), camera)) and not list(missing_places(street(), camera))
    right = found("camera_0", Level.RIGHT)
    assert as_others(Sample(street()), right, [right]) is right
