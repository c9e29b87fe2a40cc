# SPDX-License-Identifier: Apache-2.0
"""The option `resident` with opt.resident.jpeg=gpu: images are those of the library, all else is as without it, errors are the host's."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from jpeg_standins import MODULES, Calls, beside
from same_shots import assert_same
from tiny_capture import tiny_capture, tiny_state

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import ConfigError, OptionError
from nurec_lite.bounds import check_options
from nurec_lite.capture.gpu_jpeg import libraries
from nurec_lite.capture.pack import read_pack, write_pack
from nurec_lite.capture.types import Capture, CaptureError, Encoded
from nurec_lite.opt.all.resident import Resident
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.shots import ShotPlan, Shots
from nurec_lite.training.stages import Stages

GPU = {"resident": {"share": 1.0, "jpeg": "gpu"}}


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("jpeg") / "drive.pack"
    write_pack(tiny_capture(), path, image_format="jpeg")
    return path


@pytest.fixture(params=[1, 2], ids=["whole images", "downscaled"])
def plan(request: pytest.FixtureRequest, drive: Path) -> ShotPlan:
    return ShotPlan(read_pack(drive, downscale=request.param).with_split("interp"), seed=3, lidar_rays=128)


@pytest.fixture
def stages() -> Iterator[Stages]:
    """Stages of a GPU, so that a record can be made without one; tensors stay on the host."""
    made = build_stages(GPU, replace(reference_stages(), device="cuda"))
    yield made
    made.close()


def fed(stages: Stages, plan: ShotPlan, step: int) -> Shots:
    return stages.feed.fetch(stages, replace(tiny_state(), plan=plan, step=step))


@pytest.mark.parametrize("library", MODULES)
def test_images_are_the_librarys_and_the_rest_is_the_baselines(
    monkeypatch: pytest.MonkeyPatch, drive: Path, library: str
) -> None:
    calls = Calls().install(monkeypatch, library)
    stages = build_stages(GPU, replace(reference_stages(), device="cuda"))
    plan = ShotPlan(read_pack(drive).with_split("interp"), seed=3, lidar_rays=128)
    for step in range(40):
        found, loaded = fed(stages, plan, step), plan.load(step)
        assert torch.equal(found.images[0].image, beside(loaded.images[0].image))
        assert_same(replace(found, images=()), replace(loaded, images=()))
        assert_same(replace(found, images=(replace(found.images[0], image=loaded.images[0].image),)), loaded)
    stages.close()
    assert sum(map(len, calls.files)) == 1 + len(plan.split.train_images)  # and the trial


def test_downscaled_images_are_a_level_beside_the_hosts_at_most(
    monkeypatch: pytest.MonkeyPatch, stages: Stages, plan: ShotPlan
) -> None:
    Calls().install(monkeypatch, "nvImageCodec")
    for step in range(10):
        found, loaded = fed(stages, plan, step).images[0].image, plan.load(step).images[0].image
        assert found.shape == loaded.shape and (found.int() - loaded.int()).abs().max() <= 1


@pytest.fixture(autouse=True)
def both(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "gpu" not in request.keywords:
        Calls().install(monkeypatch, *MODULES)


def test_png_is_the_hosts_and_bitwise_so(stages: Stages, tmp_path: Path) -> None:
    write_pack(tiny_capture(), tmp_path / "drive.pack", image_format="png")
    plan = ShotPlan(read_pack(tmp_path / "drive.pack").with_split("interp"), seed=3, lidar_rays=128)
    for step in range(10):
        assert_same(fed(stages, plan, step), plan.load(step))


class Cut:
    """An image file that lacks its end."""

    def __init__(self, load: Any) -> None:
        self.load = load

    def encoded(self) -> Encoded:
        whole: Encoded = self.load.encoded()
        return replace(whole, data=whole.data[: len(whole.data) // 2])


def test_a_file_that_is_cut_off_is_an_error_of_the_step_that_needs_it(stages: Stages, plan: ShotPlan) -> None:
    images, at = list(plan.capture.images), 3
    ((index,), _) = plan.chosen(at)
    images[index] = replace(images[index], load=Cut(images[index].load))
    damaged = ShotPlan(replace(plan.capture, images=tuple(images)), seed=3, lidar_rays=128)
    for step in range(at):
        assert len(fed(stages, damaged, step).images) == 1
    with pytest.raises(CaptureError, match=r"images/.*\.jpg is no whole PNG or JPEG image"):
        fed(stages, damaged, at)


# Refusals


def test_it_needs_a_gpu() -> None:
    with pytest.raises(OptionError, match=r"'resident': jpeg is gpu, but .* device=cuda, or opt.resident.jpeg=host"):
        build_stages(GPU)


def test_it_needs_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    Calls().install(monkeypatch)
    with pytest.raises(OptionError, match=r"neither nvImageCodec nor torchvision .* pip install torchvision, or use"):
        build_stages(GPU, replace(reference_stages(), device="cuda"))


def test_one_that_decodes_nothing_is_reported_at_the_first_step(
    monkeypatch: pytest.MonkeyPatch, stages: Stages, plan: ShotPlan
) -> None:
    Calls().install(monkeypatch, "torchvision").decodes = False
    with pytest.raises(ConfigError, match="torchvision is installed, but"):
        fed(stages, plan, 0)


def test_there_are_two_values() -> None:
    with pytest.raises(OptionError, match="'resident': jpeg is nvjpeg, but must be one of host, gpu"):
        build_stages({"resident": {"share": 1.0, "jpeg": "nvjpeg"}})
    with pytest.raises(ConfigError, match=r"opt.resident.jpeg is 'nvjpeg', but must be one of host, gpu"):
        check_options({"resident": {"share": 1.0, "jpeg": "nvjpeg"}})


# On a GPU


def apart(capture: Capture, device: torch.device) -> Iterator[torch.Tensor]:
    """Levels between the images of steps and those that the host decodes."""
    stages = build_stages(GPU, base_stages("native", device))
    plan = ShotPlan(capture, seed=3, lidar_rays=128)
    for step in range(25):
        shots = stages.feed.fetch(stages, replace(tiny_state(), plan=plan, step=step, device=device))
        assert shots.images[0].image.is_cuda
        yield (shots.images[0].image.cpu().int() - plan.load(step).images[0].image.int()).abs().float()
    assert isinstance(stages.feed.fetch, Resident) and stages.feed.fetch.store is not None
    stages.close()


@pytest.mark.gpu
@pytest.mark.parametrize("downscale", [1, 2])
def test_on_a_gpu_shots_are_those_of_the_host_up_to_rounding(drive: Path, downscale: int) -> None:
    if not libraries():
        pytest.skip("needs nvImageCodec or torchvision")
    for levels in apart(read_pack(drive, downscale=downscale).with_split("interp"), torch.device("cuda")):
        assert levels.mean() < 1 and 10 * torch.log10(255**2 / levels.square().mean()) > 40
