# SPDX-License-Identifier: Apache-2.0
"""Draws bars as SVG: an option before and after it, and the chain from the baseline to `all`. Same figures, same bytes."""

from collections.abc import Sequence
from html import escape

from scripts.option_pages.measured import Pair, Row

WIDTH, LEFT, ROW, BAR, MARGIN = 640, 168, 22, 14, 12  # units of the picture
BEFORE, AFTER, INK, FAINT = "#b0cfe8", "#26639e", "#222222", "#777777"
CHAIN_LEFT, CHAIN_ROW = 130, 21


def pairs_svg(title: str, pairs: Sequence[tuple[str, Pair]]) -> str:
    """Returns two bars a pair, each pair on a scale of its own, with their figures."""
    body, y = [_text(MARGIN, 22, title, 14, INK, "bold")], 40
    for label, pair in pairs:
        top = max(pair.before, pair.after)
        before, _, after = str(pair).removesuffix("*").removeprefix(f"{pair.what} ").partition(" → ")
        body.append(_text(MARGIN, y + ROW - 2, f"{label}: {pair.what}", 12, FAINT))
        for colour, value, shown in ((BEFORE, pair.before, f"{before} {pair.unit}"), (AFTER, pair.after, after)):
            width = (WIDTH - LEFT - 110) * value / top
            body.append(_bar(LEFT, y, width, colour))
            body.append(_text(LEFT + width + 6, y + BAR - 3, shown, 12, INK))
            y += ROW - 4
        y += 12
    return _picture(y + 4, body)


def chain_svg(rungs: Sequence[Row], conditions: str) -> str:
    """Returns a bar a rung: the step, and within it the work of the GPU."""
    top = max(row["ms"] for row in rungs)
    body = [_text(MARGIN, 22, "A training step, option by option", 15, INK, "bold")]
    for k, (label, colour) in enumerate((("step", BEFORE), ("of it, GPU at work", AFTER))):
        body += [_bar(MARGIN + 90 * k, 34, 14, colour), _text(MARGIN + 20 + 90 * k, 45, label, 12, INK)]
    y = 60.0
    for row in rungs:
        scale = (WIDTH - CHAIN_LEFT - 70) / top
        label = f"+ {row['name']}" if row["name"] else "baseline"
        body.append(_text(MARGIN, y + BAR - 3, label, 12, INK))
        body.append(_bar(CHAIN_LEFT, y, row["ms"] * scale, BEFORE))
        body.append(_bar(CHAIN_LEFT, y + 3, min(row["gpu_ms"], row["ms"]) * scale, AFTER, BAR - 6))
        body.append(_text(CHAIN_LEFT + row["ms"] * scale + 6, y + BAR - 3, f"{row['ms']:.1f} ms", 12, INK))
        y += CHAIN_ROW
    body.append(_text(MARGIN, y + 14, conditions, 11, FAINT))
    return _picture(y + 24, body)


def _bar(x: float, y: float, width: float, colour: str, height: float = BAR) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" height="{height}" fill="{colour}"/>'


def _text(x: float, y: float, words: str, size: int, colour: str, weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" fill="{colour}">{escape(words)}</text>'


def _picture(height: float, body: Sequence[str]) -> str:
    """Returns the picture on white, so that it can be read on a dark page, too."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" font-family="sans-serif">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{height:.0f}" fill="#ffffff"/>', *body, "</svg>", ""])
