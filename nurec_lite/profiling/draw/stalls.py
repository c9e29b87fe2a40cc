# SPDX-License-Identifier: Apache-2.0
"""A bar a kernel: stall reasons of its warps between two instructions, as shares of the cycles."""

from collections.abc import Sequence
from pathlib import Path

from nurec_lite.profiling.draw.canvas import FAINT, GREY, INK, PALETTE, Canvas, Colour
from nurec_lite.profiling.ncu.kernel import Kernel
from nurec_lite.profiling.ncu.report import by_name
from nurec_lite.profiling.ncu.words import ABSENT, digits

ISSUE, OTHER = "issuing", "other"
_WIDTH, _LEFT, _RIGHT, _TOP, _ROW = 1200, 330, 1080, 108, 26  # pixels
_KERNELS, _REASONS = 20, 8  # bars, and reasons with a colour of their own, at most


def shares(kernel: Kernel) -> dict[str, float]:
    """Cycles of a warp between two instructions that it issues; one of them issues. Empty if not measured."""
    total = sum(kernel.stalls.values()) + 1
    return {ISSUE: 1 / total, **{r: c / total for r, c in kernel.stalls.items()}} if kernel.stalls else {}


def draw_stalls(path: Path, kernels: Sequence[Kernel]) -> None:
    """The longest launch of each kernel, the longest kernel on top."""
    groups = list(by_name(kernels).items())[:_KERNELS]
    bottom = _TOP + _ROW * len(groups)
    canvas = Canvas(_WIDTH, bottom + 44)
    canvas.text(24, 30, "Stalls of warps between two instructions", 20)
    colours = _colours([shares(launches[0]) for _, launches in groups])
    canvas.legend(24, 62, {reason.replace("_", " "): colour for reason, colour in colours.items()}, _WIDTH - 48)
    for share in range(0, 101, 25):
        x = _LEFT + share / 100 * (_RIGHT - _LEFT)
        canvas.line(x, _TOP, x, bottom + 6)
        canvas.text(x, bottom + 18, f"{share} %", 12, FAINT, "m")
    for row, (name, launches) in enumerate(groups):
        _draw_bar(canvas, name, launches[0], _TOP + _ROW * row, colours)
    canvas.save(path)


def _colours(
    bars: list[dict[str, float]],  # shares of reasons
) -> dict[str, Colour]:
    """The reasons that weigh most in all bars together get a colour of their own."""
    weights: dict[str, float] = {}
    for bar in bars:
        for reason, share in bar.items():
            weights[reason] = weights.get(reason, 0.0) + share
    weighty = sorted(weights, key=lambda reason: -weights[reason])
    chosen = [reason for reason in weighty if reason != ISSUE and weights[reason] > 0][:_REASONS]
    return {ISSUE: INK, **dict(zip(chosen, PALETTE, strict=False)), OTHER: GREY}


def _draw_bar(canvas: Canvas, name: str, kernel: Kernel, top: float, colours: dict[str, Colour]) -> None:
    middle, x, found = top + _ROW / 2, float(_LEFT), shares(kernel)
    canvas.text(_LEFT - 8, middle, name, 12, anchor="r", width=_LEFT - 32)
    if not found:
        canvas.text(_LEFT + 8, middle, ABSENT, 12, FAINT)
        return
    named = {reason: found.get(reason, 0.0) for reason in colours if reason != OTHER}
    for reason, share in {**named, OTHER: 1 - sum(named.values())}.items():
        right = x + share * (_RIGHT - _LEFT)
        if right - x >= 0.5:
            canvas.box(x, top + 4, right, top + _ROW - 4, colours[reason])
        x = right
    if kernel.warp_cycles is not None:
        canvas.text(_RIGHT + 8, middle, f"{digits(kernel.warp_cycles)} cycles", 12, FAINT)
