# SPDX-License-Identifier: Apache-2.0
"""Which files of kernels are as they were when kernels/budget.json was made: asked the same of the same text, the same nvcc says the
same, so that nobody need ask again, which takes minutes for five architectures.

kernels/measured.json has the version of nvcc, and of each file a digest: of its text and that of all it includes, of flags and
architectures, and of its entry in the budget, so that an entry that was changed by hand is measured, too. scripts/resources.py --write
writes it.
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
        found.update(str(path.relative_to(root.resolve())).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def included(
    source: Path,
    known: frozenset[Path] = frozenset(),
) -> frozenset[Path]:
    """The file and all that it includes by a path of its own, directly or not."""
    source = source.resolve()
    if source in known:
        return known
    known |= {source}
    for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', source.read_text(), re.MULTILINE):
        known = included(source.parent / name, known)
    return known


def version(nvcc: str) -> str:
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return said.strip().splitlines()[-1]
