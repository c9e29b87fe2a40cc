# SPDX-License-Identifier: Apache-2.0
"""Stages for a machine: those of the baseline (native, reference, gsplat), then the options, in the order given."""

import inspect
import logging
from types import ModuleType
from typing import Any

import torch

from nurec_lite.base.errors import ConfigError, OptionError
from nurec_lite.base.options import known_options, option_module, parameters_of, unknown_option
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.stages import Stages

OPS = ("native", "reference")
RENDERS = ("own", "gsplat")
CLASSES = ("exact", "close", "quality")  # of options, see nurec_lite/opt/__init__.py
log = logging.getLogger(__name__)


def base_stages(
    ops: str,  # native or reference
    device: torch.device,
    render: str = "own",  # or gsplat
) -> Stages:
    """Returns the baseline's stages: compiled kernels, plain torch (exact and slow), or the peer."""
    for key, value, known in (("ops", ops, OPS), ("render", render, RENDERS)):
        if value not in known:
            raise ConfigError(f"{key} is '{value}', but must be one of {', '.join(known)}")
    stages = reference_stages(device.type)
    if render == "gsplat":
        from nurec_lite.peer.depth import peer_stages  # compiles gsplat's kernels

        return peer_stages(stages, ops, device)
    if ops == "reference":
        return stages
    from nurec_lite.native.bind import native_plan, native_stages  # compile kernels; the reference does without

    plan = native_plan(device)
    return stages.compiled(plan, native_stages)


def check_stages(
    ops: str,
    device: torch.device,
    render: str,
    options: dict[str, dict[str, Any]],  # as `build_stages` takes them
) -> None:
    """Raises ConfigError or OptionError where these stages cannot be had here; quick, since nothing is compiled. Parts of `all` that cannot
    run here are left out later."""
    base, named = reference_stages(device.type), [name for name in options if name != "all"]
    if render == "gsplat":
        from nurec_lite.peer.rasterize import check_device

        check_device(device)
    elif ops == "native" and named:
        from nurec_lite.native.bind import native_plan

        base = base.compiled(native_plan(device), lambda plan: {})
    given = (*options, *(options.get("all") or {}).get(device.type, ()))
    for name in named:
        module = _module(name)
        _check(name, module, given, base)
        _parameters(name, module, options[name] or {})


def begin_stages(
    ops: str,
    device: torch.device,
    render: str,
    options: dict[str, Any],  # as `build_stages` takes them
) -> None:
    """Begins the slow and quiet parts of the stages: the device, kernels that are compiled already, and modules of options. The
    functions above and below report their errors."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    if ops == "native":  # the first scene uses them, too, with any renderer
        from nurec_lite.native.ops import load_built

        load_built()
    listed = (options.get("all") or {}).get(device.type, ())
    for name in {*options, *listed} & set(known_options()):
        option_module(name)


def build_stages(
    options: dict[str, dict[str, Any]],  # name -> parameters, in the order of the command line
    base: Stages | None = None,  # the stages that options change; None: the reference
) -> Stages:
    """The stages with all options applied; OptionError names a conflict or a missing need."""
    stages = base or reference_stages()
    options = _for_ranks(_expand_all(options, stages), stages.ranks)
    modules = {name: _module(name) for name in options}
    for name, module in modules.items():
        _check(name, module, tuple(options), stages)
    for name, module in modules.items():
        stages = module.apply(stages, **_parameters(name, module, options[name] or {}))
        log.info("option %s (%s)", name, module.CLASS)
    return stages


def _for_ranks(options: dict[str, dict[str, Any]], ranks: int) -> dict[str, dict[str, Any]]:
    """Adds `batch` for several ranks without it: each learns from an image and a sweep a step."""
    if ranks == 1 or "batch" in options:
        return options
    log.info("%d ranks: a step learns from as many images and sweeps, as by opt.batch.images=%d", ranks, ranks)
    return options | {"batch": parameters_of("batch") | {"images": ranks, "sweeps": ranks}}


def _parameters(name: str, module: ModuleType, given: dict[str, Any]) -> dict[str, Any]:
    """Returns the given parameters; OptionError if `apply` does not take them."""
    try:
        inspect.signature(module.apply).bind(None, **given)
    except TypeError as error:
        known = ", ".join(parameters_of(name)) or "none"
        raise OptionError(f"option '{name}': {error}; its parameters are {known} (conf/opt/{name}.yaml)") from error
    return given


def _module(name: str) -> ModuleType:
    if name not in known_options():
        raise unknown_option(name)
    return option_module(name)


def _check(name: str, module: ModuleType, given: tuple[str, ...], base: Stages) -> None:
    assert module.CLASS in CLASSES, f"{name} declares no class"
    missing = [required for required in module.REQUIRES if required not in given]
    if missing:
        raise OptionError(f"option '{name}' requires '{missing[0]}'; use +opt=[{','.join([*missing, name])}]")
    reason = module.unavailable(base)
    if reason is not None:
        raise OptionError(f"option '{name}' cannot run here: {reason}")


def _expand_all(options: dict[str, dict[str, Any]], base: Stages) -> dict[str, dict[str, Any]]:
    """`all` becomes the options that conf/opt/all.yaml lists for this kind of machine, less those that cannot run here, in its order.
    Other options follow them; parameters given next to `all` are those of its own options."""
    if "all" not in options:
        return options
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
    return chosen | {name: given for name, given in options.items() if name != "all"}
