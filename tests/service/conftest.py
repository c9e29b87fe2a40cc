# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the service's tests: a service of one small scene, and a client."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from served import BEAMS, service_of, tiny_run

from nurec_lite.service.client import Sensorsim
from nurec_lite.service.service import Service


@pytest.fixture(scope="package")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run, with few.yaml next to it. Tests only read them."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "few.yaml").write_text(BEAMS)
    return tiny_run(folder / "mine")


@pytest.fixture(scope="package")
def service(run: Path) -> Iterator[Service]:
    """Moving actors that a request does not name are where they were driven."""
    with service_of(run, unlisted="recorded", patterns=[str(run.parent / "few.yaml")], max_pixels=100_000) as served:
        yield served


@pytest.fixture(scope="package")
def client(service: Service) -> Iterator[Sensorsim]:
    with Sensorsim(f"127.0.0.1:{service.port}") as one:
        yield one
