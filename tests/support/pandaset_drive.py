# SPDX-License-Identifier: Apache-2.0
"""The slice of PandaSet next to the checkout."""

import os
from pathlib import Path

import pytest

from nurec_lite.capture.pandaset import read
from nurec_lite.capture.types import Capture

FOLDER = Path(__file__).resolve().parents[2].parent / "shared/data/pandaset/002"
needs_pandaset = pytest.mark.skipif(
    not FOLDER.is_dir() and not os.environ.get("CI"), reason="PandaSet is not here, and CI is not set"
)


def read_pandaset(cameras: tuple[str, ...] | None = None, downscale: int = 1) -> Capture:
    return read.read_pandaset(FOLDER, cameras=cameras, downscale=downscale)
