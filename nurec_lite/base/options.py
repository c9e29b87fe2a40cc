# SPDX-License-Identifier: Apache-2.0
"""The options and their parameters, from the files conf/opt/NAME.yaml."""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from omegaconf import OmegaConf

from nurec_lite.base.errors import OptionError
from nurec_lite.base.paths import resource

SHELVES = ("post", "all", "lab")  # folders of nurec_lite/opt; an option of your own may lie in nurec_lite/opt itself


def option_module(name: str) -> ModuleType:
    """Imports the module of an option."""
    shelved = [f"nurec_lite.opt.{shelf}.{name}" for shelf in SHELVES]
    return import_module(next(filter(find_spec, shelved), f"nurec_lite.opt.{name}"))


def known_options() -> tuple[str, ...]:
    """Names of all options."""
    return tuple(sorted(p.stem for p in resource("conf/opt").glob("*.yaml") if p.stem != "all"))


def unknown_option(name: str) -> OptionError:
    return OptionError(f"option '{name}' is unknown; the options are {', '.join(known_options())}, and all")


def parameters_of(name: str) -> dict[str, Any]:
    """The parameters that conf/opt/NAME.yaml gives an option."""
    loaded = OmegaConf.to_container(OmegaConf.load(resource(f"conf/opt/{name}.yaml")))
    assert isinstance(loaded, dict)
    return dict(loaded[name] or {})
