# SPDX-License-Identifier: Apache-2.0
"""The commands of README.md run in their order, in one folder, with smaller budgets; those that need a GPU say so on a CPU."""

import re
import shlex
from pathlib import Path

import pytest
import torch
from kitti_drive import write_drive
from shell import FAST, Shell, assert_mendable

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()
COMMANDS = re.findall(r"python -m nurec_lite\.(\w+) ([^`\n]*)", README)
SMALL = [argument for argument in FAST if not argument.startswith(("ops=", "train.steps="))]
GPU = ("device=cuda", "+size=large", "render=gsplat")
SERVERS = ("view", "serve")  # they run until they are stopped; tests/viewer and tests/service run them


def words_of(verb: str, arguments: str, steps: int) -> list[str]:
    """Arguments that train a few steps, on a drive of three small frames in place of KITTI's, and render the frames held out."""
    left_out = ("train.steps=", "train.seconds=", "data.downscale=")
    words = [word for word in shlex.split(arguments, comments=True) if not word.startswith(left_out)]
    drive = ["data.split=side"] if any(word.startswith("data.root=") for word in words) else []
    smaller = {"train": [f"train.steps={steps}", *SMALL], "render": ["subset=test"]}
    return [*words, *drive, *smaller.get(verb, [])]


@pytest.mark.slow
def test_commands_run_one_after_another(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_drive(tmp_path / "FOLDER")
    (tmp_path / "edits.yaml").write_text("remove: [000]\n")
    ran = []
    for step, (verb, arguments) in enumerate(COMMANDS, 1):
        if verb not in SERVERS and not any(word in arguments for word in GPU):
            ended = shell(verb, *words_of(verb, arguments, step))
            assert ended.code == 0, (verb, arguments, ended.error)
            ran.append(verb)
    assert set(ran) == {"train", "render", "export", "pack"} and len(ran) >= 9
    written = {path.name for path in (tmp_path / "runs/mine").iterdir()}
    assert {"checkpoint.pt", "history.csv", "config.yaml", "scene.ply"} <= written
    assert list(tmp_path.glob("runs/mine/render-*/*.mp4"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("arguments", [a for _, a in COMMANDS if any(word in a for word in GPU)])
def test_commands_for_a_gpu_are_refused_without_one(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [word for word in shlex.split(arguments, comments=True) if word != "device=cuda"]
    assert_mendable(
        shell("train", *words, "device=cuda"), "torch sees no CUDA device; use device=cpu, or install a driver"
    )
    assert not (tmp_path / "runs").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gsplat_is_refused_without_a_gpu(shell: Shell, tmp_path: Path) -> None:
    assert "`render=gsplat`" in README
    ended = shell("train", "render=gsplat", f"out={tmp_path / 'out'}")
    assert_mendable(ended, "render=gsplat runs on CUDA only, but the device is cpu; use render=own")


@pytest.mark.slow
def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert found is not None and len(found[1].splitlines()) <= 8
    monkeypatch.chdir(tmp_path)
    exec(found[1].replace("seconds=60", "steps=1, device='cpu', train={'lidar_rays': 64}"), {})
    said = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(r"\d+\.\d+ torch\.Size\(\[\d+, \d+, 3\]\)", said)


@pytest.mark.slow
def test_the_example_of_a_capture_is_written_and_trained_on(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/your-data.md."""
    page = (Path(__file__).resolve().parents[2] / "docs/your-data.md").read_text()
    found = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    monkeypatch.chdir(tmp_path)
    exec(found[1], {"__name__": "example"})
    ended = shell("train", "data=pack", "data.root=mine.pack", "out=run", "train.steps=2", *SMALL)
    assert ended.code == 0, ended.error
