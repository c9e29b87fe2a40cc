# SPDX-License-Identifier: Apache-2.0
"""Animations hold the pictures that were added, and appear whole or not at all."""

import subprocess
import tracemalloc
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.files import OutputError
from nurec_lite.output.films import animation, save_animation

KINDS = ["gif", "apng", "mp4"]


def pictures(count: int, height: int = 6, width: int = 8) -> list[np.ndarray]:
    return [np.full((height, width, 3), 10 + 40 * k, np.uint8) for k in range(count)]


def noise(count: int, height: int, width: int) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.integers(0, 256, (height, width, 3), dtype=np.uint8) for _ in range(count)]


def decoded(path: Path) -> list[np.ndarray]:
    return list(imageio.imiter(path, plugin="FFMPEG"))


@pytest.mark.parametrize("kind", ["gif", "apng"])
@pytest.mark.parametrize("count", [1, 3])
def test_pictures_come_back(tmp_path: Path, kind: str, count: int) -> None:
    path = tmp_path / f"a.{kind}"
    save_animation(path, iter(pictures(count)), fps=10)
    with Image.open(path) as file:
        assert getattr(file, "n_frames", 1) == count and file.size == (8, 6)
        for k, picture in enumerate(pictures(count)):
            file.seek(k)
            np.testing.assert_array_equal(np.asarray(file.convert("RGB")), picture)
            assert count == 1 or file.info["duration"] == 100
            assert file.info.get("loop", 0) == 0
    assert list(tmp_path.iterdir()) == [path]


def test_gif_keeps_a_strong_colour_of_few_pixels(tmp_path: Path) -> None:
    """Yellow on a picture full of other colours, which comes back the same in every picture."""
    frames = [np.kron(np.linspace(0, 255, 120 * 160).reshape(120, 160, 1), [[[1, 0.9, 0.8]]]) for _ in range(3)]
    for k, frame in enumerate(frames):
        frame[50:60, 20 + 9 * k : 40 + 9 * k] = (255, 220, 0)
    save_animation(tmp_path / "a.gif", [frame.astype(np.uint8) for frame in frames], fps=10)
    with Image.open(tmp_path / "a.gif") as file:
        for k, frame in enumerate(frames):
            file.seek(k)
            error = abs(np.asarray(file.convert("RGB")).astype(int) - frame)
            assert error.mean() < 3 and error[50:60, 20 + 9 * k : 40 + 9 * k].max() < 12


@pytest.mark.parametrize("size", [(1, 1), (31, 33), (300, 500)])  # the last one has several chunks of data
def test_animated_png_is_lossless(tmp_path: Path, size: tuple[int, int]) -> None:
    frames = noise(3, *size)
    save_animation(tmp_path / "a.apng", frames, fps=3)
    with Image.open(tmp_path / "a.apng") as file:
        for k, picture in enumerate(frames):
            file.seek(k)
            np.testing.assert_array_equal(np.asarray(file.convert("RGB")), picture)
            assert file.info["duration"] == pytest.approx(1000 / 3)


def test_animated_png_keeps_no_pictures(tmp_path: Path) -> None:
    tracemalloc.start()
    save_animation(tmp_path / "a.apng", (np.full((400, 500, 3), k % 256, np.uint8) for k in range(30)), fps=10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * 400 * 500 * 3


@pytest.mark.parametrize("size", [(24, 40), (25, 41), (97, 130)])
def test_mp4_comes_back_with_even_sizes(tmp_path: Path, size: tuple[int, int]) -> None:
    path, (height, width) = tmp_path / "a.mp4", size
    save_animation(path, pictures(5, height, width), fps=10)
    frames = decoded(path)
    assert len(frames) == 5 and frames[0].shape == (height + height % 2, width + width % 2, 3)
    for frame, picture in zip(frames, pictures(5, height, width), strict=True):
        assert abs(frame.astype(int) - int(picture[0, 0, 0])).max() <= 3
    assert list(tmp_path.iterdir()) == [path]


def test_mp4_keeps_colours_and_time(tmp_path: Path) -> None:
    colours = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0), (200, 120, 40)]
    bars = np.repeat(np.array(colours, np.uint8)[None].repeat(48, axis=0), 16, axis=1)
    save_animation(tmp_path / "a.mp4", [bars] * 12, fps=24)
    frame = decoded(tmp_path / "a.mp4")[-1][24, 8::16].astype(int)
    assert abs(frame - np.array(colours)).max() <= 8
    said = subprocess.run(
        [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(tmp_path / "a.mp4")], capture_output=True, text=True, check=False
    ).stderr
    assert "h264" in said and "yuv420p" in said and "24 fps" in said and "Duration: 00:00:00.50" in said


@pytest.mark.parametrize("kind", KINDS)
def test_what_fails_half_way_leaves_the_old_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    path.write_bytes(b"old")

    def broken() -> Any:
        yield from pictures(2, 24, 40)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_animation(path, broken(), fps=10)
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", KINDS)
def test_an_animation_of_nothing_or_of_an_unknown_kind(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ValueError, match="no pictures"):
        save_animation(tmp_path / f"a.{kind}", [], fps=10)
    with pytest.raises(ValueError, match="gif, apng, mp4"):
        save_animation(tmp_path / f"{kind}.xyz", pictures(1), fps=10)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_that_cannot_be_written(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=rf"a\.{kind} cannot be written"):
        save_animation(tmp_path / "file" / f"a.{kind}", pictures(2, 24, 40), fps=10)


def encoder(folder: Path, script: str) -> str:
    """A program in place of ffmpeg."""
    program = folder / "ffmpeg"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    "script",
    [
        "cat > /dev/null; echo 'No space left on device' >&2; exit 1",
        "echo 'No space left on device' >&2; exit 3",
        "cat > /dev/null; echo 'No space left on device' >&2; echo 'frame=  1 fps=0.0 time=00:00:00.10 '",
    ],
    ids=["fails at the end", "dies while pictures come", "loses pictures"],
)
def test_a_film_that_is_not_whole_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], script: str
) -> None:
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", encoder(tmp_path, script))
    with pytest.raises(
        OutputError, match=r"a\.mp4 cannot be written: ffmpeg did not finish it, and says why above; is there"
    ):
        save_animation(tmp_path / "out" / "a.mp4", (p for p in noise(40, 300, 400)), fps=10)
    assert not list((tmp_path / "out").iterdir())
    assert "No space left on device" in capfd.readouterr().err


def test_no_encoder_is_left_running(tmp_path: Path) -> None:
    started: list[subprocess.Popen] = []

    class Watched(subprocess.Popen):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            started.append(self)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(subprocess, "Popen", Watched)
        with animation(tmp_path / "a.mp4", 10) as add:
            add(pictures(1, 24, 40)[0])
            raise ZeroDivisionError
    assert len(started) == 1 and started[0].returncode is not None


def test_mp4_without_its_program_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without() -> str:
        raise RuntimeError("No ffmpeg exe could be found.")

    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", without)
    with pytest.raises(ConfigError, match=r"mp4 needs the program ffmpeg, which .* install ffmpeg, or use gif or apng"):
        save_animation(tmp_path / "a.mp4", pictures(2), fps=10)
    assert not list(tmp_path.iterdir())
