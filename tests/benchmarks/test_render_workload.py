# SPDX-License-Identifier: Apache-2.0
"""The scenes and views of the benchmarks of rendering: their contents, the same each time."""

import argparse
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from tiny_capture import tiny_capture, tiny_config, tiny_state
from torch import Tensor

from benchmarks.render.workload import SIZES, Size, Workload, add_arguments, make_workloads
from nurec_lite.backends import base_stages
from nurec_lite.base.errors import UserError
from nurec_lite.capture.pack import write_pack
from nurec_lite.config import DataConfig
from nurec_lite.splat.views import CameraView, LidarView
from nurec_lite.training.loop import save

CPU = torch.device("cpu")
TINY = Size(48, 28, 8, 48, 200, 30, 100)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "small", TINY)


def workloads(*arguments: str) -> list[Workload]:
    p = argparse.ArgumentParser()
    add_arguments(p)
    return make_workloads(p.parse_args(["--size", "small", *arguments]), CPU)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    write_pack(tiny_capture(), folder / "tiny.pack")
    state = tiny_state(tiny_config(data=DataConfig(kind="pack", root=str(folder / "tiny.pack"))))
    state.step = 7
    with torch.no_grad():
        state.scene.gaussians.means += 0.5
    save(state, folder / "checkpoint.pt")
    return folder / "checkpoint.pt"


def tensors(workload: Workload) -> dict[str, Tensor]:
    found = workload.scene.parameters() | {"node": workload.scene.gaussians.node}
    for sensor, view in workload.views.items():
        of_view = {f"{sensor} {f.name}": getattr(view, f.name) for f in fields(view)}
        found |= {name: value for name, value in of_view.items() if isinstance(value, Tensor)}
    return found


def assert_same(a: Workload, b: Workload) -> None:
    for name, value in tensors(a).items():
        assert torch.equal(value, tensors(b)[name]), name


def sees(workload: Workload, sensor: str) -> float:
    """The largest opacity of any ray."""
    stages, view = base_stages("native", CPU), workload.views[sensor]
    with torch.no_grad():
        (gaussians,) = stages.render.gather(stages, workload.scene, (view,)).gaussians
        pairs = stages.render.tile(stages.render.project(gaussians, view), view)
        if isinstance(view, CameraView):
            return float(stages.render.render_camera(gaussians, view, pairs, workload.scene.sky).opacity.max())
        return float(stages.render.render_lidar(gaussians, view, pairs).opacity.max())


def test_a_checkpoint_with_its_capture(checkpoint: Path) -> None:
    (found,) = workloads("--workloads", "captured", "--checkpoint", str(checkpoint))
    assert found.described == {"capture": "street_0", "scene": "trained, 7 steps"}
    first = tiny_state().scene.gaussians
    assert torch.equal(found.scene.gaussians.means, first.means + 0.5)
    camera, lidar = found.views["camera"], found.views["lidar"]
    assert isinstance(camera, CameraView) and isinstance(lidar, LidarView)
    held_out = [frame for frame in tiny_capture().images if frame.index == 9 and frame.sensor == "camera_0"]
    assert camera.time_start == held_out[0].time_start  # of those held out, 4 and 9, the latter
    assert camera.camera.name == "camera_0" and len(lidar.directions) == len(tiny_capture().sweeps[9].load())
    assert min(sees(found, "camera"), sees(found, "lidar")) > 0.3


def test_an_enlarged_image_is_seen_from_the_same_place(checkpoint: Path) -> None:
    given = ["--workloads", "captured", "--checkpoint", str(checkpoint)]
    (once,), (found,) = workloads(*given), workloads(*given, "--enlarge", "1.5")
    view, larger = once.views["camera"], found.views["camera"]
    assert isinstance(view, CameraView) and isinstance(larger, CameraView)
    assert (larger.camera.width, larger.camera.height) == (1.5 * view.camera.width, 1.5 * view.camera.height)
    point = torch.tensor([[1.0, -2.0, 9.0]])
    pixels, z = (torch.cat(x) for x in zip(*(v.project(point, torch.zeros(1, 3)) for v in (view, larger)), strict=True))
    torch.testing.assert_close(pixels[1], 1.5 * pixels[0])
    assert z[0] == z[1] and found.described["enlarged"] == 1.5
    with pytest.raises(UserError, match="--enlarge is 0, but must be more than 0"):
        workloads(*given, "--enlarge", "0")


def test_the_simulated_street() -> None:
    (found,) = workloads("--workloads", "simulated")
    camera, lidar = found.views["camera"], found.views["lidar"]
    assert isinstance(camera, CameraView) and isinstance(lidar, LidarView)
    assert (camera.camera.width, camera.camera.height) == (48, 28)
    assert len(lidar.directions) == 8 * 48 and found.scene.gaussians.sh_rest.shape[1] == 15
    assert 0.4 < camera.time_mid < 0.5  # the fifth tenth of a second
    assert min(sees(found, "camera"), sees(found, "lidar")) > 0.3
    assert_same(found, workloads("--workloads", "simulated")[0])


def test_random_scenes() -> None:
    found, other, more = (
        workloads("--workloads", "random", *a)[0] for a in ((), ("--seed", "1"), ("--gaussians", "300"))
    )
    assert len(found.scene.gaussians) == 100 and len(more.scene.gaussians) == 300
    assert_same(found, workloads("--workloads", "random")[0])
    assert not torch.equal(found.scene.gaussians.means, other.scene.gaussians.means)
    metres = found.scene.gaussians.means.norm(dim=-1)
    assert metres.min() >= 2 and metres.max() <= 80
    lidar = found.views["lidar"]
    assert isinstance(lidar, LidarView) and len(lidar.directions) == 4 * 48
    torch.testing.assert_close(lidar.lidar.spin_fraction(torch.atan2(*lidar.directions[:, [1, 0]].T)), lidar.fractions)
    assert min(sees(found, "camera"), sees(found, "lidar")) > 0.3
