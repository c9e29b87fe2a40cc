# SPDX-License-Identifier: Apache-2.0
"""Several runs by one command (`-m`): nothing of one reaches the next, and one that fails leaves the others alone."""

import json
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from tiny_capture import tiny_capture

from nurec_lite.base import progress
from nurec_lite.base.options import known_options
from nurec_lite.base.paths import resource
from nurec_lite.capture.pack import write_pack
from nurec_lite.cli.command import command
from nurec_lite.config import to_config
from nurec_lite.train import HELP, work
from nurec_lite.training.checkpoint import load_checkpoint

FAST = ["ops=reference", "device=cpu", "train.steps=1", "train.seconds=null", "train.lidar_rays=64", "train.evaluate=false",
        "measure.seconds=0",
        "model.points=300", "model.raised_points=60", "model.far_points=40"]  # fmt: skip
Sweep = Callable[..., int]  # arguments -> code
needs_submitit = pytest.mark.skipif(
    find_spec("submitit") is None, reason="hydra-submitit-launcher (extra slurm) is not installed"
)


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sweep]:
    write_pack(tiny_capture(), tmp_path / "tiny.pack")
    monkeypatch.setattr(progress, "_run", {})
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def run(*arguments: str) -> int:
        given = ["data=pack", f"data.root={tmp_path / 'tiny.pack'}", f"hydra.sweep.dir={tmp_path / 'sweep'}", *FAST]
        monkeypatch.setattr(sys, "argv", ["nurec_lite.train", "-m", *given, *arguments])
        try:
            command("train", HELP, work)
        except SystemExit as end:
            assert isinstance(end.code, int)
            return end.code
        return 0

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


def stored_options(folder: Path) -> list[str]:
    return list(OmegaConf.load(folder / "config.yaml").opt)


def flat(tree: Any, prefix: str = "") -> dict[str, torch.Tensor]:
    """Tensors by their dotted keys."""
    if isinstance(tree, torch.Tensor):
        return {prefix: tree}
    inner = tree.items() if isinstance(tree, dict) else ()
    return {key: leaf for name, sub in inner for key, leaf in flat(sub, f"{prefix}.{name}").items()}


def test_each_run_has_its_options_its_folder_and_its_clock(
    sweep: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep("+opt=[],[workers],[]") == 0
    folders = [tmp_path / "sweep" / n for n in "012"]
    assert [stored_options(folder) for folder in folders] == [[], ["workers"], []]
    seconds = [json.loads((folder / "metrics.json").read_text())["seconds_total"] for folder in folders]
    assert all(0 < s < seconds[0] for s in seconds[1:]), (
        "the first one counts from the start of the process, imports included"
    )
    said = capsys.readouterr().out
    assert said.count("option workers (exact)") == 1, "handlers of the log pile up"
    table = [line.split() for line in said.partition("| setting ")[2].splitlines()]
    assert ["|", "opt.workers", "|", "–", "|", "true", "|", "–", "|"] in table, "the runs stand in a table at the end"
    scenes = [flat(load_checkpoint(folder / "checkpoint.pt", "cpu")["scene"]) for folder in folders]
    for other in scenes[1:]:
        assert other.keys() == scenes[0].keys() and len(other) > 5
        assert all(torch.equal(value, other[name]) for name, value in scenes[0].items()), "another state at the start"


def test_a_folder_that_is_given_is_kept(sweep: Sweep, tmp_path: Path) -> None:
    assert sweep(f"out={tmp_path}/${{hydra:job.num}}-of-mine", "seed=3,4") == 0
    assert [OmegaConf.load(tmp_path / f"{n}-of-mine/config.yaml").seed for n in (0, 1)] == [3, 4]


def test_one_folder_for_all_gets_a_folder_a_job(sweep: Sweep, tmp_path: Path) -> None:
    assert sweep(f"out={tmp_path}/mine", "seed=3,4") == 0
    assert [OmegaConf.load(tmp_path / f"mine/{n}/config.yaml").seed for n in (0, 1)] == [3, 4]
    assert sorted(p.name for p in (tmp_path / "mine").iterdir()) == ["0", "1"]


def test_a_run_that_fails_does_not_end_the_others(
    sweep: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep("data.frames=[0,3],[0,10]") == 2
    assert not (tmp_path / "sweep/0/metrics.json").exists() and (tmp_path / "sweep/1/metrics.json").is_file()
    said = capsys.readouterr()
    assert "job 0 failed: split 'interp' leaves no image" in said.out
    assert said.err.splitlines()[-1].startswith("error: split 'interp' leaves no image") and "Traceback" not in said.err


def test_an_interrupt_ends_all(sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.StopWish, "__enter__", lambda self: setattr(self, "asked", True) or self)
    assert sweep("seed=3,4") == 2
    assert (tmp_path / "sweep/0/checkpoint.pt").is_file() and not (tmp_path / "sweep/1").exists()


# ---- configurations of sweeps


def test_the_ladder_names_known_options_and_begins_without_any() -> None:
    first, *others = OmegaConf.load(resource("conf/sweep/ladder.yaml")).hydra.sweeper.params["+opt"].split("],")
    assert first == "["
    named = {name for other in others for name in other.strip("[]").split(",")}
    assert named and named <= {*known_options(), "all"}


def test_the_ladder_is_what_a_multirun_launches(sweep: Sweep, tmp_path: Path) -> None:
    assert sweep("+sweep=ladder") == 0
    assert [stored_options(tmp_path / "sweep" / n) for n in "012"] == [[], ["workers"], ["all"]]


@needs_submitit
def test_the_slurm_launcher_composes() -> None:
    with initialize_config_dir(str(resource("conf")), version_base="1.3"):
        composed = compose("train", overrides=["hydra/launcher=slurm"], return_hydra_config=True)
    launcher = OmegaConf.to_container(composed.hydra.launcher, resolve=False)
    assert isinstance(launcher, dict) and launcher["_target_"].endswith(".SlurmLauncher")
    assert (launcher["gpus_per_node"], launcher["timeout_min"], launcher["partition"]) == (1, 60, None)
    del composed.hydra
    assert to_config(composed).opt == {}


@pytest.mark.slow
@needs_submitit
def test_its_jobs_run_in_processes_of_their_own(sweep: Sweep, tmp_path: Path) -> None:
    """The local twin of the Slurm launcher pickles and starts jobs in the same way."""
    assert sweep("hydra/launcher=submitit_local", "seed=3") == 0
    assert OmegaConf.load(tmp_path / "sweep/0/config.yaml").seed == 3
    (result,) = (tmp_path / "sweep/.submitit").glob("*/*_result.pkl")
    assert pickle.loads(result.read_bytes())[0] == "success"


def test_without_the_plugin_a_sentence_says_what_to_install(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep("hydra/launcher=submitit_nothing", "seed=3") == 2
    assert "not installed: pip install hydra-submitit-launcher" in capsys.readouterr().err


def test_without_a_cluster_a_sentence_says_so(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert sweep("hydra/launcher=slurm", "seed=3") == 2
    assert "srun, which is not on PATH; start it on a machine of a Slurm cluster" in capsys.readouterr().err
