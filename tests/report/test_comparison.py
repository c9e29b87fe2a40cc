# SPDX-License-Identifier: Apache-2.0
"""Several runs side by side: differences, all figures, the same frames, and a sentence for each missing part."""

import csv
import io
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from html_page import Page, assert_whole
from tiny_capture import tiny_capture, tiny_config, tiny_scene

from nurec_lite.base.errors import UserError
from nurec_lite.base.left_out import LeftOut
from nurec_lite.compare import with_runs, work
from nurec_lite.config import LossWeights, to_yaml
from nurec_lite.evaluation.drawing import Drawing
from nurec_lite.evaluation.measure import Evaluation, evaluate, held_out
from nurec_lite.evaluation.pictures import joined, panel, parted, save_png
from nurec_lite.evaluation.results import write_frames, write_metrics
from nurec_lite.report.comparison.page import page
from nurec_lite.report.comparison.pictures import frames_of
from nurec_lite.report.comparison.rows import csv_table, markdown, notes
from nurec_lite.report.comparison.runs import read_runs
from nurec_lite.report.document import document
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.history import History


def write(folder: Path, evaluation: Evaluation, tie: float, options: dict[str, dict[str, int]], psnr: float) -> None:
    config = replace(tiny_config(), out=str(folder), loss=LossWeights(tie=tie), opt=options)
    folder.mkdir()
    (folder / "config.yaml").write_text(to_yaml(config))
    rows = [{"step": k, "seconds": 0.5 * k, "gaussians": 500.0, "psnr": psnr + k} for k in range(1, 4)]
    (folder / "history.csv").write_text(History(rows=rows).to_csv())
    write_frames(folder / "frames.csv", evaluation.frames)
    with Drawing(folder / "pictures", LeftOut()) as drawing:
        drawing.begin(evaluation.images, evaluation.sweeps)
    own = {"psnr": psnr, "device": "cpu", "commit": "a", "psnr_per_actor": {"7": 20.25}, "findings": ["Few moments."]}
    write_metrics(folder / "metrics.json", evaluation.metrics | own)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, capture = tmp_path_factory.mktemp("runs"), tiny_capture()
    found = evaluate(reference_stages(), tiny_scene(), capture, held_out(capture))
    write(folder / "a", found, 0.01, {}, 20.0)
    write(folder / "b|ü =1", found, 0.02, {"workers": {"count": 2}}, 21.5)
    return folder


@pytest.fixture
def two(made: Path, tmp_path: Path) -> tuple[Path, Path]:
    return shutil.copytree(made / "a", tmp_path / "a"), shutil.copytree(made / "b|ü =1", tmp_path / "b|ü =1")


def read(*folders: Path) -> str:
    return markdown(read_runs([str(folder) for folder in folders]))


def test_settings_that_differ_and_all_figures(two: tuple[Path, Path]) -> None:
    lines = [[cell.strip() for cell in line.split(" | ")] for line in read(*two).splitlines()]
    rows = {line[0].removeprefix("| "): [cell.removesuffix("|").strip() for cell in line[1:]] for line in lines}
    assert rows["loss.tie"] == ["0.01", "0.02"]
    assert rows["opt.workers"] == ["–", "true"] and rows["opt.workers.count"] == ["–", "2"]
    assert rows["PSNR, dB"] == ["20.00", "21.50", "+1.50"]
    assert rows["PSNR of actor 7, dB"] == ["20.25", "20.25", "+0.00"] and rows["Device"] == ["cpu", "cpu", ""]
    assert "out" not in rows and "loss.scale" not in rows


def test_the_csv_has_a_line_a_run(two: tuple[Path, Path]) -> None:
    a, b = csv.DictReader(io.StringIO(csv_table(read_runs([str(folder) for folder in two]))))
    assert (a["run"], b["run"]) == ("a", "b|ü =1") and (a["psnr"], b["psnr"]) == ("20", "21.5")
    assert (a["opt.workers.count"], b["opt.workers.count"]) == ("", "2")


def test_the_page_shows_the_same_frames_and_the_curves(two: tuple[Path, Path]) -> None:
    text = page(read_runs([str(folder) for folder in two]))
    parsed = assert_whole(text)
    assert [a["id"] for a in parsed.all("section")] == ["settings", "figures", "images", "lidar", "training"]
    curves = [a for a in parsed.all("polyline") if "data-name" in a]
    assert [a["data-name"] for a in curves] == ["a", "b|ü =1"] * 2, "PSNR and number of Gaussians of both"
    shown = [a["alt"] or "" for a in parsed.all("img")]
    assert "camera_0_0004, captured" in shown and "camera_0_0004, b|ü =1" in shown
    assert len(shown) == 3 * len(parsed.all("article"))


def test_parts_that_are_missing_or_damaged_are_sentences(two: tuple[Path, Path]) -> None:
    a, b = two
    (a / "metrics.json").unlink()
    (a / "checkpoint.pt").touch()
    (a / "history.csv").write_text("step,psnr\n1,2\n")
    (b / "config.yaml").write_text("a: &a [1]\nb: *a\n")
    (b / "metrics.json").write_text('{"psnr": 1' + "0" * 400 + "}")
    (b / "pictures/camera_0_0004.png").write_bytes(b"no picture")
    runs = read_runs([str(a), str(b)])
    text, said = page(runs), "\n".join(notes(runs))
    assert "a holds no metrics.json: it has no figures; python -m nurec_lite.evaluate checkpoint=" in said
    assert "Fewer than two runs have settings." in markdown(runs) and "Fewer than two runs have settings." in text
    assert "history.csv of a cannot be read (it has no column `seconds`): it has no curves." in said
    assert "config.yaml of b|ü =1 cannot be read (it uses an alias (*name)): its settings are not compared." in said
    assert "metrics.json of b|ü =1 cannot be read (a number of 401 digits): it has no figures." in said
    assert "The picture camera_0_0004 of b|ü =1 cannot be read" in text and "No run has figures." in text


def test_a_frame_of_another_capture_is_not_shown_as_the_same(two: tuple[Path, Path]) -> None:
    a, b = two
    config = (b / "config.yaml").read_text()
    (b / "config.yaml").write_text(config.replace("downscale: 1", "downscale: 2"))
    other = np.full((40, 40, 3), 200, np.uint8)
    for path in (b / "pictures").glob("camera_0_0004.png"):
        save_png(path, joined([panel(other, "x")] * 3, axis=1))
    runs = read_runs([str(a), str(b)])
    found = frames_of(runs)
    assert "camera_0_0004" not in [frame.name for frame in found.images] and len(found.images) == 3
    assert found.notes == ["camera_0_0004 of b|ü =1 is another picture than that of a, and is left out."]
    assert "The runs measure different frames, so their figures do not compare (data.downscale differs)." in notes(runs)


def test_runs_are_two_or_more_different_folders(two: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(two[0])
    for named, said in (
        ([], "no run is named"),
        ([str(two[0])], "1 run is named"),
        ([str(two[0]), ""], "'' is no folder"),
        ([str(two[0]), str(tmp_path / "link")], "are one folder"),
        ([str(two[0]), str(tmp_path / "empty")], "holds neither metrics.json, config.yaml nor history.csv"),
        ([str(two[0]), "x" * 5000], "cannot be opened"),
        ([str(two[0]), "nowhere"], "'nowhere' is no folder"),
    ):
        with pytest.raises(UserError, match=said):
            read_runs(named)


def test_a_misspelt_key_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"did you mean csv=\.\.\.\?"):
        with_runs(["a", "b", "cvs=runs.csv"])
    with pytest.raises(UserError, match="'wrong=1' is no folder and no key; the keys are out, csv, runs"):
        with_runs(["a", "b", "wrong=1"])
    (tmp_path / "cvs=1").mkdir()
    assert with_runs([str(tmp_path / "cvs=1"), "b"])[0].startswith("runs=[")


def test_the_page_and_the_table_are_two_files(two: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("both.html")
    for name in ("both.html", "link"):
        with pytest.raises(UserError, match=r"out and csv are both .*both\.html; name two files"):
            work([str(two[0]), str(two[1]), f"out={tmp_path / 'both.html'}", f"csv={tmp_path / name}"])


def test_the_page_replaces_an_earlier_one_alone(two: tuple[Path, Path], tmp_path: Path) -> None:
    """A report, or a text about nurec_lite, is lost for good."""
    runs = [str(folder) for folder in two]
    for text in (document("report", "", ""), "# nurec_lite"):
        (tmp_path / "kept.html").write_text(text)
        with pytest.raises(UserError, match="was not written by nurec_lite; name another file by out=FILE"):
            work([*runs, f"out={tmp_path / 'kept.html'}"])
        assert (tmp_path / "kept.html").read_text() == text
    for _ in range(2):
        work([*runs, f"out={tmp_path / 'both.html'}"])


def test_names_are_as_long_as_they_must_be(made: Path, tmp_path: Path) -> None:
    same = [shutil.copytree(made / "a", tmp_path / parent / "run") for parent in ("x", "y")]
    assert [run.name for run in read_runs([str(folder) for folder in same])] == ["x/run", "y/run"]


def test_many_runs_are_lines_of_the_table(made: Path, tmp_path: Path) -> None:
    folders = [shutil.copytree(made / "a", tmp_path / str(k)) for k in range(7)]
    lines = read(*folders).splitlines()
    assert len(lines) == 9 and lines[0].startswith("| run | PSNR, dB |") and lines[8].startswith("| 6 ")


@pytest.mark.parametrize("axis", [0, 1])
def test_panels_are_cut_as_they_were_joined(axis: int) -> None:
    pictures = [np.random.default_rng(k).integers(0, 256, (20, 30, 3), np.uint8) for k in range(3)]
    cut = parted(joined([panel(picture, "t") for picture in pictures], axis), 3)
    assert cut is not None and all((a == b).all() for a, b in zip(cut, pictures, strict=True))
    assert parted(pictures[0], 3) is None


def test_strange_names_are_escaped(two: tuple[Path, Path]) -> None:
    strange = two[0].rename(two[0].with_name("<b>\x1b[31m\n|"))
    runs = read_runs([str(strange), str(two[1])])
    assert "\x1b" not in page(runs) and not Page(page(runs)).all("b")
    assert "\x1b" not in markdown(runs) and "\\x1b[31m\\n\\|" in markdown(runs)
