# SPDX-License-Identifier: Apache-2.0
"""Continues a run: its settings are the checkpoint's, except those given anew; changes are printed."""

import logging
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from nurec_lite.base.config_store import store
from nurec_lite.base.errors import ConfigError
from nurec_lite.base.key_values import assigned, hydra_value
from nurec_lite.base.texts import printable
from nurec_lite.cli.arguments import check_files
from nurec_lite.cli.command import CHOICE
from nurec_lite.cli.composed import composed_config
from nurec_lite.cli.words import hydra_arguments
from nurec_lite.config import Config, TrainConfig, to_dict
from nurec_lite.training.checkpoint import CheckpointError
from nurec_lite.training.folder import CHECKPOINT, METRICS
from nurec_lite.training.loop import spent
from nurec_lite.training.start import check_same_configuration

_OF_A_RUN = {"out", "device", "train.resume", "train.overwrite"}  # that it goes on, and where: never the checkpoint's
_BUDGET = ("train.steps", "train.seconds")
log = logging.getLogger("nurec_lite")


def resumed(
    config: Config,  # as composed without the checkpoint
    path: Path,  # of the checkpoint
    content: dict[str, Any],
    given: Sequence[str],  # arguments of the command line
) -> Config:
    """The configuration of a run that goes on; ConfigError if there is nothing left to do."""
    stored = _kept(content["config"], given)
    store(name="stored", node=stored)
    try:
        found = composed_config("resume", hydra_arguments("train", given))
    except (AttributeError, TypeError) as error:
        raise CheckpointError(f"{path} holds no configuration that this version reads; train again") from error
    train = replace(found.train, resume=str(path), overwrite=False)
    found = replace(found, out=config.out, device=config.device, train=train)
    check_same_configuration(path, content, found)
    check_files(path, found.data, given)
    changed = changes(content["config"], to_dict(found))
    what = f", but {', '.join(changed)}" if changed else ""
    log.info("goes on from %s after step %d with its settings%s", path, content["counters"]["step"], what)
    _check_budget(found, path, content["counters"])
    return found


def _kept(stored: dict[str, Any], given: Sequence[str]) -> dict[str, Any]:
    """Settings of the checkpoint that hold unless an argument changes them; options and budgets are replaced as a
    whole."""
    kept = deepcopy({key: value for key, value in stored.items() if key not in _OF_A_RUN})
    names = {argument.lstrip("+~").partition("=")[0] for argument in given}
    if "data" in names:  # another capture: only the choice of its parts stays
        kept["data"] = {key: value for key, value in kept.get("data", {}).items() if key in CHOICE}
    if "opt" in names:
        kept.pop("opt", None)
    if any(argument.partition("=")[0] in _BUDGET and not argument.endswith("=null") for argument in given):
        kept.setdefault("train", {}).update(steps=None, seconds=None)
    for name in ("resume", "overwrite"):
        kept.get("train", {}).pop(name, None)
    return kept


def changes(was: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Changes in words, key by key."""
    before, after = _flat(was), _flat(now)
    keys = [key for key in after if key not in _OF_A_RUN and key in before and before[key] != after[key]]
    return [printable(f"{key} {_text(before[key])} -> {_text(after[key])}") for key in keys]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else hydra_value(value)


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and key != "opt":
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = list(value) if key == "opt" else value
    return flat


def _check_budget(config: Config, path: Path, counters: dict[str, float]) -> None:
    """Refuses a run with nothing left to train, unless it ended before it was measured."""
    budget, out = config.train, Path(config.out)
    unmeasured = path.resolve() == (out / CHECKPOINT).resolve() and not (out / METRICS).exists()
    if not unmeasured and _limited(budget) and spent(budget, int(counters["step"]), counters["seconds"]) >= 1:
        given = " and ".join(
            assigned(key, value)
            for key, value in zip(_BUDGET, (budget.steps, budget.seconds), strict=True)
            if value is not None
        )
        raise ConfigError(
            f"the budget of {path} is spent: {counters['step']:.0f} steps in {counters['seconds']:.1f} s with {given}; give a larger "
            "train.steps=N or train.seconds=S to go on"
        )


def _limited(budget: TrainConfig) -> bool:
    return budget.steps is not None or budget.seconds is not None
