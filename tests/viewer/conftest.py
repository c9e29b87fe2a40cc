# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the viewer's tests: the tiny drive, opened, a screen without a browser, and a worker whose jobs a test runs itself."""

import pytest
import torch
from tiny_capture import tiny_capture, tiny_scene
from viewer_doubles import ByHand, Screen

from nurec_lite.cli.reconstruction import Reconstruction
from nurec_lite.config import ViewConfig
from nurec_lite.training.baseline import reference_stages


@pytest.fixture
def run() -> Reconstruction:
    config = ViewConfig(checkpoint="none.pt", device="cpu")
    return Reconstruction(
        config, reference_stages(), tiny_scene(), tiny_capture(), torch.device("cpu"), {"step": 7}, []
    )


@pytest.fixture
def screen() -> Screen:
    return Screen()


@pytest.fixture
def by_hand() -> ByHand:
    return ByHand()
