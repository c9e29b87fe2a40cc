# SPDX-License-Identifier: Apache-2.0
"""Phases of a run are printed once, in the order of their beginnings."""

import logging

import pytest

from nurec_lite.base.bytecode import compiled_anew
from nurec_lite.base.phases import Phase, Phases, phases
from nurec_lite.base.ranges import span


def test_phases_of_one_name_are_added_up_and_deep_ones_left_out() -> None:
    found = Phases([Phase("read/files", 1.5, 2.0), Phase("poses", 1.2, 3.0), Phase("read", 1.0, 2.5)])
    found.found += [Phase("read/files", 2.1, 2.2), Phase("read/files/one", 1.6, 1.7)]
    rows = [line.split() for line in found.table().splitlines()[1:]]
    assert rows == [["read", "1.00", "1.50"], ["files", "1.50", "0.60"], ["poses", "1.20", "1.80"]]


def test_they_are_printed_also_if_the_run_fails(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), pytest.raises(ValueError, match="late"), phases(True), span("read"):
        raise ValueError("late")
    said = caplog.records[0].getMessage()
    assert "imports and configuration" in said and "read" in said
    assert [record.getMessage() for record in caplog.records[1:]] == list(filter(None, [compiled_anew()]))


def test_nothing_is_recorded_unless_wanted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), phases(False), span("read"):
        pass
    assert not caplog.records
