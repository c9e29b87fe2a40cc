# SPDX-License-Identifier: Apache-2.0
"""The raw page of ncu: columns by name, units converted, missing measurements, and files that are no pages."""

from pathlib import Path

import pytest
from ncu_page import page, write_page

from nurec_lite.profiling.errors import ProfileError
from nurec_lite.profiling.ncu.csv import Launch, parse_unit, read_launches

DURATION, REGISTERS = "gpu__time_duration.sum", "launch__registers_per_thread"


def read(folder: Path, text: str) -> list[Launch]:
    return read_launches(write_page(folder / "ncu.csv", text))


def test_a_row_a_launch_and_lines_of_ncu_are_skipped(tmp_path: Path) -> None:
    noise = '==PROF== Connected to process 7\n==WARNING== a "quote, and more\nstep 3, loss 0.1\n'
    first, second = read(tmp_path, page({}, {"ID": "1", "Kernel Name": "tile(int, float)"}, before=noise))
    assert (
        first.text("Kernel Name") == "void blend<3>(Params, int)" and second.text("Kernel Name") == "tile(int, float)"
    )
    assert (first.cells["ID"], second.cells["ID"]) == ("0", "1")


def test_a_byte_order_mark_and_unicode_names(tmp_path: Path) -> None:
    (launch,) = read(tmp_path, "\ufeff" + page({"Kernel Name": "mélange_Größe_点(int)"}))
    assert launch.text("Kernel Name") == "mélange_Größe_点(int)"


@pytest.mark.parametrize(
    ("unit", "cell", "seconds"),
    [("nsecond", "1,234,567", 1.234567e-3), ("ns", "1500.5", 1.5005e-6), ("usecond", "2", 2e-6), ("ms", "3", 3e-3), ("s", "4", 4.0)],
)  # fmt: skip
def test_times_are_seconds(tmp_path: Path, unit: str, cell: str, seconds: float) -> None:
    (launch,) = read(tmp_path, page({DURATION: cell}, units={DURATION: unit}))
    assert launch.number(DURATION, "second") == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", (1.0, "")), ("%", (1.0, "%")), ("register/thread", (1.0, "")), ("Kbyte/block", (1e3, "byte")),
        ("byte/second", (1.0, "byte/second")), ("Gbyte/s", (1e9, "byte/second")), ("byte/usecond", (1e6, "byte/second")),
        ("cycle/nsecond", (1e9, "cycle/second")), ("Mhz", (1e6, "cycle/second")), ("hz", (1.0, "cycle/second")),
        ("sectors", (1.0, "")), ("inst/cycle", (1.0, "1/cycle")), ("byte/cycle", (1.0, "byte/cycle")), ("cycle", (1.0, "")),
    ],
)  # fmt: skip
def test_units(text: str, expected: tuple[float, str]) -> None:
    scale, dimension = parse_unit(text)
    assert (scale, dimension) == (pytest.approx(expected[0], rel=1e-12), expected[1])


@pytest.mark.parametrize("text", ["Xbyte", "Kinst", "byte/Fortnight"])
def test_unknown_units_are_reported(tmp_path: Path, text: str) -> None:
    (launch,) = read(tmp_path, page({}, units={DURATION: text}))
    with pytest.raises(ProfileError, match=rf"unit '{text}' of {DURATION} is unknown; export .*--print-units base"):
        launch.number(DURATION, "second")


@pytest.mark.parametrize("text", ["byte", "furlong", "cycle/second", ""])
def test_a_unit_of_another_kind_is_reported(tmp_path: Path, text: str) -> None:
    (launch,) = read(tmp_path, page({}, units={DURATION: text}))
    with pytest.raises(ProfileError, match=f"is given in '{text}', which is no second"):
        launch.number(DURATION, "second")


@pytest.mark.parametrize("cell", ["", " ", "n/a", "N/A", "nan", "-nan", "(!) n/a", "inf"])
def test_what_was_not_measured_is_none(tmp_path: Path, cell: str) -> None:
    (launch,) = read(tmp_path, page({REGISTERS: cell}))
    assert launch.number(REGISTERS) is None and launch.number("no such column", "byte") is None


def test_zero_is_a_measurement(tmp_path: Path) -> None:
    (launch,) = read(tmp_path, page({REGISTERS: "0"}))
    assert launch.number(REGISTERS) == 0.0


@pytest.mark.parametrize("cell", ["12,5", "1.234,5", "many", "1,2345"])
def test_a_cell_that_is_no_number_is_reported(tmp_path: Path, cell: str) -> None:
    (launch,) = read(tmp_path, page({REGISTERS: cell}))
    with pytest.raises(ProfileError, match=rf"{REGISTERS} is '{cell}', which is no number; .*LC_ALL=C"):
        launch.number(REGISTERS)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is no raw page of ncu"),
        ("==ERROR== nothing\n", "is no raw page of ncu"),
        ("a,b\n1,2\n", r"no column 'Kernel Name'\); export it with --csv --page raw"),
        (page({}, without=("ID", DURATION)), f"has no column ID nor {DURATION}; take the profile again"),
        (page(), "holds no launch"),
        (page({}).splitlines()[0] + "\n", "holds no launch"),
        ("\n".join(page({}).splitlines()[::2]) + "\n", "has no row of units"),
        (page({}).rpartition(',"')[0] + "\n", "is cut off: row 1 below the header has"),
    ],
)
def test_pages_that_are_none(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ProfileError, match=sentence):
        read(tmp_path, text)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"absent\.csv cannot be read \(No such file"):
        read_launches(tmp_path / "absent.csv")
