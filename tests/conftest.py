# SPDX-License-Identifier: Apache-2.0
"""What all tests share: seeds, threads, the marker `gpu`, and the KITTI capture."""

import os
from pathlib import Path

# before torch is imported: a busy machine is slow enough without spinning
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import hypothesis
import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]

if os.environ.get("NUREC_LITE_EMULATE_CUDA") == "1":
    import emulation

    emulation.install()

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
hypothesis.settings.register_profile("seeded", derandomize=True, deadline=None, max_examples=25)
hypothesis.settings.load_profile("seeded")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def kitti_root() -> Path:
    """KITTI raw drive 2011_09_26_0009, never part of the project. Where it is absent a test skips, or fails if CI is set."""
    root = Path(os.environ.get("NUREC_KITTI", ROOT.parent / "shared/data/kitti_raw_0009"))
    if not (root / "2011_09_26").is_dir():
        absent = pytest.fail if os.environ.get("CI") else pytest.skip
        absent(f"no KITTI raw capture at {root}; set NUREC_KITTI to the folder that holds 2011_09_26")
    return root
