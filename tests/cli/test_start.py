# SPDX-License-Identifier: Apache-2.0
"""The start of a run: no import before its need, because the run waits for each, and no search for garbage among the capture."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

NEVER = ("torch._dynamo", "torch._inductor", "sympy", "matplotlib", "tensorboard", "torch.utils.tensorboard", "IPython")
LATER = ("scipy", "nurec_lite.evaluation.measure", "nurec_lite.report.page", "nurec_lite.profiling", "nurec_lite.peer")


def imported_by(program: str) -> set[str]:
    """Modules that a process of its own has imported."""
    line = [sys.executable, "-c", f"{program}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"]
    return set(json.loads(subprocess.run(line, capture_output=True, text=True, check=True).stdout))


def test_a_run_begins_without_what_it_needs_later_or_never() -> None:
    given = imported_by("import torch")
    found = imported_by("import nurec_lite.train")
    assert "nurec_lite.training.start" in found
    assert [name for name in (*NEVER, *LATER) if name in found - given] == []
    others = [name for name in found - given if name.split(".")[0] != "nurec_lite"]
    assert len(others) < 200  # 177 with Hydra 1.3 and Pillow 13


def test_an_end_does_without_the_checks_of_captures() -> None:
    """They take a third of the imports of results. A run asks for them if it has corrected sensors by much."""
    found = imported_by("import nurec_lite.train\nimport nurec_lite.report.results")
    assert "nurec_lite.evaluation.findings" in found
    assert found.isdisjoint({"nurec_lite.capture.checks.cameras", "nurec_lite.capture.checks.run", "scipy"})


def test_an_optimizer_does_without_torch_s_compiler() -> None:
    program = """
import torch
from nurec_lite.training.optim import Adam
p = torch.zeros(3, requires_grad=True)
optimizer = Adam([{"params": [p], "name": "p", "lr": 0.1}], fused=True)
p.sum().backward()
optimizer.step()
optimizer.zero_grad()
optimizer.load_state_dict(optimizer.state_dict())
assert p.tolist() == [p[0].item()] * 3 and p[0] < -0.09
"""
    assert imported_by(program).isdisjoint(NEVER)


@pytest.mark.parametrize("line", [["nurec_lite.train"], ["nurec_lite", "inspect"], ["nurec_lite.pack"]])
def test_ctrl_c_while_modules_are_imported(tmp_path: Path, line: list[str]) -> None:
    """torch is replaced by a module whose import never ends."""
    (tmp_path / "torch.py").write_text(
        "import time\nprint('importing', flush=True)\nwhile True:\n    time.sleep(0.05)\n"
    )
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    listening = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-m", *line], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=listening
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().startswith(
        line[-1].removeprefix("nurec_lite.")
    )  # it reads these before torch comes
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert (process.returncode, said) == (130, "error: interrupted while it started; nothing was written\n")


def test_a_library_leaves_signals_alone() -> None:
    code = "import signal; before = signal.getsignal(signal.SIGINT); import nurec_lite; assert signal.getsignal(signal.SIGINT) is before"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_current_folder_that_was_deleted(tmp_path: Path) -> None:
    """Libraries of torch end the process with words of their own there."""
    script = f"cd {tmp_path} && mkdir gone && cd gone && rmdir ../gone && exec {sys.executable} -m nurec_lite.render"
    ended = subprocess.run(
        ["bash", "-c", script], env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True, capture_output=True, timeout=60
    )
    assert ended.returncode == 2
    assert ended.stderr == "error: the current folder was deleted or renamed; change to another one\n"


@pytest.mark.parametrize("command", [True, False])
def test_no_collection_searches_the_capture_of_a_command(command: bool) -> None:
    """A program that calls `nurec_lite.train` keeps its own garbage collection."""
    program = f"""
import gc, sys
import nurec_lite.train
from nurec_lite.capture.types import Frame
from nurec_lite.config import Config, DataConfig
run = sys.modules["nurec_lite.train"]
gc.freeze() if {command} else None
config = Config(data=DataConfig(frames=[0, 2], split="half"), device="cpu")
capture = run._opened(config, None, None, run.torch.device("cpu"), lambda capture: None)
searched = [thing for thing in gc.get_objects() if isinstance(thing, Frame)]
assert len(searched) == (0 if {command} else len(capture.images) + len(capture.sweeps)), searched
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=120)
