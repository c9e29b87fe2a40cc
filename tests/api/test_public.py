# SPDX-License-Identifier: Apache-2.0
"""The public surface: its names and signatures are those of public.txt, and `nurec_lite.train` is a function and a command."""

import inspect
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import nurec_lite
from nurec_lite.train import run

LISTED = Path(__file__).with_name("public.txt")
OWN = ("nurec_lite.api.",)  # modules whose classes are listed with their members


def surface() -> Iterator[str]:
    """A line for each public name: functions and methods with their signatures, dataclasses with their fields."""
    for name in sorted(set(dir(nurec_lite)) & nurec_lite._PUBLIC.keys()):
        value = getattr(nurec_lite, name)
        if inspect.isfunction(value):
            yield f"{name}{inspect.signature(value)}"
            continue
        yield f"class {name}"
        if value.__module__.startswith(OWN):
            yield from (f"    {line}" for line in members(value))


def members(cls: type) -> Iterator[str]:
    if is_dataclass(cls):
        yield from (f"{f.name}: {f.type}" for f in fields(cls))
    for name, value in sorted(vars(cls).items()):
        if inspect.isfunction(value) and not name.startswith("_"):
            yield f"{name}{inspect.signature(value)}"
        elif isinstance(value, property):
            yield f"{name}: property"


def test_the_surface_is_that_of_the_list() -> None:
    """A deliberate change of the surface changes this list as well, and CHANGELOG.md says so."""
    assert "\n".join(surface()) + "\n" == LISTED.read_text()


def test_the_stub_names_the_same() -> None:
    stub = (Path(nurec_lite.__file__).with_suffix(".pyi")).read_text()
    named = {line.rpartition(" as ")[2] for line in stub.splitlines() if " as " in line}
    assert named == nurec_lite._PUBLIC.keys() and (Path(nurec_lite.__file__).parent / "py.typed").exists()


def test_train_is_a_function_after_its_module_was_imported() -> None:
    """This file has imported the module before."""
    assert inspect.isfunction(nurec_lite.train) and inspect.ismodule(sys.modules["nurec_lite.train"]) and callable(run)


def test_train_stays_a_function_when_its_module_is_imported_later() -> None:
    code = "import nurec_lite; first = nurec_lite.train; import nurec_lite.train; from nurec_lite.train import HELP; "
    subprocess.run([sys.executable, "-c", f"{code}assert nurec_lite.train is first and callable(first)"], check=True)


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
def test_train_is_a_command_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m` finds and runs it."""
    monkeypatch.setattr(sys, "argv", ["nurec_lite.train", "seed=-1"])
    monkeypatch.setattr(signal, "signal", lambda *given: None)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("nurec_lite.train", run_name="__main__", alter_sys=True)
    assert ended.value.code == 2 and capsys.readouterr().err.startswith("error: seed is -1, but must lie between 0 and")


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import nurec_lite, sys; assert not {'torch', 'numpy', 'hydra'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_what_there_is_not_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'nurec_lite' has no attribute 'trane'"):
        nurec_lite.trane  # noqa: B018
