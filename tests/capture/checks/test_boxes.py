# SPDX-License-Identifier: Apache-2.0
"""Boxes that miss the lidar's returns, each with the right reading, and impossible tracks. Right boxes give no verdict."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

import pytest
import torch
from pandaset_drive import needs_pandaset, read_pandaset

from nurec_lite.capture.checks.box_guesses import _mirrored, of_another_frame, raised, turned
from nurec_lite.capture.checks.box_rays import returned_rays
from nurec_lite.capture.checks.boxes import NAME, check_boxes
from nurec_lite.capture.checks.impossible import impossible_tracks
from nurec_lite.capture.checks.moving_boxes import fit_late, moving_elsewhere
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.capture.types import Capture
from nurec_lite.cli.command import composed
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.readers import open_capture


@lru_cache(maxsize=1)
def street() -> Capture:
    capture = open_capture(composed("train", []).data)
    return replace(capture, sweeps=tuple(replace(f, load=lru_cache(f.load)) for f in capture.sweeps))


def doubts(capture: Capture) -> list[Verdict]:
    return [verdict for verdict in check_boxes(Sample(capture)) if verdict.level is not Level.RIGHT]


def with_tracks(**changes: object) -> Capture:
    return replace(street(), tracks=replace(street().tracks, **changes))  # type: ignore[arg-type]


def test_the_street_is_right() -> None:
    (verdict,) = check_boxes(Sample(street()))
    assert verdict.level is Level.RIGHT and verdict.figures["share"] > 0.6 and verdict.figures["returns"] > 20


@pytest.mark.slow
@needs_pandaset
def test_pandaset_is_right() -> None:
    assert doubts(read_pandaset()) == []


def one_frame(n: int) -> Callable[[Tracks], Tracks]:
    return lambda tracks: of_another_frame(tracks, trajectory_of(street()), 0.1 * n)


WRONG: dict[str, tuple[Callable[[Tracks], Tracks], str]] = {
    "width first": (lambda t: replace(t, sizes=t.sizes[:, [1, 0, 2]]), "the sizes are width, length, height"),
    "height first": (lambda t: replace(t, sizes=t.sizes[:, [2, 1, 0]]), "the sizes are height, width, length"),
    "turned": (lambda t: turned(t, torch.pi / 2), "turned by 90 degrees|width, length, height"),
    "at the bottom": (lambda t: raised(t, -0.5), "their places are the middle of the bottom"),
    "too high": (lambda t: raised(t, 0.5), "half of the height too high"),
    "mirrored": (
        lambda t: _mirrored(t, trajectory_of(street()), street().lidars[0].T_rig_lidar),
        "left and right are exchanged",
    ),
    "a frame late": (one_frame(1), "the labels are 1 frame late"),
    "a frame early": (one_frame(-1), "the labels are 1 frame early"),
    "two frames late": (one_frame(2), "the labels are 2 frames late"),
}


@pytest.mark.parametrize("case", WRONG)
def test_the_reading_that_fits_is_named(case: str) -> None:
    change, meaning = WRONG[case]
    (verdict,) = doubts(replace(street(), tracks=change(street().tracks)))
    assert verdict.check == NAME and verdict.level in (Level.CERTAIN, Level.LIKELY)
    assert any(part in verdict.sentence for part in meaning.split("|")) and verdict.remedy is not None


def test_boxes_somewhere_else_are_certain() -> None:
    shift = torch.tensor([0.0, 3.0, 1.5], dtype=torch.float64)
    (verdict,) = [v for v in doubts(with_tracks(translations=street().tracks.translations + shift)) if v.check == NAME]
    assert verdict.level is Level.CERTAIN and "do not lie where the lidar sees objects" in verdict.sentence
    assert verdict.remedy == "give the tracks of this drive, in its axes and at its times"


def test_few_boxes_tell_nothing() -> None:
    tracks = street().tracks
    rows = slice(tracks.offsets[0], tracks.offsets[1])
    one = Tracks(
        tracks.ids[:1], tracks.classes[:1], tracks.sizes[:1], tracks.offsets[:2], tracks.times[rows],
        tracks.translations[rows], tracks.quaternions[rows], tracks.margin,
    )  # fmt: skip
    (verdict,) = check_boxes(Sample(replace(street(), tracks=one)))
    assert verdict.level is Level.UNKNOWN


def test_boxes_are_not_blamed_where_poses_are() -> None:
    sample = Sample(replace(street(), tracks=WRONG["mirrored"][0](street().tracks)))
    sample.found.append(Verdict("poses and sweeps", "street", Level.CERTAIN, "The poses are inverted."))
    (verdict,) = check_boxes(sample)
    assert verdict.level is Level.UNKNOWN


# ---- tracks that cannot be


def impossible(capture: Capture) -> list[str]:
    return [v.sentence for v in check_boxes(Sample(capture)) if v.check != NAME and v.level is Level.CERTAIN]


def test_an_object_as_fast_as_light_is_reported() -> None:
    places = street().tracks.translations.clone()
    places[1] += torch.tensor([2.8e7, 0, 0], dtype=torch.float64)
    (sentence,) = impossible(with_tracks(translations=places))
    assert sentence.startswith("Track ") and "moves 2.8e+07 m within 0.1 s" in sentence


def test_times_of_tracks_in_milliseconds_are_reported() -> None:
    (found,) = [v for v in doubts(with_tracks(times=1000 * street().tracks.times)) if "Tracks last" in v.sentence]
    assert found.level is Level.CERTAIN and found.remedy is not None
    assert found.remedy.startswith("times of the tracks are in milliseconds: divide them by 1000")


def test_a_drive_without_tracks_has_no_impossible_ones() -> None:
    assert not list(impossible_tracks(replace(street(), tracks=Tracks.empty())))


def test_a_box_of_999_metres_is_reported() -> None:
    sizes = street().tracks.sizes.clone()
    sizes[2, 0] = 999
    (sentence,) = impossible(with_tracks(sizes=sizes))
    assert "is 999 m long" in sentence


def test_an_object_around_the_vehicle_is_reported() -> None:
    path, tracks = trajectory_of(street()), street().tracks
    own = torch.stack([path.at(float(t))[:3, 3] for t in tracks.times[: tracks.offsets[1]]])
    places = torch.cat([own + torch.tensor([0.0, 0.0, 1.0]), tracks.translations[tracks.offsets[1] :]])
    sizes = tracks.sizes.clone()
    sizes[0] = torch.tensor([5.0, 2.5, 4.0])
    (sentence,) = impossible(with_tracks(translations=places, sizes=sizes))
    assert "lies around a sensor of the vehicle" in sentence


# ---- KITTI's label files


def of_kitti(root: Path, path: Path, **keys: object) -> list[Verdict]:
    poses = root / "extra" / "poses_velo.txt"
    return doubts(read_kitti_raw(root, downscale=6, poses_file=poses, tracks_file=path, **keys))  # type: ignore[arg-type]


def changed(root: Path, folder: Path, change: Callable[[list[str]], object]) -> Path:
    """The drive's label file with altered fields."""
    rows = [line.split() for line in (root / "extra" / "label_02_0001.txt").read_text().splitlines()]
    for row in rows:
        change(row)
    (folder / "labels.txt").write_text("".join(" ".join(row) + "\n" for row in rows))
    return folder / "labels.txt"


@pytest.mark.slow
def test_the_labels_of_kitti_are_right(kitti_root: Path) -> None:
    assert of_kitti(kitti_root, kitti_root / "extra" / "label_02_0001.txt") == []


def sizes_turned_round(row: list[str]) -> None:
    row[10:13] = row[12:9:-1]


def frames_from_1(row: list[str]) -> None:
    row[0] = str(int(row[0]) + 1)


def x_negated(row: list[str]) -> None:
    row[13] = str(-float(row[13]))


def in_lidar(row: list[str]) -> None:
    x, y, z = map(float, row[13:16])
    row[13:16] = [str(z + 0.27), str(-x), str(-y - 0.08)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "sentence", "remedy"),
    [
        (sizes_turned_round, "length, width, height", "give data.tracks.sizes=lwh"),
        (frames_from_1, "counts frames from 1", "give data.tracks.first_frame=1"),
        (in_lidar, "are in the lidar's axes", "write them in the axes of camera 0, as the tracking benchmark does"),
        (x_negated, "left and right are exchanged", "turn the sign of their places where the capture was made"),
    ],
)  # fmt: skip
def test_a_label_file_that_is_meant_otherwise(
    change: Callable[[list[str]], None], sentence: str, remedy: str, kitti_root: Path, tmp_path: Path
) -> None:
    (verdict,) = of_kitti(kitti_root, changed(kitti_root, tmp_path, change))
    assert verdict.level is Level.CERTAIN and sentence in verdict.sentence and verdict.remedy == remedy


@pytest.mark.slow
def test_the_keys_of_the_remedies_read_it_rightly(kitti_root: Path, tmp_path: Path) -> None:
    def both(row: list[str]) -> None:
        sizes_turned_round(row)
        frames_from_1(row)

    path = changed(kitti_root, tmp_path, both)
    assert of_kitti(kitti_root, path, tracks_sizes="lwh", tracks_first_frame=1) == []


@pytest.mark.parametrize(("factor", "sentence"), [(2.0, "the sizes are 2 times too large"), (0.5, "2 times too small")])
def test_sizes_of_another_scale_are_named(factor: float, sentence: str) -> None:
    tracks = street().tracks
    (verdict,) = check_boxes(Sample(replace(street(), tracks=replace(tracks, sizes=factor * tracks.sizes))))
    assert verdict.level is Level.CERTAIN and sentence in verdict.sentence


@pytest.mark.parametrize(("seconds", "way"), [(0.5, "late"), (-0.5, "early"), (1.0, "late")])
def test_times_of_tracks_that_are_off_are_named_by_those_that_move(seconds: float, way: str) -> None:
    """Boxes of parked cars stay where they are."""
    tracks = street().tracks
    (verdict,) = check_boxes(Sample(replace(street(), tracks=replace(tracks, times=tracks.times + seconds))))
    assert verdict.level is Level.LIKELY and f"if their times are {abs(seconds):.1f} s {way}." in verdict.sentence


@pytest.mark.parametrize(("seconds", "way"), [(0.05, "late"), (-0.05, "early")])
def test_times_of_tracks_that_are_off_by_half_a_sweep_are_named(seconds: float, way: str) -> None:
    capture = street()
    late = replace(capture.tracks, times=capture.tracks.times + seconds)
    (verdict,) = check_boxes(Sample(replace(capture, tracks=late)))
    assert verdict.level is Level.LIKELY and f"if their times are 0.05 s {way}." in verdict.sentence


def test_no_boxes_that_move_say_nothing() -> None:
    rays = returned_rays(Sample(street()))
    tracks = street().tracks
    assert moving_elsewhere(partial(fit_late, rays, tracks, []), []) is None
    assert moving_elsewhere(partial(fit_late, [], tracks, [0, 1]), [0, 1]) is None
