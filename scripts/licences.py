# SPDX-License-Identifier: Apache-2.0
"""Licences of everything that constraints.txt pins, as the installed packages state them: docs/licences.csv.

python scripts/licences.py            prints the table
python scripts/licences.py --write    writes the file
"""

import csv
import io
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from nurec_lite.base.program import Parser, fail

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs/licences.csv"
STATED_ELSEWHERE = {"gsplat": "Apache-2.0", "openexr": "BSD-3-Clause"}  # in the file LICENSE alone
TOOLKIT = ("nvidia-cuda-", "nvidia-nvvm")  # NVIDIA's compiler, which the page names in words
ALIASES = {
    "Apache 2.0": "Apache-2.0", "Apache Software License": "Apache-2.0", "MIT License": "MIT", "BSD License": "BSD",
    "3-Clause BSD License": "BSD-3-Clause", "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}  # fmt: skip


def pinned() -> dict[str, str]:
    """Versions by names, in the order of the file."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if line.strip() and not line.startswith(("#", *TOOLKIT)))
    return {name.strip(): version.strip() for name, version in pairs}


def licence(found: Distribution) -> str:
    """The expression that the package states; else its classifiers, else the first line of its own licence field."""
    data, name = found.metadata, found.metadata["Name"].lower()
    stated = data.get("License-Expression") or STATED_ELSEWHERE.get(name)
    if stated:
        return stated
    classes = [c.split("::")[-1].strip() for c in data.get_all("Classifier") or [] if c.startswith("License ::")]
    text = (data.get("License") or "").strip().splitlines()
    if text and len(text) == 1 and text[0] != "UNKNOWN":
        return ALIASES.get(text[0], text[0])
    return " AND ".join(ALIASES.get(c, c) for c in classes) or "unknown"


def table() -> str:
    """Returns a line a package: name, version, licence."""
    lines = io.StringIO()
    rows = csv.writer(lines, lineterminator="\n")
    rows.writerow(("package", "version", "licence"))
    for name, version in sorted(pinned().items(), key=lambda pair: pair[0].lower()):
        try:
            rows.writerow((name, version, licence(distribution(name))))
        except PackageNotFoundError:
            fail(f"{name} is not installed: pip install -c constraints.txt -e '.[dev,site,jpeg]', then again")
    return lines.getvalue()


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--write", action="store_true", help="writes docs/licences.csv")
    write, made = parser.parse_args().write, table()
    if write:
        TABLE.write_text(made)
    else:
        print(made, end="")


if __name__ == "__main__":
    main()
