# SPDX-License-Identifier: Apache-2.0
"""inspect.html and verdicts.json: the verdicts of a capture's checks, and pictures that let a person judge them."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from nurec_lite.base.files import all_tried, write_text
from nurec_lite.evaluation.metrics import to_json
from nurec_lite.report.document import document
from nurec_lite.report.inspection.content import Inspection, guarded
from nurec_lite.report.inspection.sections import command, header, sensors, speeds, verdicts
from nurec_lite.report.inspection.together import boxes, corrections, world
from nurec_lite.report.inspection.views import cameras, lidars
from nurec_lite.report.parts import section

PAGE, VERDICTS = "inspect.html", "verdicts.json"
Part = Callable[[Inspection], str]
_SECTIONS: tuple[tuple[str, str, Part], ...] = (
    ("verdicts", "Verdicts", verdicts), ("corrections", "With the remedies", corrections), ("cameras", "Cameras", cameras),
    ("lidars", "Lidars", lidars), ("map", "Map from above", world), ("boxes", "Boxes", boxes), ("speeds", "Speeds", speeds),
    ("sensors", "Rates", sensors), ("command", "Look again", command),
)  # fmt: skip


def page(inspection: Inspection) -> str:
    """HTML that needs no other file and no network. A part that fails says so, and the others stand."""
    bodies = ((name, title, guarded(title, partial(part, inspection))) for name, title, part in _SECTIONS)
    shown = "".join(section(name, title, body) for name, title, body in bodies if body)
    return document(inspection.capture.name, guarded("The heading", lambda: header(inspection)), shown)


def write_inspection(out: Path, inspection: Inspection) -> None:
    """Writes verdicts.json first: it exists even if the page cannot be written."""
    all_tried(
        lambda: write_text(
            out / VERDICTS, json.dumps([to_json(v.plain()) for v in inspection.verdicts], indent=2) + "\n"
        ),
        lambda: write_text(out / PAGE, page(inspection)),
    )
