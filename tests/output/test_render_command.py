# SPDX-License-Identifier: Apache-2.0
"""The command render from the command line: where results lie, how ids are written, and how mistakes end."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image
from tiny_capture import ROOT, tiny_capture, tiny_state

import nurec_lite.cli.reconstruction
from nurec_lite.base.folders import MARKER
from nurec_lite.capture.pack import write_pack
from nurec_lite.cli.command import command
from nurec_lite.render import HELP, work
from nurec_lite.training.loop import save


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name not in ("config.yaml", MARKER))


Call = Callable[..., int]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs the command on a checkpoint of the tiny capture; returns its exit code."""
    save(tiny_state(), tmp_path / "run" / "checkpoint.pt")
    monkeypatch.setattr(nurec_lite.cli.reconstruction, "open_capture", lambda config, origin, tracks: tiny_capture())

    def run(*arguments: str) -> int:
        line = ["render", f"checkpoint={tmp_path / 'run' / 'checkpoint.pt'}", "device=cpu", *arguments]
        monkeypatch.setattr(sys, "argv", line)
        try:
            command("render", HELP, work)
        except SystemExit as error:
            return int(error.code or 0)
        return 0

    return run


def test_results_lie_beside_the_checkpoint_by_default(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert call("times=[0.45]", "sensors=[camera_0]") == 0
    assert names(tmp_path / "run" / "render-step0-times=0.45") == ["camera_0_t0000.450.png"]
    assert f"1 frame of camera_0 in {tmp_path / 'run' / 'render-step0-times=0.45'}: png" in capsys.readouterr().out
    assert call("times=[0.45]", "sensors=[camera_0]", f"out={tmp_path / 'else'}") == 0
    assert names(tmp_path / "else") == ["camera_0_t0000.450.png"]


def test_no_render_replaces_another(call: Call, tmp_path: Path) -> None:
    """Folders are named after the request; formats and sensors name the files."""
    for asked in (["shift=0,1,0"], ["shift=0,2,0"], ["remove=000"], ["remove=[001]", "shift=0,1,0"]):
        assert call("times=0.45", "sensors=camera_0", *asked) == 0
    assert call("times=0.45", "sensors=camera_1", "shift=[0,1,0]") == 0
    found = {p.name: names(p) for p in (tmp_path / "run").iterdir() if p.is_dir()}
    one = ["camera_0_t0000.450.png"]
    assert found == {
        "render-step0-shift=0,1,0-times=0.45": [*one, "camera_1_t0000.450.png"],
        "render-step0-shift=0,2,0-times=0.45": one,
        "render-step0-remove=000-times=0.45": one,
        "render-step0-remove=001-shift=0,1,0-times=0.45": one,
    }


def test_a_changed_file_of_edits_is_another_render(call: Call, tmp_path: Path) -> None:
    """A film of the second edits would lie beside images of the first."""
    file = tmp_path / "e.yaml"
    for text in ("remove: [000]", "remove: [001]", "remove: [000]"):
        file.write_text(text)
        assert call("times=0.45", "sensors=camera_0", f"edits={file}") == 0
    assert len([p for p in (tmp_path / "run").iterdir() if p.is_dir()]) == 2


def test_the_folder_of_a_run_is_refused(call: Call, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Its config.yaml would be replaced."""
    assert call("times=0.45", f"out={tmp_path / 'run'}") == 2
    said = capsys.readouterr().err
    assert f"error: {tmp_path / 'run'} holds a run, and would lose its files; give another folder by out=FOLDER" in said
    assert names(tmp_path / "run") == ["checkpoint.pt", "history.csv"]


def test_ids_and_moves_as_they_are_written_on_a_command_line(call: Call, tmp_path: Path) -> None:
    here = [f"out={tmp_path / 'else'}", "times=[0.45]", "sensors=[camera_0]"]
    assert call(*here, "remove=[000,001]", "move=[002:-1.5:1:0:90,003:0:1e-1:0:0]") == 0
    assert call(*here, "remove=actors", "shift=[0,1,0]") == 0


def test_lists_may_be_written_without_brackets(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "else"
    arguments = [
        "times=0.4,0.5",
        "sensors=camera_0",
        "shift=-1,0,.5",
        "remove=000,001",
        "move=002:-1:1:0:9,003:0:1:0:0",
    ]
    assert call(f"out={out}", *arguments) == 0
    assert names(out) == ["camera_0_t0000.400.png", "camera_0_t0000.500.png"]
    bracketed = [f"{k}=[{v}]" for k, v in (argument.split("=") for argument in arguments)]
    assert call(f"out={tmp_path / 'same'}", *bracketed) == 0
    for name in names(out):
        assert (out / name).read_bytes() == (tmp_path / "same" / name).read_bytes()


@pytest.mark.parametrize(
    "argument, sentence",
    [
        ("remove=[3]", "remove names '3', but the ids of the tracks are 000"),
        ("move=[3:0:0:0:0]", "move names '3'"),
        ("sensors=[x]", "sensors names 'x'"),
        ("times=99", "the drive spans"),
        ("times=1,0", "first and the last"),
        ("formats=png,bmp", "formats holds 'bmp'"),
        ("times=soon", "times"),
        ("shift=[a,b,c]", "shift"),
        ("formats=[bmp]", "formats holds 'bmp'"),
        ("subset=some", "subset is 'some'"),
        ("shfit=[0,1,0]", "did you mean shift"),
    ],
)
def test_mistakes_end_with_one_sentence_and_code_2(
    call: Call, capsys: pytest.CaptureFixture, tmp_path: Path, argument: str, sentence: str
) -> None:
    assert call(argument) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and said[0].startswith("error: ") and sentence in said[0]
    assert names(tmp_path / "run") == ["checkpoint.pt", "history.csv"]


def test_mp4_without_its_program_ends_with_one_sentence(
    call: Call, capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without() -> str:
        raise RuntimeError("No ffmpeg exe could be found.")

    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", without)
    assert call("formats=[png,mp4]") == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and "install ffmpeg, or use gif or apng" in said[0]
    assert names(tmp_path / "run") == ["checkpoint.pt", "history.csv"]


@pytest.mark.slow
def test_ctrl_c_leaves_whole_pictures_and_no_encoder(tmp_path: Path) -> None:
    save(tiny_state(), tmp_path / "checkpoint.pt")
    write_pack(tiny_capture(), tmp_path / "tiny.pack")
    line = [sys.executable, "-m", "nurec_lite.render", f"checkpoint={tmp_path / 'checkpoint.pt'}", "data=pack"]
    line += [f"data.root={tmp_path / 'tiny.pack'}", "device=cpu", "times=0,1", "fps=1000", "formats=png,gif,apng,mp4"]
    line += [f"out={tmp_path / 'render'}"]
    listening = partial(
        signal.signal, signal.SIGINT, signal.default_int_handler
    )  # also where a shell started this in the background
    process = subprocess.Popen(line, cwd=ROOT, stderr=subprocess.PIPE, text=True, preexec_fn=listening)
    out = tmp_path / "render"
    while process.poll() is None and len(list(out.glob("*.png"))) < 3:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=600)[1]
    assert process.returncode == 2 and "error: interrupted" in said
    assert all(path.suffix in (".png", ".yaml") for path in out.iterdir() if path.name != MARKER)
    for path in out.glob("*.png"):
        with Image.open(path) as file:
            assert np.asarray(file).shape == (24, 40, 3)
