# SPDX-License-Identifier: Apache-2.0
"""Processes that decode: how many there are."""

import pytest

from nurec_lite.capture import decoders
from nurec_lite.capture.decoders import KEPT


@pytest.mark.parametrize(("cores", "ranks", "expected"), [(16, 1, 16 - KEPT), (32, 2, 16 - KEPT), (2, 1, 1), (4, 4, 1)])
def test_ranks_of_one_host_share_its_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, ranks: int, expected: int
) -> None:
    """Ranks on other hosts take none of them."""
    monkeypatch.setattr(decoders, "cores", lambda: cores)
    place = {"WORLD_SIZE": 2 * ranks, "RANK": ranks - 1, "LOCAL_RANK": ranks - 1, "LOCAL_WORLD_SIZE": ranks}
    for name, value in {**place, "MASTER_ADDR": "localhost", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    assert decoders.decoders() == expected
