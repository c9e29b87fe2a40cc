# SPDX-License-Identifier: Apache-2.0
"""The option `workers`: the same batches as the baseline's, at any step, and no process left behind."""

import os
import signal
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch
from same_shots import assert_same
from tiny_capture import tiny_capture, tiny_config, tiny_state

from nurec_lite.backends import build_stages
from nurec_lite.base import threads
from nurec_lite.base.options import parameters_of
from nurec_lite.capture.pack import read_pack, write_pack
from nurec_lite.capture.types import CaptureError
from nurec_lite.opt.post.workers import LoaderProcesses, apply
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.loop import train
from nurec_lite.training.shots import ShotPlan
from nurec_lite.training.stages import RECORD_OF, Stages
from nurec_lite.training.state import TrainState


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> ShotPlan:
    """The plan of a pack, so that there is something to decode."""
    path = tmp_path_factory.mktemp("workers") / "tiny.pack"
    write_pack(tiny_capture(), path)
    return ShotPlan(read_pack(path).with_split("interp"), seed=3, lidar_rays=128)


@pytest.fixture
def loader() -> Iterator[LoaderProcesses]:
    processes = LoaderProcesses(count=2, ahead=2)
    yield processes
    processes.close()


def alive(loader: LoaderProcesses) -> list[bool]:
    return [worker.is_alive() for worker in processes(loader)]


def processes(loader: LoaderProcesses) -> list[BaseProcess]:
    return [] if loader.batches is None else [member.process for member in loader.batches.members]


def test_the_option_swaps_one_stage() -> None:
    stages = build_stages({"workers": parameters_of("workers")})
    assert stages.changes.claims == {"next_batch": "workers"}
    others = RECORD_OF.keys() - {"next_batch"}
    assert all(stages.stage(name) is reference_stages().stage(name) for name in others)
    stages.close()


@pytest.mark.parametrize(("given", "cores", "started"), [(0, 1, 1), (0, 2, 1), (0, 8, 6), (0, 64, 12), (3, 64, 3)])
def test_how_many_processes(given: int, cores: int, started: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it is told, as many as cores are left beside the training, but not so many that memory counts."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(threads, "cores_allowed", lambda: None)
    stages = apply(reference_stages(), count=given, ahead=2)
    assert isinstance(stages.feed.next_batch, LoaderProcesses) and stages.feed.next_batch.count == started


def test_batches_are_bitwise_those_of_the_baseline(plan: ShotPlan, loader: LoaderProcesses) -> None:
    for step in range(25):  # more than an epoch
        assert_same(loader(plan, step), plan.load(step))


def test_any_step_may_come_next(plan: ShotPlan, loader: LoaderProcesses) -> None:
    for step in (7, 8, 3, 4, 1000, 1000, 0):
        assert_same(loader(plan, step), plan.load(step))


def test_a_plan_without_lidar_works_too(plan: ShotPlan, loader: LoaderProcesses) -> None:
    bare = ShotPlan(plan.capture, plan.seed, lidar_rays=0)
    assert_same(loader(bare, 5), bare.load(5))


def test_another_plan_takes_effect_at_once(plan: ShotPlan, loader: LoaderProcesses) -> None:
    other = ShotPlan(plan.capture, plan.seed + 1, plan.lidar_rays)
    assert_same(loader(plan, 0), plan.load(0))
    assert_same(loader(other, 1), other.load(1))


def test_processes_end_on_close_and_no_sooner(plan: ShotPlan) -> None:
    loader = LoaderProcesses(count=2, ahead=2)
    assert alive(loader) == []  # they start with the first batch
    loader(plan, 0)
    workers = processes(loader)
    assert alive(loader) == [True, True]
    loader.close()
    assert not any(worker.is_alive() for worker in workers)
    loader.close()
    assert_same(loader(plan, 1), plan.load(1))  # and may start again
    loader.close()


def test_a_jump_leaves_no_process_behind(plan: ShotPlan, loader: LoaderProcesses) -> None:
    loader(plan, 0)
    workers = processes(loader)
    loader(plan, 50)
    assert not any(worker.is_alive() for worker in workers)


def test_an_error_in_a_process_reaches_the_caller(tmp_path: Path, loader: LoaderProcesses) -> None:
    path = tmp_path / "gone.pack"
    write_pack(tiny_capture(), path)
    plan = ShotPlan(read_pack(path).with_split("interp"), seed=3, lidar_rays=128)
    path.unlink()
    with pytest.raises(CaptureError, match=r"gone\.pack: \S+ cannot be read") as found:
        loader(plan, 0)
    with pytest.raises(CaptureError) as plain:
        plan.load(0)
    assert str(found.value) == str(plain.value)  # one sentence


def test_a_process_that_dies_is_replaced(plan: ShotPlan, loader: LoaderProcesses) -> None:
    loader(plan, 0)
    assert loader.batches is not None
    os.kill(loader.batches.members[0].process.pid or 0, signal.SIGKILL)
    for step in range(1, 9):
        assert_same(loader(plan, step), plan.load(step))


def test_training_is_bitwise_the_same(tmp_path: Path) -> None:
    def trained(stages: Stages) -> TrainState:
        state = tiny_state(tiny_config(steps=5))
        try:
            train(stages, state, tmp_path / "checkpoint.pt")
        finally:
            stages.close()
        return state

    plain, option = trained(reference_stages()), trained(build_stages({"workers": parameters_of("workers")}))
    for name, value in plain.scene.parameters().items():
        assert torch.equal(value, option.scene.parameters()[name]), name
