# SPDX-License-Identifier: Apache-2.0
"""A deferred module runs at the first use of a name, once, and then is a plain module."""

import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from threading import Thread
from types import ModuleType

import pytest

from nurec_lite.base.deferred import Deferred


def deferred(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = PathFinder.find_spec(name, [str(path)])
    assert isinstance(spec, ModuleSpec) and spec.loader is not None
    spec.loader = Deferred(spec.loader)
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def test_it_runs_at_the_first_use_of_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "later_one.py").write_text("import later_one\nruns = getattr(later_one, 'runs', 0) + 1\n")
    module = deferred(tmp_path, "later_one", monkeypatch)
    assert module.__file__ == str(tmp_path / "later_one.py") and "runs" not in vars(module)
    assert module.runs == 1 and type(module) is ModuleType
    with pytest.raises(AttributeError, match="missing"):
        _ = module.missing


def test_submodules_wait_for_their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "later_two").mkdir()
    (tmp_path / "later_two/__init__.py").write_text("ready = True\n")
    (tmp_path / "later_two/inner.py").write_text("import later_two\nseen = 'ready' in vars(later_two)\n")
    module = deferred(tmp_path, "later_two", monkeypatch)
    monkeypatch.delitem(sys.modules, "later_two.inner", raising=False)
    from later_two.inner import seen  # type: ignore[import-not-found]

    assert seen and module.ready


def test_threads_wait_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "later_three.py").write_text("import threading\nthreading.Event().wait(0.05)\nvalue = 7\n")
    module, found = deferred(tmp_path, "later_three", monkeypatch), list[int]()
    threads = [Thread(target=lambda: found.append(module.value)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [7] * 4
