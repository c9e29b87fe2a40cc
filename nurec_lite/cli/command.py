# SPDX-License-Identifier: Apache-2.0
"""The command line that all commands share: KEY=VALUE arguments, `--help`, and one sentence with status 2 for errors of a user."""

import difflib
import logging
import os
import re
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException

from nurec_lite.base.beginning import begun
from nurec_lite.base.config_store import store
from nurec_lite.base.environment import keep_to_cores
from nurec_lite.base.errors import ConfigError, UserError, unreachable
from nurec_lite.base.key_values import assigned
from nurec_lite.base.lean_imports import end_imports
from nurec_lite.base.paths import resource
from nurec_lite.base.place import hush, place_of, prints
from nurec_lite.base.progress import interrupt_on_signals
from nurec_lite.base.ranks import present
from nurec_lite.base.streams import endure
from nurec_lite.base.texts import printable
from nurec_lite.cli.arguments import check_groups, forgotten_option, key_of, unknown_choice, with_budget
from nurec_lite.cli.usage import help_text, keys_of
from nurec_lite.cli.words import hydra_arguments, refused, unquoted, unreadable
from nurec_lite.config import VERBS, to_config
from nurec_lite.training.checkpoint import CheckpointError, load_checkpoint
from nurec_lite.training.folder import CHECKPOINT

_REFUSED = re.compile(
    r"Error merging override (?!hydra\.)(.*)|Could not override '(?!hydra\.)([^']*)'"
)  # begins Hydra's errors
LONGEST_CAUSE = 200  # characters of another program's error that a sentence repeats
CHOICE = ("split", "downscale", "frames", "cameras")  # of `data`: keys that choose a part of a capture
TRAINED = ("train", "model", "lr", "density", "loss")  # groups of keys that steer training alone
_HYDRA_FLAGS = {
    "--cfg", "-c", "--package", "-p", "--multirun", "-m", "--run", "-r", "--config-path", "-cp", "--config-name", "-cn",
    "--config-dir", "-cd", "--experimental-rerun", "--info", "-i", "--resolve", "--version", "--hydra-help",
    "--shell-completion", "-sc",
}  # fmt: skip


def command(
    verb: str,  # of `config.VERBS`
    text: str,  # the text of --help before the list of keys
    work: Callable[[list[str]], None],  # gets the arguments
) -> None:
    """Runs a command and ends the process with 0 or, if there is something to mend, with 2."""
    end_imports()
    endure()
    hush()
    arguments = sys.argv[1:]
    if {"--help", "-h"} & set(arguments):
        print(help_text(verb, text))
        return
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra then raises instead of printing and leaving with code 1
    interrupt_on_signals()
    begun()
    keep_to_cores()
    with mended(verb):
        _check_ranks(verb, arguments)
        _check_flags(verb, arguments)
        _check_cluster(arguments)
        check_groups(arguments)
        work(arguments)


def _raised_by_hydra(error: Exception) -> bool:
    """Whether Hydra raised the error. Hydra calls us in turn, so the innermost frame of either counts."""
    packages = [
        frame.f_globals.get("__name__", "").split(".")[0] for frame, _ in traceback.walk_tb(error.__traceback__)
    ]
    ours = [package for package in packages if package in ("hydra", "omegaconf", "nurec_lite")]
    return bool(ours) and ours[-1] != "nurec_lite"


@contextmanager
def in_our_words(verb: str) -> Iterator[None]:
    """Raises ConfigError where Hydra refuses an argument."""
    try:
        yield
    except UserError:
        raise
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_sentence(verb, error)) from error
    except (
        ValueError,
        OSError,
        AttributeError,
        TypeError,
    ) as error:  # as Hydra raises for `opt=5`, or for a name that is too long
        if not _raised_by_hydra(error):
            if isinstance(error, OSError) and (sentence := unreachable(error)):
                raise sentence from error
            raise
        raise ConfigError(_sentence(verb, error)) from error


@contextmanager
def mended(verb: str) -> Iterator[None]:
    """Ends the process with one sentence and code 2 for errors that a user can mend; anything else is a defect and shows its trace."""
    try:
        with in_our_words(verb):
            yield
    except UserError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        _fail("interrupted; files that were complete are kept, nothing half-written was left")


def composed(
    verb: str,
    arguments: list[str],
    content: dict[str, Any] | None = None,  # of a checkpoint; arguments change its configuration
) -> Any:  # of the command's dataclass
    """The command's configuration; from now on the log goes to stdout."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    return configuration(verb, arguments, content)


def configuration(
    verb: str,
    arguments: Sequence[str],
    content: dict[str, Any] | None = None,  # of a checkpoint
) -> Any:  # of the command's dataclass
    """The command's configuration: its defaults, those of the checkpoint's run, and the arguments over them."""
    if content is not None:
        _check_trained(verb, arguments)
    stored = {} if content is None else _stored(content["config"])
    if any(
        argument.startswith("data=") for argument in arguments
    ):  # another capture: only the choice of its parts stays
        stored["data"] = {k: v for k, v in stored.get("data", {}).items() if k in CHOICE}
    store(name="stored", node=stored)
    with initialize_config_dir(str(resource("conf")), version_base="1.3", job_name=verb):
        config = to_config(compose(verb, overrides=with_budget(hydra_arguments(verb, arguments))))
    assert isinstance(config, VERBS[verb])
    return config


def _check_trained(verb: str, arguments: Sequence[str]) -> None:
    """Raises ConfigError for a key that steers training alone: the scene of a checkpoint is trained already."""
    for argument in arguments:
        section = key_of(argument).partition(".")[0]
        if section in TRAINED or (section == "measure" and verb != "evaluate"):
            raise ConfigError(
                f"{key_of(argument)} changes nothing in {verb}, as the scene of a checkpoint is trained already; leave it out"
            )


def _stored(config: dict[str, Any]) -> dict[str, Any]:
    """Settings of a checkpoint's run that later commands take over."""
    return {key: value for key, value in config.items() if key not in ("out", "device")}


def named_checkpoint(arguments: list[str]) -> Path:
    """The file that the last `checkpoint=FILE` names."""
    named = [a.partition("=")[2] for a in arguments if a.startswith("checkpoint=")]
    if not named or not named[-1]:
        run = next((a for a in arguments if "=" not in a and os.path.isdir(a)), "runs/NAME")
        raise ConfigError(
            f"checkpoint is missing: name a file that train wrote, as in {assigned('checkpoint', os.path.join(run, CHECKPOINT))}"
        )
    return Path(os.path.expanduser(unquoted(named[-1])))


def load_run(
    verb: str,
    arguments: list[str],
) -> tuple[Any, dict[str, Any]]:  # the command's configuration, and the checkpoint's content on the host
    path = named_checkpoint(arguments)
    content = load_checkpoint(path, "cpu")
    try:
        return composed(verb, arguments, content), content
    except (AttributeError, TypeError) as error:
        raise CheckpointError(f"{path} holds no configuration that this version reads; train again") from error


def _check_flags(verb: str, arguments: list[str]) -> None:
    known = _HYDRA_FLAGS if verb == "train" else set()
    unknown = [a for a in arguments if a.startswith("-") and a.partition("=")[0] not in known]
    nameless = [a for a in arguments if a.startswith("=")]
    if nameless:
        raise ConfigError(f"'{nameless[0]}' names no key; arguments are KEY=VALUE")
    if unknown:
        raise ConfigError(
            f"'{unknown[0]}' is no flag of {verb}; it takes KEY=VALUE arguments, see python -m nurec_lite.{verb} --help"
        )


def _check_ranks(verb: str, arguments: list[str]) -> None:
    if place_of().size == 1:
        return
    if verb != "train":
        raise ConfigError(f"{verb} runs in one process; start it by python -m nurec_lite.{verb}, without torchrun")
    if {"-m", "--multirun"} & set(arguments):
        raise ConfigError("-m starts several runs, and torchrun several ranks of one run; leave one of them out")


def _check_cluster(arguments: list[str]) -> None:
    if "hydra/launcher=slurm" in arguments and {"-m", "--multirun"} & set(arguments) and shutil.which("srun") is None:
        raise ConfigError(
            "hydra/launcher=slurm starts jobs by srun, which is not on PATH; start it on a machine of a Slurm cluster, or leave the "
            "launcher out and the runs go one after another here"
        )


def _sentence(verb: str, error: Exception) -> str:
    if isinstance(error, MissingConfigException) and error.missing_cfg_file is not None:
        if error.missing_cfg_file.startswith("hydra/launcher/submitit"):
            return f"{error.missing_cfg_file} belongs to a package that is not installed: pip install hydra-submitit-launcher"
        return str(unknown_choice(error.missing_cfg_file, error.options or ()))
    if isinstance(error, OverrideParseException):
        return str(unreadable(verb, error.override))
    if (found := _REFUSED.match(str(error))) and not isinstance(error.__cause__, InterpolationResolutionError):
        return str(refused(verb, found[1] or found[2]))
    said = (str(e).strip() for e in (error, error.__cause__) if e is not None)
    causes = [text.splitlines()[0].rstrip(".")[:LONGEST_CAUSE] for text in said if text]
    return "; ".join(causes) + f"; {_remedy(verb, error)}"


def _remedy(verb: str, error: Exception) -> str:
    """The nearest key to the one that the error names, if there is one."""
    key = str(getattr(error.__cause__ or error, "full_key", None) or "").partition("[")[0]
    option = forgotten_option(key)
    if option is not None:
        return option
    near = difflib.get_close_matches(key, keys_of(verb), 1) if key not in keys_of(verb) else []
    asked = f"did you mean {near[0]}? " if near else ""
    return f"{asked}arguments are KEY=VALUE, and python -m nurec_lite.{verb} --help lists the keys"


def _fail(sentence: str) -> NoReturn:
    """Ends with a sentence, which the first rank prints. Each rank leaves its own to the others, and none waits for another one."""
    ranks = present()
    if ranks.size > 1:
        ranks.fail(sentence)
    if prints():
        print(f"error: {printable(sentence)}", file=sys.stderr)
    sys.exit(2)
