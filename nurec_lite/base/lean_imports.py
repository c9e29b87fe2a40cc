# SPDX-License-Identifier: Apache-2.0
"""Imports of a command without work that no command needs: garbage collection, torch's parts for compilers, and searches for modules."""

import gc
import inspect
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from nurec_lite.base.deferred import Deferred

PARTS = (  # two fifths of torch's import
    "torch._meta_registrations", "torch.export", "torch.distributions", "torch.masked", "torch.utils.data", "torchgen.model",
    "torch.ao", "torch.quantization", "torch.nn.intrinsic", "torch.nn.qat", "torch.nn.quantizable", "torch.nn.quantized",
)  # fmt: skip
COMPILER = "torch._dynamo"  # which needs the first of them


class _Finder:
    """Finds torch's parts, to be loaded at the first use of a name. The compiler loads all of them: some only register functions."""

    waits = True

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == COMPILER:
            self.load()
        spec = PathFinder.find_spec(name, path, target) if name in PARTS and self.waits else None
        if spec is not None and spec.loader is not None:
            spec.loader = Deferred(spec.loader)
        return spec

    def load(self) -> None:
        """Loads the parts that wait. Any name of them does it."""
        self.waits = False
        for name in PARTS:
            getattr(import_module(name), "__path__", None)


def begin_imports() -> None:
    gc.disable()
    inspect.getmodule = _module_of  # type: ignore[assignment]
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, FINDER)


def end_imports() -> None:
    """Collects garbage again, without a search through the imported objects."""
    inspect.getmodule = _GETMODULE
    _let_generators_be_made()
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def _let_generators_be_made() -> None:
    """Sets the metaclass of Generator: torch 2.13 makes none before a part for compilers has set it. Setting it again changes nothing."""
    ready = getattr(sys.modules.get("torch._C"), "_set_generator_metaclass", None)
    if ready is not None:
        known = find_spec("torch._custom_class_base") is not None  # torch 2.14; its torch._opaque_base prints a warning
        module, name = ("_custom_class_base", "CustomClassBaseMeta") if known else ("_opaque_base", "OpaqueBaseMeta")
        ready(getattr(import_module(f"torch.{module}"), name))


FINDER = _Finder()
_GETMODULE: Any = inspect.getmodule


def _module_of(asked: Any, filename: str | None = None) -> ModuleType | None:
    """The module of a frame by its name. torch asks for a few; inspect resolves the paths of all modules for that, which takes 0.2 s."""
    named = sys.modules.get(asked.f_globals.get("__name__", "")) if inspect.isframe(asked) else None
    return _GETMODULE(asked, filename) if named is None else named
