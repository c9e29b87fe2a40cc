# SPDX-License-Identifier: Apache-2.0
"""The code of docs/python.ipynb and docs/python.md runs as it stands there."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder of the pages. The page of the notebook comes first, and leaves its run as runs/mine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("documents"))
        yield Path.cwd()


@pytest.fixture(scope="module")
def notebook(folder: Path) -> dict[str, Any]:
    """The names that the notebook leaves behind."""
    names: dict[str, Any] = {}
    for cell in json.loads((DOCS / "python.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    shutil.copytree(folder / "runs/notebook", folder / "runs/mine")
    return names


def test_the_notebook_runs(notebook: dict[str, Any]) -> None:
    assert notebook["image"].colour.shape == notebook["wide"].colour.shape and len(notebook["points"]) > 0


def test_the_notebook_is_stored_without_results() -> None:
    cells = json.loads((DOCS / "python.ipynb").read_text())["cells"]
    assert not [c["id"] for c in cells if c.get("outputs") or c.get("execution_count")]


@pytest.mark.slow
def test_the_page_runs(notebook: dict[str, Any]) -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / "python.md").read_text(), re.MULTILINE | re.DOTALL)
    for k, block in enumerate(blocks):
        exec(compile(block, f"block {k} of docs/python.md", "exec"), names)
    assert len(blocks) == 3 and names["batch"].colour.shape[0] == 2 and names["scene"].metrics["psnr"] > 0
