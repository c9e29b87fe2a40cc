# SPDX-License-Identifier: Apache-2.0
"""Folders for the results of a command, named after their contents, so that none replaces another."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from nurec_lite.base.folders import take
from nurec_lite.config import Config
from nurec_lite.training.folder import refuse_run

_LONGEST = 80  # characters of a name's last part


def result_folder(
    config: Config,
    checkpoint: str,
    name: str,  # begins with the command
    counters: Mapping[str, float],  # of the checkpoint
    arguments: Iterable[str] = (),  # that tell one result from another
) -> Path:
    """`out` if it was given, else a folder next to the checkpoint. FolderError where files of others, or of a run, are."""
    own = Path(checkpoint).parent / "-".join([name, f"step{counters['step']:.0f}", *_part(sorted(arguments))])
    if config.out == Config.out:
        return take(own, name.partition("-")[0]).folder
    refuse_run(config.out)
    return take(config.out, name.partition("-")[0]).folder


def name_arguments(arguments: Iterable[str], without: frozenset[str]) -> list[str]:
    """Arguments of a command line but for those that change nothing, or that names tell already."""
    return [a for a in arguments if a.lstrip("+~").partition("=")[0] not in without]


def contents(files: Iterable[str]) -> list[str]:
    """An argument with digits of the contents of files: another content under the same name is another result."""
    hashes = [hashlib.sha256(Path(file).expanduser().read_bytes()).hexdigest() for file in files]
    return [f"files={hashlib.sha256(''.join(hashes).encode()).hexdigest()[:8]}"] if hashes else []


def _part(arguments: list[str]) -> list[str]:
    """The arguments as one part of a name; a few digits of their hash stand for characters that a name cannot hold."""
    if not arguments:
        return []
    plain = "-".join(re.sub(r"[\[\]'\" ]", "", argument) for argument in arguments)
    name = re.sub(r"[^\w.,=+-]+", "_", plain, flags=re.ASCII)[:_LONGEST]
    return [name if name == plain else f"{name}-{hashlib.sha256(plain.encode()).hexdigest()[:8]}"]
