# SPDX-License-Identifier: Apache-2.0
"""The version of the running code: the commit of a checkout of this project, or the version of the installed package."""

import os
import signal
import subprocess
from functools import cache
from pathlib import Path

import nurec_lite
from nurec_lite.base.paths import PACKAGE

PATIENCE = 1.5  # seconds that another program gets to answer
UNKNOWN = "unknown"
OWN = ("nurec_lite/", "kernels/", "conf/")  # a new file in these folders changes the program
DIGITS = 12  # of a commit
# nothing that a configuration names is executed, and nothing is written
_GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-optional-locks")
_STATUS = ("status", "--porcelain=v2", "--branch", "--untracked-files=normal", "--ignore-submodules=all")


@cache
def commit() -> str:
    """Twelve digits, with + if files are changed or new; the package's version outside of a checkout; `unknown` if git does not answer.

    A process asks once: it runs the modules that it has imported, and a git that hangs costs PATIENCE once.
    """
    return commit_of(PACKAGE.parent)


def commit_of(root: Path) -> str:
    """Returns the version of the code in a folder."""
    if not _is_own_checkout(root):
        return nurec_lite.__version__
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment |= {"GIT_CEILING_DIRECTORIES": str(root.parent), "LC_ALL": "C"}
    found = answer([*_GIT, "-C", str(root), *_STATUS], environment)
    return UNKNOWN if found is None else _commit_in(found) or UNKNOWN


def _is_own_checkout(root: Path) -> bool:
    """Whether a folder is a checkout of this project: a package in the checkout of another project belongs to that one."""
    try:
        return (root / ".git").exists() and '\nname = "nurec_lite"' in (root / "pyproject.toml").read_text()
    except (OSError, ValueError):
        return False


def _commit_in(status: str) -> str | None:
    """The commit in the output of `git status --porcelain=v2 --branch`."""
    lines = status.splitlines()
    oid = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), "")
    changed = any(line[:1] in "12u" or line.startswith(tuple(f"? {name}" for name in OWN)) for line in lines)
    is_commit = len(oid) >= DIGITS and set(oid) <= set("0123456789abcdef")
    return oid[:DIGITS] + "+" * changed if is_commit else None


def answer(
    command: list[str],
    environment: dict[str, str] | None = None,  # None: that of this process
) -> str | None:
    """The output of a program; None if it is missing, fails or takes too long. It is ended with all that it started."""
    try:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True, text=True, errors="replace",
        )  # fmt: skip
    except OSError:
        return None
    with process:
        try:
            said, _ = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None
    return said if process.returncode == 0 else None
