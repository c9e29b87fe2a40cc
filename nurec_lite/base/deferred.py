# SPDX-License-Identifier: Apache-2.0
"""Modules that are loaded at the first use of one of their names.

`importlib.util.LazyLoader` also loads a module that `inspect` looks at, or that is imported a second time.
"""

from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from threading import RLock
from types import ModuleType
from typing import Any


class Deferred(Loader):
    """Loader of a module that waits."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__.pop("__path__", None)  # submodules need the package
        module.__class__ = _Waiting


class _Waiting(ModuleType):
    """A module without names of its own."""

    def __getattr__(self, name: str) -> Any:
        with _LOCK:
            spec = self.__spec__
            if spec is not None and isinstance(spec.loader, Deferred):
                self._load(spec, spec.loader.loader)
        return ModuleType.__getattribute__(self, name)

    def _load(self, spec: ModuleSpec, loader: Loader) -> None:
        """Runs the module, which may ask for its own names meanwhile. Other threads wait."""
        spec.loader = self.__dict__["__loader__"] = loader
        if spec.submodule_search_locations is not None:
            self.__path__ = spec.submodule_search_locations
        loader.exec_module(self)
        self.__class__ = ModuleType  # type: ignore[assignment]


_LOCK = RLock()
