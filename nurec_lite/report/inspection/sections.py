# SPDX-License-Identifier: Apache-2.0
"""The sections without pictures: heading, verdicts, speeds, rates, and the command line."""

from collections.abc import Sequence

from nurec_lite.capture.checks.listed import counted, worst_first
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.capture.types import Capture, Frame
from nurec_lite.report.charts import line_chart
from nurec_lite.report.inspection.content import Inspection
from nurec_lite.report.inspection.motion import Curve, Rate, curves, intervals, rate
from nurec_lite.report.parts import escaped, table

_SIGNS = {
    Level.CERTAIN: ("wrong", "\u2715"), Level.LIKELY: ("likely", "!"), Level.FAILED: ("failed", "\u2013"),
    Level.UNKNOWN: ("unknown", "?"), Level.RIGHT: ("right", "\u2713"),
}  # fmt: skip


# ---- heading


def header(inspection: Inspection) -> str:
    """Name, facts in a line, and tiles."""
    capture = inspection.capture
    worst = worst_first(inspection.verdicts)
    tiles = "".join(
        f'<div class="tile"><div class="value">{n}</div>{escaped(label)}</div>' for n, label in _tiles(capture)
    )
    state = _badge(worst[0].level, counted(worst)) if worst else "no checks"
    note = "the drive's data, compared with its sensors"
    return f'<header><h1>{escaped(capture.name)}</h1><p class="note">{note} · {state}</p><div class="tiles">{tiles}</div></header>'


def _tiles(capture: Capture) -> list[tuple[str, str]]:
    frames = (*capture.images, *capture.sweeps)
    if not frames:
        return [("0", "frames")]
    seconds = max(f.time_end for f in frames) - min(f.time_start for f in frames)
    way = float(trajectory_of(capture).poses[:, :3, 3].diff(dim=0).norm(dim=1).sum())
    return [
        (f'{seconds:.1f} <span class="unit">s</span>', "from the first frame to the last"),
        (f'{way:.1f} <span class="unit">m</span>', "driven, as the poses say"),
        (f"{len(capture.images)}", f"images of {_number(capture.cameras, 'camera')}"),
        (f"{len(capture.sweeps)}", f"sweeps of {_number(capture.lidars, 'lidar')}"),
        (f"{len(capture.tracks)}", "tracks of moving objects"),
    ]


def _number(things: Sequence[object], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


# ---- verdicts


def verdicts(inspection: Inspection) -> str:
    """One row a verdict, the worst first."""
    found = worst_first(inspection.verdicts)
    if not found:
        return '<p class="note">No check found anything to compare.</p>'
    rows = [(_badge(v.level, v.level.value), escaped(v.check), escaped(v.subject), _said(v)) for v in found]
    return table(("verdict", "compared", "of", "result"), rows, "verdicts")


def _badge(level: Level, text: str) -> str:
    kind, sign = _SIGNS[level]
    return f'<span class="level {kind}"><span class="sign" aria-hidden="true">{sign}</span>{escaped(text)}</span>'


def _said(verdict: Verdict) -> str:
    remedy = f'<div class="remedy">{escaped(verdict.remedy)}</div>' if verdict.remedy else ""
    figures = " · ".join(f"{escaped(name)} {value:.4g}" for name, value in verdict.figures.items())
    small = f'<div class="unit">{figures}</div>' if figures else ""
    return f"{escaped(verdict.sentence)}{remedy}{small}"


# ---- speeds and rates


def speeds(inspection: Inspection) -> str:
    found = curves(inspection.capture, inspection.start)
    if not found:
        return '<p class="note">There is one pose at most: nothing is known of how the rig moves.</p>'
    return f'<div class="grid">{"".join(map(_chart, found))}</div>'


def _chart(curve: Curve, from_zero: bool = False) -> str:
    return line_chart(curve.title, curve.unit, curve.times, curve.values, "s", along="time", from_zero=from_zero)


def sensors(inspection: Inspection) -> str:
    """A row a sensor, and how long it takes from one of its frames to the next."""
    own = _frames_by_sensor(inspection.capture)
    rows = [_row(name, what, frames, inspection.start) for name, (what, frames) in own.items()]
    listed = table(
        ("sensor", "frames of", "number", "first, s", "last, s", "rate, Hz", "longest gap", "numbers missing", "a frame lasts, ms"),
        rows, "rates",
    )  # fmt: skip
    several = {name: frames for name, (_, frames) in own.items() if len(frames) > 2}
    charts = "".join(
        _chart(intervals(frames, f"{name}, from frame to frame", inspection.start), from_zero=True)
        for name, frames in several.items()
    )
    return f'{listed}<div class="grid rates-over-time">{charts}</div>'


def _frames_by_sensor(capture: Capture) -> dict[str, tuple[str, list[Frame]]]:
    found: dict[str, tuple[str, list[Frame]]] = {}
    for camera in capture.cameras:
        own: list[Frame] = [f for f in capture.images if f.sensor == camera.name]
        found[camera.name] = (f"{camera.width}x{camera.height} pixels", own)
    for lidar in capture.lidars:
        found[lidar.name] = (f"{len(lidar.elevations)} beams", [f for f in capture.sweeps if f.sensor == lidar.name])
    return found


def _row(name: str, what: str, frames: list[Frame], start: float) -> tuple[str, ...]:
    if not frames:
        return escaped(name), escaped(what), "0", "", "", "", "", "", ""
    r = rate(frames, name, start)
    hertz = "" if not r.interval else f"{1 / r.interval:.2f}"
    return (
        escaped(name), escaped(what), str(r.frames), f"{r.first:.3f}", f"{r.last:.3f}", hertz, _gap(r), str(r.missing),
        f"{1000 * r.lasts:.1f}",
    )  # fmt: skip


def _gap(r: Rate) -> str:
    if r.longest is None:
        return ""
    text = f"{1000 * r.longest:.1f}\u202fms after frame {r.after}"
    return f"<mark>{text}; {r.gaps} gaps</mark>" if r.gaps else text


def command(inspection: Inspection) -> str:
    return f"<pre><code>{escaped(inspection.command)}</code></pre>"
