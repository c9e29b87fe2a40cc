# SPDX-License-Identifier: Apache-2.0
"""python -m nurec_lite: lists the commands; python -m nurec_lite COMMAND ... is python -m nurec_lite.COMMAND ..."""

import ast
import difflib
import runpy
import sys

from nurec_lite.base.paths import PACKAGE
from nurec_lite.config import VERBS


def listed() -> str:
    """The commands, each with the first line of its module; none is imported."""
    rows = [f"  python -m nurec_lite.{verb:10}{_purpose(verb)}" for verb in VERBS]
    return "\n".join(["The verbs (each takes --help):", "", *rows])


def _purpose(verb: str) -> str:
    said = ast.get_docstring(ast.parse((PACKAGE / f"{verb}.py").read_text())) or ""
    return said.partition("\n")[0].partition(": ")[2].rstrip(".")


def main(arguments: list[str]) -> int:
    if arguments[:1] in ([], ["--help"], ["-h"]):
        print(listed())
        return 0
    if arguments[0] not in VERBS:
        near = difflib.get_close_matches(arguments[0], VERBS, 1)
        asked = f"; did you mean {near[0]}?" if near else ""
        print(f"error: '{arguments[0]}' is no command{asked}\n\n{listed()}", file=sys.stderr)
        return 2
    sys.argv = [f"nurec_lite.{arguments[0]}", *arguments[1:]]
    runpy.run_module(f"nurec_lite.{arguments[0]}", run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
