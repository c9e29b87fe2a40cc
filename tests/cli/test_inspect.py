# SPDX-License-Identifier: Apache-2.0
"""inspect, as a user meets it: a table on the terminal, two files, and an exit status that scripts can use. And pack's verdicts."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from html_page import assert_whole
from odd_captures import without_lidar, without_tracks
from pack_parts import rewrite
from shell import Shell, assert_mendable
from tiny_capture import tiny_capture

from nurec_lite.base.lock import locked
from nurec_lite.capture.checks import run
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.pack import write_pack


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> list[Level]:
    """Levels of the verdicts that the only check gives."""
    given: list[Level] = []

    def check(sample: Sample) -> Iterator[Verdict]:
        for level in given:
            yield Verdict("poses and sweeps", "lidar", level, f"It is {level.value}.", figures={"gap_m": float("nan")})

    monkeypatch.setattr(run, "CHECKS", {"poses and sweeps": check})
    return given


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_it_prints_a_verdict_a_line_and_leaves_two_files(
    shell: Shell, tiny_pack: Path, tmp_path: Path, levels: list[Level]
) -> None:
    levels += [Level.RIGHT, Level.LIKELY]
    ended = shell("inspect", "data=pack", f"data.root={tiny_pack}", f"out={tmp_path / 'look'}")
    assert ended.code == 0 and ended.error == ""
    rows = [line for line in ended.out.splitlines() if "poses and sweeps" in line]
    assert rows == [
        "likely wrong  poses and sweeps  lidar  It is likely wrong.",
        "right         poses and sweeps  lidar  It is right.",
    ]
    assert names(tmp_path / "look") == [".nurec_lite", "inspect.html", "verdicts.json"]
    assert_whole((tmp_path / "look/inspect.html").read_text())
    stored = json.loads((tmp_path / "look/verdicts.json").read_text())
    assert [v["level"] for v in stored] == ["RIGHT", "LIKELY"] and stored[0]["figures"] == {"gap_m": None}


def test_the_exit_status_is_2_where_the_drive_is_wrong_after_the_page_is_written(
    shell: Shell, tiny_pack: Path, tmp_path: Path, levels: list[Level]
) -> None:
    levels += [Level.RIGHT, Level.CERTAIN]
    given = ["inspect", "data=pack", f"data.root={tiny_pack}", f"out={tmp_path / 'look'}"]
    assert_mendable(shell(*given), r"It is wrong \(1 wrong, 1 right; pictures in .*inspect\.html; data\.trust=true")
    assert names(tmp_path / "look") == [".nurec_lite", "inspect.html", "verdicts.json"]
    assert shell(*given, "data.trust=true").code == 0


@pytest.mark.parametrize("level", [Level.LIKELY, Level.UNKNOWN, Level.FAILED])
def test_whatever_is_not_certain_leaves_the_exit_status(
    level: Level, shell: Shell, tmp_path: Path, levels: list[Level]
) -> None:
    levels.append(level)
    pack = tmp_path / "one.pack"
    write_pack(without_tracks(without_lidar(tiny_capture())), pack, image_format="png")
    ended = shell("inspect", "data=pack", f"data.root={pack}", "data.frames=[0,1]", f"out={tmp_path / 'look'}")
    assert ended.code == 0 and level.value in ended.out


def test_an_image_that_cannot_be_read_is_a_verdict(
    shell: Shell, tiny_pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that reads all images meets it, and so does a picture."""

    def reads(sample: Sample) -> Iterator[Verdict]:
        for frame in sample.images_of("camera_0"):
            sample.image(frame)
        yield from ()

    monkeypatch.setattr(run, "CHECKS", {"images": reads})
    rewrite(tiny_pack, lambda name, data: b"no image" if name.startswith("images/camera_0/") else data)
    ended = shell("inspect", "data=pack", f"data.root={tiny_pack}", f"out={tmp_path / 'look'}")
    assert_mendable(ended, r"camera_0.*1 wrong; pictures in")
    parsed = assert_whole((tmp_path / "look/inspect.html").read_text())
    assert len(parsed.all("p", **{"class": "missing"})) == 4 and parsed.all("section", id="map")


def test_a_folder_with_a_run_is_refused(shell: Shell, tiny_pack: Path, trained: Path) -> None:
    before = names(trained.parent)
    ended = shell("inspect", "data=pack", f"data.root={tiny_pack}", f"out={trained.parent}")
    assert_mendable(ended, r"holds a run, and would lose its files; give another folder")
    assert names(trained.parent) == before


def test_a_folder_in_use_is_refused(shell: Shell, tiny_pack: Path, tmp_path: Path) -> None:
    with locked(tmp_path / "look"):
        ended = shell("inspect", "data=pack", f"data.root={tiny_pack}", f"out={tmp_path / 'look'}")
    assert_mendable(ended, r"look is in use by process")


def test_a_drive_that_is_not_there_leaves_nothing(shell: Shell, tmp_path: Path) -> None:
    ended = shell("inspect", "data=pack", f"data.root={tmp_path / 'no.pack'}", f"out={tmp_path / 'look'}")
    assert_mendable(ended, r"no\.pack does not exist")
    assert names(tmp_path) == []


def test_a_page_that_was_there_is_replaced(shell: Shell, tiny_pack: Path, tmp_path: Path, levels: list[Level]) -> None:
    given = ["inspect", "data=pack", f"data.root={tiny_pack}", f"out={tmp_path / 'look'}", "data.frames=[0,1]"]
    assert shell(*given).code == 0
    (tmp_path / "look/inspect.html").write_text("old")
    assert shell(*given).code == 0
    assert names(tmp_path / "look") == [".nurec_lite", "inspect.html", "verdicts.json"]
    assert (tmp_path / "look/inspect.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("show", [True, False])
def test_pack_prints_the_verdicts(
    show: bool, shell: Shell, tiny_pack: Path, tmp_path: Path, levels: list[Level]
) -> None:
    levels += [Level.RIGHT, Level.CERTAIN]
    arguments = ["show=true"] if show else [f"out={tmp_path / 'new.pack'}"]
    ended = shell("pack", "data=pack", f"data.root={tiny_pack}", *arguments)
    assert ended.code == 0 and (tmp_path / "new.pack").exists() is not show
    assert [line.split()[0] for line in ended.out.splitlines() if "poses and sweeps" in line] == ["wrong", "right"]
