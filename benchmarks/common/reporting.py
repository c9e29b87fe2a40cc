# SPDX-License-Identifier: Apache-2.0
"""Shared parts of benchmarks that train: arguments of nurec_lite.train next to their own, conditions, and a file."""

import argparse
import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from nurec_lite.base.environment import environment
from nurec_lite.base.files import write_text
from nurec_lite.cli.command import composed, mended
from nurec_lite.config import Config, to_dict
from nurec_lite.training.state import TrainState

Report = dict[str, Any]


def reported(
    parser: argparse.ArgumentParser,  # with the benchmark's own arguments
    arguments: list[str],
    bench: Callable[[Config, argparse.Namespace], Report],
) -> Report:
    """The measurements, also written to --out; a mistake of the user ends the process with a sentence."""
    parser.add_argument("--out", type=Path, help="JSON file, such as benchmarks/results/NAME.json")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of nurec_lite.train")
    args = parser.parse_intermixed_args(arguments)
    args.arguments, args.load = arguments, os.getloadavg()
    with mended("train"):
        found = bench(composed("train", args.overrides), args)
        if args.out:
            write_text(args.out, json.dumps(found, indent=1) + "\n")
    return found


def conditions(
    script: str,  # its path within benchmarks/, without the ending
    config: Config,
    state: TrainState,
    args: argparse.Namespace,
) -> Report:
    return conditions_on(script, config, state.device, args) | {"capture": state.plan.capture.name}


def conditions_on(script: str, config: Config, device: torch.device, args: argparse.Namespace) -> Report:
    """The same for an object without state of its own."""
    return {
        "command": shlex.join(["python", f"benchmarks/{script}.py", *args.arguments]),
        "environment": environment(device), "load_average_before": args.load,
        "config": {key: value for key, value in to_dict(config).items() if key != "out"},
    }  # fmt: skip
