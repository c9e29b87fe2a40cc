# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the Python interface's tests: an untrained scene, and a pack."""

from pathlib import Path

import pytest
import torch
from tiny_capture import tiny_capture, tiny_scene

from nurec_lite.api.scene import TrainedScene
from nurec_lite.capture.pack import write_pack
from nurec_lite.cli.reconstruction import Reconstruction
from nurec_lite.config import RenderConfig
from nurec_lite.training.baseline import reference_stages


@pytest.fixture(scope="module")
def scene() -> TrainedScene:
    config = RenderConfig(checkpoint="none.pt", device="cpu")
    run = Reconstruction(config, reference_stages(), tiny_scene(), tiny_capture(), torch.device("cpu"), {}, [])
    return TrainedScene(run, Path("none"))


@pytest.fixture(scope="session")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("api") / "tiny.pack"
    write_pack(tiny_capture(), path, image_format="png")
    return path
