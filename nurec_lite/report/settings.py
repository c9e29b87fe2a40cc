# SPDX-License-Identifier: Apache-2.0
"""Keys of a configuration that differ from the defaults, and command lines that repeat a run and go on from it."""

import shlex
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.global_hydra import GlobalHydra

from nurec_lite.base.key_values import hydra_value
from nurec_lite.base.options import parameters_of
from nurec_lite.cli.command import composed
from nurec_lite.cli.usage import list_keys
from nurec_lite.config import Config, EvaluateConfig, to_config, to_dict


@dataclass(frozen=True)
class Change:
    """A key with a value other than the default."""

    key: str
    value: Any
    default: Any
    meaning: str


@dataclass(frozen=True)
class Command:
    purpose: str
    line: str  # for a shell


def changes(config: Config) -> list[Change]:
    """Keys of training, but for `out` and options, that differ from the defaults of `data=KIND`."""
    base = _flat(to_dict(_defaults(config.data.kind)))
    meanings = {key: meaning for key, _, meaning in list_keys(Config)}
    mine = {k: v for k, v in _flat(to_dict(config)).items() if k in base and k != "out"}
    return [Change(k, v, base[k], meanings[k]) for k, v in mine.items() if v != base[k]]


@cache  # Hydra takes a tenth of a second each time
def _defaults(kind: str) -> Config:
    """Defaults of train with `data=KIND`. Hydra can be set up only once: train has done so already, the other commands
    have not."""
    if GlobalHydra.instance().is_initialized():
        return to_config(compose("train", overrides=[f"data={kind}"]))
    return composed("train", [f"data={kind}"])


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys and their values; without options, because their parameters are free."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.") if key != "opt" else {}
        else:
            flat[prefix + key] = value
    return flat


def overrides(config: Config) -> list[str]:
    """Arguments of train that give the configuration, but for `out`."""
    data = [] if config.data.kind == "bundled" else [f"data={config.data.kind}"]
    changed = {c.key: c.value for c in changes(config)}
    if config.train.steps is not None:  # alone it would replace the seconds
        changed["train.seconds"] = config.train.seconds
    return data + [_argument(key, value) for key, value in changed.items()] + _option_overrides(config.opt)


def _option_overrides(options: dict[str, dict[str, Any]]) -> list[str]:
    if not options:
        return []
    changed = [
        _argument(f"opt.{name}.{key}", value)
        for name, given in options.items()
        for key, value in ((given or {}).items() if name != "all" else ())
        if parameters_of(name).get(key) != value
    ]
    names = ",".join(options)
    return [f"+opt=[{names}]" if len(options) > 1 else f"+opt={names}", *changed]


def _argument(key: str, value: Any) -> str:
    return f"{key}={hydra_value(value)}"


def commands_after_train(config: Config) -> list[Command]:
    """Commands that repeat the run, and useful next ones."""
    checkpoint, budget = str(Path(config.out) / "checkpoint.pt"), config.train
    longer = replace(
        budget,
        steps=None if budget.steps is None else 2 * budget.steps,
        seconds=None if budget.seconds is None else 2 * budget.seconds,
        resume=checkpoint,
        overwrite=False,
    )
    before = None if budget.resume == checkpoint else budget.resume  # its own has changed meanwhile
    again = replace(config, train=replace(budget, resume=before, overwrite=False))
    return [
        Command("The same run again", _line("train", overrides(again))),
        Command("Twice the budget, going on from here", _line("train", overrides(replace(config, train=longer)))),
        Command("Measure the frames it was trained on", _line("evaluate", [_argument("checkpoint", checkpoint), "subset=train"])),
        *_next(checkpoint),
    ]  # fmt: skip


def commands_after_evaluate(config: EvaluateConfig, arguments: list[str]) -> list[Command]:
    return [Command("The same measurement again", _line("evaluate", arguments)), *_next(config.checkpoint)]


def _next(checkpoint: str) -> list[Command]:
    file = _argument("checkpoint", checkpoint)
    return [
        Command("Render the drive, one metre to the left", _line("render", [file, "shift=[0,1,0]"])),
        Command("Export the Gaussians as PLY", _line("export", [file])),
    ]


def _line(verb: str, arguments: list[str]) -> str:
    return shlex.join(["python", "-m", f"nurec_lite.{verb}", *arguments])
