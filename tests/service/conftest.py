# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the service's tests: a service of one small scene, and a client."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # without the extra `serve` this file must load, or no test skips
    from nurec_lite.service.client import Sensorsim
    from nurec_lite.service.service import Service


def pytest_pycollect_makemodule() -> None:
    """Skips all files of this folder without the packages of the extra `serve`."""
    pytest.importorskip("google.protobuf")
    pytest.importorskip("grpc")


@pytest.fixture(scope="package")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run, with few.yaml next to it. Tests only read them."""
    from served import BEAMS, tiny_run

    folder = tmp_path_factory.mktemp("served")
    (folder / "few.yaml").write_text(BEAMS)
    return tiny_run(folder / "mine")


@pytest.fixture(scope="package")
def service(run: Path) -> "Iterator[Service]":
    """Moving actors that a request does not name are where they were driven."""
    from served import service_of

    with service_of(run, unlisted="recorded", patterns=[str(run.parent / "few.yaml")], max_pixels=100_000) as served:
        yield served


@pytest.fixture(scope="package")
def client(service: "Service") -> "Iterator[Sensorsim]":
    from nurec_lite.service.client import Sensorsim

    with Sensorsim(f"127.0.0.1:{service.port}") as one:
        yield one
