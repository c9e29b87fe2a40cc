# SPDX-License-Identifier: Apache-2.0
"""CUDA's sources as plain C++ for the emulation: launches and shared memory are written another way, line by line.

    kernel<targs><<<grid, block>>>(args)        emulation::launch("kernel<targs>", emulation::Grid(grid, block), kernel<targs>, args)
    __shared__ float a[2], b;                   an array that is filled with 0xff when a block begins
    extern __shared__ float4 memory[];          a pointer to the block's dynamic shared memory

Everything else stays, on its line.
"""

import re

_OPEN, _CLOSE = "([{", ")]}"
_DECLARATOR = re.compile(r"\s*(\w+)\s*((?:\[[^\]]*\]\s*)*)$")
_ALIGNED = re.compile(r"\b(?:alignas|__align__)\s*\([^()]*\)")


class RewritingError(ValueError):
    """A form of CUDA that this pass does not know."""


def rewritten(
    text: str,
    name: str,  # of the file, for the compiler's messages and ours
) -> str:
    code = _without_comments(text)
    edits = [*_launches(text, code, name), *_shared(text, code, name)]
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return f'#line 1 "{name}"\n{text}'


def _without_comments(text: str) -> str:
    """The text with blanks in place of comments and of the content of strings, at the same length."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"' + r"|(?<!\w)'(?:\\.|[^'\\\n])'"
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.DOTALL)


Edit = tuple[int, int, str]  # from, to, and the new text


def _refuse(code: str, place: int, name: str, why: str) -> RewritingError:
    line = 1 + code.count("\n", 0, place)
    return RewritingError(f"{name}:{line}: {why}, which the emulation does not understand")


# ---- launches


def _launches(text: str, code: str, name: str) -> list[Edit]:
    edits = []
    for found in re.finditer("<<<", code):
        start, at = _callee(code, found.start()), found.start()
        closing = _matching(code, found.end(), ">>>")
        opening = re.compile(r">>>\s*\(").match(code, closing)
        if start == at or closing < 0 or not opening:
            raise _refuse(code, at, name, "<<< that belongs to no launch")
        end = _matching(code, opening.end(), ")")
        kernel, grid, arguments = text[start:at], text[found.end() : closing], code[opening.end() : end]
        label = " ".join(kernel.split())
        comma = ", " if arguments.strip() else ""
        new = f'emulation::launch("{label}", emulation::Grid({grid}), {kernel}{comma}'
        if "<<<" in arguments:
            raise _refuse(code, at, name, "a launch within a launch")
        edits.append((start, opening.end(), new))
    return edits


def _callee(code: str, end: int) -> int:
    """Position where `space::kernel<targs>` begins; it ends at `end`."""
    start = end
    while True:
        at = len(code[:start].rstrip())
        if code[at - 1] == ">":
            at = len(code[: _template_start(code, at - 1)].rstrip())
        word = re.search(r"\w+$", code[:at])
        if not word or word[0] in ("return", "else", "do"):
            return start
        start = word.start()
        before = code[:start].rstrip()
        if not before.endswith("::"):
            return start
        start = len(before) - 2


def _template_start(code: str, close: int) -> int:
    """Position of the `<` that belongs to a `>`; parentheses hide their content."""
    depth = parentheses = 0
    for k in range(close, -1, -1):
        parentheses += (code[k] in _CLOSE) - (code[k] in _OPEN)
        if parentheses == 0:
            depth += (code[k] == ">") - (code[k] == "<")
            if depth == 0:
                return k
    return 0


def _matching(code: str, start: int, wanted: str) -> int:
    """Position of the wanted sign outside of all parentheses opened after `start`; -1: nowhere."""
    depth = 0
    for k in range(start, len(code)):
        if depth == 0 and code.startswith(wanted, k):
            return k
        depth += (code[k] in _OPEN) - (code[k] in _CLOSE)
    return -1


# ---- shared memory


def _shared(text: str, code: str, name: str) -> list[Edit]:
    edits = []
    for found in re.finditer(r"\b(extern\s+)?__shared__\b", code):
        end = _matching(code, found.end(), ";")
        kind, declarators = _declaration(code, found.end(), end, name)
        make = _dynamic if found[1] else _static
        new = " ".join(make(kind, *d) for d in declarators) + "\n" * code.count("\n", found.start(), end)
        edits.append((found.start(), end + 1, new))
    return edits


def _declaration(code: str, start: int, end: int, name: str) -> tuple[str, list[tuple[str, str]]]:
    """Type, and names with their dimensions."""
    body = _ALIGNED.sub(" ", code[start:end])
    parts = _split(body)
    first = re.match(r"\s*(.*[^\w]|)(?=\b\w+\s*(?:\[[^\]]*\]\s*)*$)", parts[0], re.DOTALL)
    kind = " ".join(first[1].split()) if first else ""
    found = [_DECLARATOR.match(part) for part in ([parts[0][first.end() :], *parts[1:]] if first else [])]
    if not kind or not all(found):
        raise _refuse(code, start, name, f"__shared__{body}")
    return kind, [(m[1], "".join(m[2].split())) for m in found if m]


def _split(text: str) -> list[str]:
    """Splits at the commas outside of parentheses and of <>."""
    parts, depth, start = [], 0, 0
    for k, c in enumerate(text):
        depth += (c in "([{<") - (c in ")]}>")
        if c == "," and depth == 0:
            parts.append(text[start:k])
            start = k + 1
    return [*parts, text[start:]]


def _static(kind: str, name: str, size: str) -> str:
    return f"static emulation::Shared<{kind}{size}> {name}_of_block; auto& {name} = {name}_of_block.of_block();"


def _dynamic(kind: str, name: str, size: str) -> str:
    return f"{kind}* const {name} = reinterpret_cast<{kind}*>(emulation::dynamic_shared);"
