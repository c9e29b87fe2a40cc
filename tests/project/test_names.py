# SPDX-License-Identifier: Apache-2.0
"""One name in six places: an option X has a configuration, a module, a test, a benchmark and a row in the README."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFIGURED = sorted(p.stem for p in (ROOT / "conf/opt").glob("*.yaml") if p.stem != "all")
BENCHMARKS = {  # those with another name
    "fused_interp": "bench_interpolate",  # called after the stage, whose other versions it times, too
    **dict.fromkeys(("split_backward", "launch_bounds", "shared_memory"), "sweep_launch_bounds"),  # one table
}
MODULES = sorted(p.stem for p in (ROOT / "nurec_lite/opt").glob("*.py") if not p.stem.startswith("_"))


def test_there_are_options() -> None:
    assert CONFIGURED and MODULES


@pytest.mark.parametrize("name", CONFIGURED)
@pytest.mark.parametrize("place", ["nurec_lite/opt/{}.py", "tests/test_{}.py", "benchmarks/{}.py"])
def test_option_has_its_file(name: str, place: str) -> None:
    subject = BENCHMARKS.get(name, f"bench_{name}") if place.startswith("benchmarks") else name
    assert (ROOT / place.format(subject)).is_file()


@pytest.mark.parametrize("name", CONFIGURED)
def test_option_has_a_row_in_the_readme(name: str) -> None:
    readme = (ROOT / "README.md").read_text()
    assert re.search(rf"^\|.*`{name}`", readme, re.MULTILINE), f"no table row of README.md names `{name}`"


@pytest.mark.parametrize("name", MODULES)
def test_module_has_its_configuration(name: str) -> None:
    assert name in CONFIGURED
