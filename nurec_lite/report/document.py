# SPDX-License-Identifier: Apache-2.0
"""The frame of every page: style, script, heading, links to the sections. A page needs no other file and no network."""

import re
from pathlib import Path
from string import Template

from nurec_lite.report.parts import escaped

_FOLDER = Path(__file__).resolve().parent


def document(
    title: str,
    header: str,  # html
    body: str,  # html of the sections
    kind: str = "report",
) -> str:
    found = re.findall(r'<section id="(\w+)"><h2>(.*?)</h2>', body)
    return Template(_file("template.html")).substitute(
        kind=kind,
        title=f"{escaped(title)} · nurec_lite",
        style=_file("style.css"),
        script=_file("script.js"),
        header=header,
        links="".join(f'<a href="#{name}">{text}</a>' for name, text in found),
        body=body,
    )


def _file(name: str) -> str:
    return (_FOLDER / name).read_text()
