# SPDX-License-Identifier: Apache-2.0
"""The command `profile` from the command line: nsys played by a small program, torch.profiler on the CPU, and messages to the user."""

import json
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from recorded import NsysFile, two_steps
from tiny_capture import tiny_capture

from nurec_lite import profile
from nurec_lite.base.folders import MARKER
from nurec_lite.base.nvtx import SETTING, TORCH
from nurec_lite.capture.pack import write_pack
from nurec_lite.cli.command import command, composed
from nurec_lite.profiling.record import nsys as nsys_module
from nurec_lite.profiling.record import window
from nurec_lite.profiling.record.tools import PLACES
from nurec_lite.profiling.summary.summary import read_summary
from nurec_lite.profiling.summary.syncs import lines_a_step, waiting_lines
from nurec_lite.training.history import History

ROOT = Path(__file__).resolve().parents[2]
VERSION = "NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0"
PLAYS = '''#!{python}
"""Does what `play` says, as nsys would."""
import json, os, pathlib, shutil, sys

play = json.loads(pathlib.Path(__file__).with_suffix(".json").read_text())
if "--version" in sys.argv:
    print(play["version"])
    sys.exit()
target = next(a for a in sys.argv if a.startswith("--output="))[9:]
print(play[sys.argv[1]], file=sys.stderr)
if sys.argv[1] == "profile":
    pathlib.Path(__file__).with_suffix(".argv").write_text("\\n".join(sys.argv[1:]))
    pathlib.Path(__file__).with_suffix(".binding").write_text(os.environ["NUREC_LITE_NVTX"])
    config = pathlib.Path(sys.argv[-2])
    if play["begins"]:
        config.with_name("window-nvtx.began").touch()
    if play["window"] is not None:
        config.with_name("window-nvtx.json").write_text(json.dumps(play["window"]))
    if play["report"]:
        pathlib.Path(target + play["report"]).write_text("a report")
elif play["database"]:
    shutil.copy(play["database"], target)
sys.exit(play["code"])
'''
WINDOW = {"environment": {"device": "a GPU"}, "steps": 2, "peak_bytes": 1 << 20}


@dataclass(frozen=True)
class Ended:
    code: int
    error: str


Run = Callable[..., Ended]
Nsys = Callable[..., Path]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """The command in this process."""
    before = signal.getsignal(signal.SIGTERM)

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["nurec_lite.profile", *arguments])
        try:
            command("profile", profile.HELP, profile.work)
        except SystemExit as end:
            assert isinstance(end.code, int)
            return Ended(end.code, capsys.readouterr().err)
        return Ended(0, capsys.readouterr().err)

    yield run
    signal.signal(signal.SIGTERM, before)


def assert_mendable(ended: Ended, sentence: str) -> None:
    assert ended.code == 2 and ended.error.startswith("error: ") and ended.error.count("\n") == 1, ended.error
    assert re.search(sentence, ended.error) and len(ended.error) < 800, ended.error


@pytest.fixture
def nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nsys:
    """Puts an nsys on PATH that does as it is told; returns the file that will hold its arguments."""

    def put(**play: Any) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "nsys").write_text(PLAYS.format(python=sys.executable))
        (folder / "nsys").chmod(0o755)
        database = NsysFile(two_steps()).write(tmp_path / "recorded.sqlite")
        usual = {
            "version": VERSION,
            "profile": "",
            "export": "",
            "begins": True,
            "window": WINDOW,
            "report": ".nsys-rep",
            "database": str(database),
            "code": 0,
        }
        (folder / "nsys.json").write_text(json.dumps(usual | play))
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        return folder / "nsys.argv"

    return put


@pytest.fixture
def keys(tmp_path: Path) -> list[str]:
    """Keys of small steps on a CPU."""
    write_pack(tiny_capture(), tmp_path / "tiny.pack", image_format="png")
    return ["data=pack", f"data.root={tmp_path / 'tiny.pack'}", "ops=reference", "device=cpu", "train.lidar_rays=64",
            "model.points=300", "model.raised_points=60", "model.far_points=40", "warmup=1", "steps=2",
            f"out={tmp_path / 'out'}"]  # fmt: skip


def test_help_lists_every_key(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["profile", "--help"])
    command("profile", profile.HELP, profile.work)
    text = capsys.readouterr().out
    for key in ("tool=nsys", "warmup=20", "steps=10", "kernels=null", "range=null", "out=", "device=auto"):
        assert re.search(rf"  {key}.*  \S", text), key


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["tool=perf"], r"tool is 'perf', but must be one of nsys, ncu, torch"),
        (["steps=0"], r"steps is 0, but must lie between 1 and 1000000"),
        (["train.seconds=null"], r"give a budget"),
        (["wramup=3"], r"did you mean warmup\?"),
    ],
)
def test_wrong_keys(run: Run, arguments: list[str], sentence: str) -> None:
    assert_mendable(run(*arguments), sentence)


# ---- nsys


@pytest.mark.slow
def test_nsys(run: Run, nsys: Nsys, keys: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines that wait come from a real pass, on a CPU: there are none."""
    monkeypatch.setenv(SETTING, TORCH)
    argv = nsys()
    out = tmp_path / "out"
    ended = run("tool=nsys", *keys)
    assert ended.code == 0, ended.error
    summary = read_summary(out / "summary.json")
    assert (summary.tool, summary.tool_version, summary.launches, summary.syncs) == ("nsys", "2025.3.1.90", 4, 1)
    assert summary.command.startswith("python -m nurec_lite.profile tool=nsys data=pack")
    given = argv.read_text().splitlines()
    assert given[0] == "profile" and given[-3:] == [
        "nurec_lite.profiling.record.window",
        str(out / "config.yaml"),
        "nvtx",
    ]
    assert {"--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--cuda-graph-trace=node"} <= set(given)
    assert argv.with_suffix(".binding").read_text() == TORCH
    assert json.loads((out / "window-syncs.json").read_text())["lines"] == {}
    text = (out / "summary.md").read_text()
    assert (
        "| renderBackward` " not in text
        and "| `renderBackward` | 1 | 0.15 | 167 | 9,216 + 0 | step/backward/render |" in text
    )
    for name in ("timeline", "ranges", "kernels"):
        assert Image.open(out / f"{name}.png").width > 1000 and f"![{name}]({name}.png)" in text


SAID = {
    "another profiler": (
        {"profile": "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", "report": ""},
        r"MULTIPLE_SUBSCRIBERS.*another profiler is attached",
    ),
    "no importer": (
        {"profile": "Importer error status: An unknown error occurred.", "report": ""},
        r"nsys says 'Importer error status.*cannot import what it recorded; install",
    ),
    "recorded, not imported": ({"report": ".qdstrm"}, r"error: nsys recorded but cannot import what it recorded; install"),
    "flag": ({"profile": "unrecognised option '--cuda-graph-trace=node'", "window": None, "report": "", "code": 1}, r"not know a flag"),
    "driver": (
        {"profile": "Installed CUDA driver version (13.1) is not supported by this build of Nsight Systems.", "report": ""},
        r"the driver and nsys do not match; install a driver",
    ),
    "counters": ({"profile": "ERR_NVGPUCTRPERM", "report": ""}, r"NVreg_RestrictProfilingToAdminUsers=0, or use tool=torch"),
    "newer report": (
        {"export": "Version number is invalid", "database": None, "code": 1}, r"another, newer nsys wrote the report"
    ),
    "no report": ({"report": "", "code": 3}, r"nsys wrote no report \(code 3\); .*nsys\.log has its output"),
    "no export": ({"database": None, "code": 4}, r"nsys cannot export .*nsys\.nsys-rep \(code 4\)"),
    "what the steps say": ({"window": {"error": "nsys and ncu record a GPU"}, "code": 2}, r"error: nsys and ncu record a GPU\n"),
    "steps that crash": (
        {"window": None, "profile": "Traceback\nRuntimeError: out of order", "code": 1},
        r"ended with code 1 before all were recorded \(RuntimeError: out of order\); .*nsys\.log",
    ),
    "steps that never began": (
        {"begins": False, "window": None, "profile": "Segmentation fault", "code": 139},
        r"nsys ended with code 139 before the training began \(Segmentation fault\); .*log has .*Nsight Systems, or use tool=torch$",
    ),
    "another platform": (
        {"begins": False, "window": None, "profile": "CUDA tracing is not supported on WSL with this driver.", "code": 1},
        r"nsys says 'CUDA tracing is not supported on WSL.*': this nsys cannot record here; install .*, or use tool=torch$",
    ),
    "another GPU": (
        {"begins": False, "window": None, "profile": "Unsupported GPU architecture", "code": 1}, r"this nsys cannot record here; "
    ),
    "too old": ({"version": "NVIDIA Nsight Systems version 2021.3.1"}, r"is version 2021\.3\.1, but 2022\.4 or newer is needed"),
}  # fmt: skip


@pytest.mark.parametrize("works", [True, False])
def test_an_importer_that_nsys_did_not_find(
    run: Run, nsys: Nsys, keys: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    """The nsys inside Nsight Compute is such a case: it is called by its place."""
    nsys(report=".qdstrm")
    monkeypatch.setattr(nsys_module, "waiting_lines", lambda config, out: None)  # a pass of its own, in test_nsys
    importer = tmp_path / "linux/QdstrmImporter"
    importer.parent.mkdir()
    importer.write_text('#!/bin/sh\ncp "$2" "$4"\n' if works else "#!/bin/sh\necho libdw.so.1 is missing; exit 127\n")
    importer.chmod(0o755)
    ended = run("tool=nsys", *keys)
    if works:
        assert ended.code == 0 and read_summary(tmp_path / "out/summary.json").launches == 4
    else:
        assert_mendable(ended, r"cannot import what it recorded; install .*QdstrmImporter needs .*nsys\.import\.log")


@pytest.mark.parametrize(("play", "sentence"), SAID.values(), ids=SAID.keys())
def test_what_nsys_says(run: Run, nsys: Nsys, keys: list[str], play: dict[str, Any], sentence: str) -> None:
    nsys(**play)
    assert_mendable(run("tool=nsys", *keys), sentence)


def test_a_binding_that_is_none(run: Run, nsys: Nsys, keys: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    argv = nsys()
    monkeypatch.setenv(SETTING, "cupti")
    assert_mendable(run("tool=nsys", *keys), r"NUREC_LITE_NVTX is 'cupti', but must be package or torch")
    assert not argv.exists()


def test_no_nsys(run: Run, keys: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setitem(PLACES, "nsys", ("/nowhere/*/nsys",))
    assert_mendable(
        run("tool=nsys", *keys), r"nsys is neither on PATH nor in /nowhere/\*/nsys; install NVIDIA Nsight Systems"
    )


# ---- the process that is profiled


@pytest.mark.slow
def test_torch(run: Run, keys: list[str], tmp_path: Path) -> None:
    ended = run("tool=torch", *keys)
    assert ended.code == 0, ended.error
    summary = read_summary(tmp_path / "out/summary.json")
    assert summary.steps == 2 and len(summary.step_times_ms) == 2 and summary.gpu_busy is None
    times = {r.name: r for r in summary.ranges}
    assert {"step", "step/next_batch", "step/collect/interpolate", "step/backward"} <= set(times)
    assert times["step/render_lidar"].count == 1
    inner = [r.cpu_ms or 0 for r in summary.ranges if r.name.count("/") == 1]
    assert 0 < sum(inner) < (times["step"].cpu_ms or 0)
    assert "GPU busy" not in (tmp_path / "out/summary.md").read_text()


def in_process(keys: list[str], mode: str) -> tuple[int, dict[str, Any]]:
    config = composed("profile", keys)
    out = Path(config.out)
    file = window.window_command(config, out, mode)[-2]
    return window.main(file, mode), json.loads((out / f"window-{mode}.json").read_text())


def test_nothing_of_an_earlier_window_is_left(keys: list[str], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/window-nvtx.json").write_text("{}")
    (tmp_path / "out" / MARKER).write_text("nurec_lite 1 profile\nwindow-nvtx.json\n")
    window.window_command(composed("profile", keys), tmp_path / "out", "nvtx")
    assert not (tmp_path / "out/window-nvtx.json").exists()


def test_nsys_and_ncu_want_a_gpu(keys: list[str]) -> None:
    code, found = in_process(keys, "nvtx")
    assert code == 2 and re.match(
        r"nsys and ncu record a GPU, but the steps run on cpu; use tool=torch", found["error"]
    )


@pytest.mark.filterwarnings("ignore:called a synchronizing")
def test_lines_that_wait(keys: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's warning, raised where a GPU would be waited for."""
    add = History.add

    def waits(self: History, *arguments: Any) -> Any:
        warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
        return add(self, *arguments)

    monkeypatch.setattr(History, "add", waits)
    code, found = in_process(keys, "syncs")
    (line,) = found["lines"]
    assert code == 0 and found["lines"][line] == 2
    file, number = line.split(":")
    assert file == "nurec_lite/training/loop.py"
    assert "history.add(" in (ROOT / file).read_text().splitlines()[int(number) - 1]
    assert lines_a_step({"b:2": 1, "a:1": 4}, 2) == ("a:1 (2 a step)", "b:2 (0.5 a step)")


def test_other_warnings_are_not_lines() -> None:
    with waiting_lines(cuda=False) as lines:
        warnings.warn("something else", stacklevel=1)
    assert not lines
