# SPDX-License-Identifier: Apache-2.0
"""The clock of the device (kernels/update/clock.cu), on CUDA alone."""

import time

import pytest
import torch
from operators import check_schema
from parity import DEVICES
from warp_tile_scenes import driven

from nurec_lite.native.operators.clock import begin_clock, end_clock

LONG = 0.003  # seconds that the test lets pass, at least
STEP = 2e-6  # seconds: a GPU's clock has steps of a microsecond


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return driven(request.param)


def now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.monotonic()


def test_the_time_is_that_of_the_host_within_the_calls(device: torch.device) -> None:
    clock, message = torch.zeros(1, dtype=torch.int64, device=device), torch.full((70,), -5.0, device=device)
    for _ in range(2):  # a clock begins anew
        before = now(device)
        begin_clock(clock)
        begun = now(device)
        while time.monotonic() < begun + LONG:
            pass
        ending = now(device)
        end_clock(clock, message[-1:])
        after = now(device)
        seconds = 1e-6 * float(message[-1])
        assert (1 - 1e-4) * (ending - begun) - STEP <= seconds <= (1 + 1e-4) * (after - before) + STEP
    assert (message[:-1] == -5).all()


def test_wrong_arguments_are_refused(device: torch.device) -> None:
    clock, elapsed = torch.zeros(1, dtype=torch.int64, device=device), torch.zeros(1, device=device)
    with pytest.raises(ValueError, match="clock"):
        begin_clock(clock.expand(2).contiguous())
    with pytest.raises((TypeError, ValueError), match="elapsed"):
        end_clock(clock, elapsed.double())
    with pytest.raises((TypeError, ValueError), match="clock"):
        end_clock(elapsed, elapsed)


def test_the_schemas(device: torch.device) -> None:
    clock, elapsed = torch.zeros(1, dtype=torch.int64, device=device), torch.zeros(1, device=device)
    check_schema(torch.ops.nurec_lite.begin_clock, (clock,))
    check_schema(torch.ops.nurec_lite.end_clock, (clock, elapsed))
