# SPDX-License-Identifier: Apache-2.0
"""Lines for a waiting user: the first one, a bar that fits a terminal, lines in a file, and the memory that was in use."""

import io
import os
import subprocess
import sys

import pytest
import torch

from nurec_lite.base.announce import first_line
from nurec_lite.base.memory import peak_bytes
from nurec_lite.base.meter import Meter, rounded
from nurec_lite.base.paths import PACKAGE
from nurec_lite.base.progress import Bar
from nurec_lite.evaluation.results import FIGURES, pace


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("steps", "seconds"), [(None, 86400.0), (1_000_000, None)])
def test_the_bar_fits_80_columns_with_a_million_gaussians(
    monkeypatch: pytest.MonkeyPatch, steps: int | None, seconds: float | None
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "132")
    bar = Bar(steps, seconds)
    bar.show({"step": 999_999, "seconds": 86399.0, "psnr": 25.123, "range": 10.25, "gaussians": 1_000_000})
    bar.close()
    shown = [line for line in terminal.getvalue().replace("\n", "").split("\r") if line.strip()]
    assert all(len(line) <= 80 for line in shown)
    assert (
        shown[-1].rstrip().endswith("25.12 dB, 10.25 m, 1.00 M")
        and shown[-1].startswith("100% ")
        and " , " not in shown[-1]
    )


def test_a_file_gets_a_line_each_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    with Meter(150, "frames", "rendering") as meter:
        for _ in range(150):
            meter.advance()
    lines = capsys.readouterr().err.splitlines()
    assert (
        len(lines) == 10
        and lines[0] == "rendering 10 %: 15/150 frames"
        and lines[9] == "rendering 100 %: 150/150 frames"
    )


def test_training_says_its_figures_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Bar(None, 100.0)
    for second in (1.0, 35.0, 36.0, 100.5):
        bar.show({"step": 10 * second, "seconds": second, "psnr": 20.0, "range": 0.5, "gaussians": 35_200})
    bar.close()
    assert capsys.readouterr().err.splitlines() == [
        "training 30 %: 35/100 s, step 350, PSNR 20.00 dB, range 0.50 m, 35.2 k Gaussians",
        "training 100 %: 100/100 s, step 1005, PSNR 20.00 dB, range 0.50 m, 35.2 k Gaussians",
    ]


def test_counts_have_three_digits() -> None:
    numbers = (0, 999, 1000, 35_249, 99_949, 99_951, 999_499, 999_500, 1_234_567, 12_345_678)
    assert [rounded(n) for n in numbers] == [
        "0", "999", "1.00 k", "35.2 k", "99.9 k", "100 k", "999 k", "1.00 M", "1.23 M", "12.3 M"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-m nurec_lite.train", "train reads the street that comes with nurec_lite; results go to a new folder under runs/"),
        ("-m nurec_lite train data=kitti_raw data.root=x/y out=z", "train reads x/y (kitti_raw); results go to z"),
        ("-m nurec_lite.train -m out=z seed=1,2", "train reads the street that comes with nurec_lite; results go to z, a folder each"),
        ("-X dev -m nurec_lite.evaluate checkpoint=a.pt", "evaluate measures a.pt; results go to a folder next to it"),
        ("-m nurec_lite.render runs/mine", None),
        ("-m nurec_lite.pack data=pack data.root=a.pack show=true", "pack lists a.pack (pack)"),
        ("-m nurec_lite.train train.resume=a.pt out=b", "train reads a.pt, to go on with it; results go to b"),
        ("-m nurec_lite.pack data=pandaset data.root=x", "pack packs x (pandaset)"),
        ("-m nurec_lite.train --cfg job", None), ("-m nurec_lite.train --help", None), ("-m nurec_lite.profile compare a b", None),
        ("-m nurec_lite", None), ("-m nurec_lite.profiling.record.child", None), ("-m nurec_lite.compare runs/a runs/b", None),
        ("-m nurec_lite.export checkpoint=a.pt", "export writes Gaussians of a.pt; results go to a file next to it"),
        ("-m nurec_lite.export checkpoint=a.pt out=b.ply", "export writes Gaussians of a.pt; results go to b.ply"),
        ("-m nurec_lite.view runs/mine port=9000", "view shows runs/mine"), ("-m nurec_lite.view port=9000", None),
        ("-m nurec_lite.serve runs/a runs/b", "serve opens runs/a and runs/b"), ("-m nurec_lite.view checkpoint=a.pt", "view shows a.pt"),
    ],
)  # fmt: skip
def test_the_first_line_says_what_is_read_and_where_results_go(line: str, said: str | None) -> None:
    assert first_line(["python", *line.split()]) == said


def test_the_first_line_comes_before_torch_is_imported() -> None:
    """It comes within a second of a core, however busy the machine is."""
    command = [sys.executable, "-m", "nurec_lite.train"]
    with subprocess.Popen(command, cwd=PACKAGE.parent, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.kill()
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = -9
    assert first.startswith("train reads") and used.ru_utime + used.ru_stime < 1


def test_peak_memory_is_that_of_the_process() -> None:
    before = peak_bytes(torch.device("cpu"))
    block = torch.ones(20_000_000)
    after = peak_bytes(torch.device("cpu"))
    assert before is not None and after is not None and after >= block.numel() * 4


def test_the_pace_is_that_of_the_second_half_and_leaves_out_what_is_not_known() -> None:
    """First steps wait for frames. The host begins steps of a GPU ahead: some at once, others after a wait."""
    assert pace([2.0, 0.5, 0.001, 0.005], None) == {"step_ms": pytest.approx(3)}
    assert pace([0.25], None) == {"step_ms": 250} and pace([], 1 << 30) == {"peak_memory_bytes": 1 << 30}
    (memory,) = (figure for figure in FIGURES if figure.key == "peak_memory_bytes")
    assert memory.text(1 << 30) == "1\u202f024"
