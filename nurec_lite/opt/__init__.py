# SPDX-License-Identifier: Apache-2.0
"""Options: each a module with `apply(stages, **parameters) -> Stages`, applied once, before the loop, in the order given.

A module also states `CLASS` (exact: same numbers up to rounding; close: within a stated tolerance; quality: changes training),
`REQUIRES` (options that must be given too) and `unavailable(stages)` (why it cannot run here, on these
stages of the baseline, or None).
"""

import inspect
import logging
from importlib import import_module
from types import ModuleType
from typing import Any

from omegaconf import OmegaConf

from nurec_lite.paths import resource
from nurec_lite.stages import OptionError, Stages

CLASSES = ("exact", "close", "quality")
log = logging.getLogger(__name__)


def known_options() -> tuple[str, ...]:
    """Names of all options, from conf/opt."""
    return tuple(sorted(p.stem for p in resource("conf/opt").glob("*.yaml") if p.stem != "all"))


def build_stages(
    options: dict[str, dict[str, Any]],  # name -> parameters, in the order of the command line
    base: Stages | None = None,  # what options change; None: the reference
) -> Stages:
    """The stages with all options applied; OptionError names what is wrong."""
    stages = base or Stages()
    options = _expand_all(options, stages)
    modules = {name: _module(name) for name in options}
    for name, module in modules.items():
        _check(name, module, tuple(options), stages)
    for name, module in modules.items():
        stages = module.apply(stages, **_parameters(name, module, options[name] or {}))
        log.info("option %s (%s)", name, module.CLASS)
    return stages


def _parameters(name: str, module: ModuleType, given: dict[str, Any]) -> dict[str, Any]:
    """Those given, if `apply` takes them."""
    try:
        inspect.signature(module.apply).bind(None, **given)
    except TypeError as error:
        known = ", ".join(parameters_of(name)) or "none"
        raise OptionError(f"option '{name}': {error}; its parameters are {known} (conf/opt/{name}.yaml)") from error
    return given


def _module(name: str) -> ModuleType:
    if name not in known_options():
        raise unknown_option(name)
    return import_module(f"nurec_lite.opt.{name}")


def unknown_option(name: str) -> OptionError:
    return OptionError(f"option '{name}' is unknown; the options are {', '.join(known_options())}, and all")


def _check(name: str, module: ModuleType, given: tuple[str, ...], base: Stages) -> None:
    assert module.CLASS in CLASSES, f"{name} declares no class"
    missing = [required for required in module.REQUIRES if required not in given]
    if missing:
        raise OptionError(f"option '{name}' requires '{missing[0]}'; use +opt=[{','.join([*missing, name])}]")
    reason = module.unavailable(base)
    if reason is not None:
        raise OptionError(f"option '{name}' cannot run here: {reason}")


def _expand_all(options: dict[str, dict[str, Any]], base: Stages) -> dict[str, dict[str, Any]]:
    """`all` becomes the options that conf/opt/all.yaml lists for this kind of machine, less those that cannot run here, in its order."""
    if "all" not in options:
        return options
    if len(options) > 1:
        others = ", ".join(name for name in options if name != "all")
        raise OptionError(f"option 'all' stands alone, but {others} is given too; leave one of them out")
    chosen: dict[str, dict[str, Any]] = {}
    for name in options["all"][base.device]:
        module = _module(name)
        if module.CLASS == "quality":
            raise OptionError(f"conf/opt/all.yaml lists '{name}', which is of class quality; take it out")
        reason = module.unavailable(base) or next(
            (f"it requires {r}" for r in module.REQUIRES if r not in chosen), None
        )
        if reason is None:
            chosen[name] = parameters_of(name)
        else:
            log.info("+opt=all leaves out %s: %s", name, reason)
    return chosen


def parameters_of(name: str) -> dict[str, Any]:
    """The parameters that conf/opt/NAME.yaml gives an option."""
    loaded = OmegaConf.to_container(OmegaConf.load(resource(f"conf/opt/{name}.yaml")))
    assert isinstance(loaded, dict)
    return dict(loaded[name] or {})
