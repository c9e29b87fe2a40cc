# SPDX-License-Identifier: Apache-2.0
"""Files of kernels that are as they were when kernels/budget.json was made. The same nvcc says the same about the same code, so these
are not compiled again, which takes minutes for five architectures.

kernels/measured.json has the version of nvcc, and a digest for each file: of its code and of all that it includes, without comments and
layout; of flags and architectures; and of its entry in the budget, so that an entry changed by hand is measured, too.
scripts/resources.py --write writes it.
"""

import hashlib
import json
import re
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from nurec_lite.base.paths import resource

MEASURED = "measured.json"  # in kernels/
Entries = dict[str, Any]  # of kernels/budget.json, by file
LITERAL_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/', re.DOTALL)
Asked = Callable[[str], list[str]]  # a file, relative to kernels/ -> its arguments of nvcc


def unchanged(
    nvcc: str,
    asked: Asked,
    limits: Entries,
) -> set[str]:  # files, relative to kernels/
    path = resource("kernels") / MEASURED
    known = json.loads(path.read_text()) if path.is_file() else {}
    if known.get("nvcc") != version(nvcc):
        return set()
    files = [file for file in known["files"] if (resource("kernels") / file).is_file()]
    return {file for file in files if known["files"][file] == digest(file, asked(file), limits.get(file))}


def text_of(nvcc: str, asked: Asked, files: Iterable[str], limits: Entries) -> str:
    """Contents of MEASURED after these files were measured."""
    found = {file: digest(file, asked(file), limits.get(file)) for file in sorted(files)}
    return json.dumps({"nvcc": version(nvcc), "files": found}, indent=1) + "\n"


def digest(
    file: str,  # relative to kernels/
    asked: list[str],
    entry: Any,  # of the budget
) -> str:
    root = resource("kernels")
    found = hashlib.sha256(json.dumps([asked, entry]).encode())
    for path in sorted(included(root / file)):
        found.update(f"{path.relative_to(root.resolve())}\0{code_of(path.read_text())}\0".encode())
    return found.hexdigest()


def code_of(text: str) -> str:
    """Returns C++ without comments, and with one space for each run of spaces; a directive keeps a line of its own."""
    text = LITERAL_OR_COMMENT.sub(lambda found: found[0] if found[0][0] in "\"'" else " ", text)
    lines = (" ".join(line.split()) for line in re.sub(r"\\\n", " ", text).splitlines())
    return "".join(f"\n{line}\n" if line.startswith("#") else f"{line} " for line in lines if line)


def included(
    source: Path,
    known: frozenset[Path] = frozenset(),
) -> frozenset[Path]:
    """The file and all that it includes by a path of its own, directly or not."""
    source = source.resolve()
    if source in known:
        return known
    known |= {source}
    for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', code_of(source.read_text()), re.MULTILINE):
        known = included(source.parent / name, known)
    return known


def version(nvcc: str) -> str:
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return said.strip().splitlines()[-1]
