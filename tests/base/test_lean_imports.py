# SPDX-License-Identifier: Apache-2.0
"""A command imports torch without garbage collection and without the parts that compilers need."""

import gc
import inspect
import subprocess
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
import torch

from nurec_lite.base import lean_imports
from nurec_lite.base.lean_imports import begin_imports, end_imports

LEAN = """
import sys
from nurec_lite.base.early_libraries import begin_libraries
from nurec_lite.base.lean_imports import FINDER, begin_imports, end_imports
thread = begin_libraries()
begin_imports()
import torch
thread.join()
end_imports()
assert "torch._decomp" not in sys.modules
assert torch.Generator().manual_seed(3).initial_seed() == 3
assert torch.linalg.svdvals(torch.eye(3)).tolist() == [1, 1, 1]
assert torch.distributions.Normal(0.0, 1.0).mean == 0
import torch._prims.rng_prims
assert torch.Generator().manual_seed(3).initial_seed() == 3
import torch.export.graph_signature
assert torch.export.export is not None
assert "torch._decomp" not in sys.modules or "torch._meta_registrations" in sys.modules
FINDER.find_spec("torch._dynamo")
assert torch._meta_registrations.meta_addbmm is not None and "torch._decomp" in sys.modules
"""


NO_EXTENSIONS = """
import logging, sys
from importlib.machinery import ExtensionFileLoader
from nurec_lite.base.early_libraries import begin_libraries
begin_libraries()
before = set(sys.modules)
import hydra
new = [name for name, module in sys.modules.items() if name not in before]
late = [name for name in new if isinstance(getattr(sys.modules[name].__spec__, "loader", None), ExtensionFileLoader)]
assert len(new) > 100 and late == [], late
"""


def test_garbage_is_collected_again() -> None:
    begin_imports()
    assert not gc.isenabled()
    end_imports()
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    assert gc.isenabled() and frozen > 1000


def test_modules_of_frames_are_those_that_inspect_finds() -> None:
    frame, whole = inspect.currentframe(), inspect.getmodule
    begin_imports()
    found = inspect.getmodule(frame), inspect.getmodule(gc), inspect.getmodule(begin_imports)
    end_imports()
    assert inspect.getmodule is whole
    assert found == (sys.modules[__name__], whole(gc), whole(begin_imports))


def test_hydra_waits_for_no_library_while_those_of_torch_load() -> None:
    """Its modules of compiled code are there before."""
    subprocess.run([sys.executable, "-c", NO_EXTENSIONS], check=True, timeout=120)


def test_the_compilers_parts_of_torch_come_when_they_are_used() -> None:
    subprocess.run([sys.executable, "-c", LEAN], check=True, timeout=120)


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.2])
def test_a_command_that_ends_while_libraries_load_ends_cleanly(seconds: float) -> None:
    text = f"import time\nfrom nurec_lite.base.early_libraries import begin_libraries\nbegin_libraries()\ntime.sleep({seconds})\nexit(2)"
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (2, "")


def test_the_new_name_of_a_private_part_of_torch_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch 2.14 prints a warning at each start when a program imports the old one."""
    part, given = ModuleType("torch._custom_class_base"), []
    part.__spec__, part.CustomClassBaseMeta = ModuleSpec(part.__name__, None), int  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, part.__name__, part)
    monkeypatch.setattr(torch._C, "_set_generator_metaclass", given.append, raising=False)
    lean_imports._let_generators_be_made()
    assert given == [int]
