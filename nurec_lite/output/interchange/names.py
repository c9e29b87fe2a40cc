# SPDX-License-Identifier: Apache-2.0
"""Formats of an export, and the names of its files."""

import re
from dataclasses import dataclass
from pathlib import Path

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.names import name_flaw
from nurec_lite.config import ExportConfig
from nurec_lite.output.interchange.choice import ALL, EACH

PLY, COMPRESSED, SPZ, GSPLAT, USDZ = "ply", "compressed", "spz", "gsplat", "usdz"
GROUND, SURFACE = "ground", "surface"
SPLATS, MESHES = (PLY, COMPRESSED, SPZ, GSPLAT), (GROUND, SURFACE)
FORMATS = (*SPLATS, USDZ, *MESHES)
ENDINGS = {COMPRESSED: ".compressed.ply", PLY: ".ply", SPZ: ".spz", GSPLAT: ".pt", USDZ: ".usdz"}  # longest first


@dataclass(frozen=True)
class Files:
    """Formats that are asked for, and where their files go."""

    formats: tuple[str, ...]
    stem: Path  # of all files, without the ending
    given: Path | None  # the file that `out` names

    def path(self, kind: str, part: str = "") -> Path:
        """The file of a format; `part` names a node or a mesh."""
        ending = ENDINGS.get(kind, ".ply")
        if (
            self.given is not None
            and not part
            and self.given.name.lower().endswith(ending)
            and _kind_of(self.given) == kind
        ):
            return self.given
        return self.stem.with_name(f"{self.stem.name}{f'-{part}' if part else ''}{ending}")

    def beside(self, ending: str) -> Path:
        """A file next to them."""
        return self.stem.with_name(f"{self.stem.name}{ending}")

    def any_of(self, kinds: tuple[str, ...]) -> bool:
        return any(kind in self.formats for kind in kinds)


def files_of(config: ExportConfig) -> Files:
    """The files that a configuration asks for."""
    formats = _formats(config)
    if not config.out:
        return Files(formats, _default_stem(config), None)
    out = Path(config.out)
    kind = _kind_of(out)
    endings = [ENDINGS.get(one, ".ply") for one in (FORMATS if config.formats is None else formats)]
    if kind is None or ENDINGS[kind] not in endings:
        taken = f", which is of formats={kind}" if config.out.lower().endswith(tuple(endings)) and kind else ""
        raise ConfigError(
            f"out={config.out}{taken}, but must name a file that ends in {' or '.join(dict.fromkeys(endings))}"
        )
    return Files(formats, out.with_name(out.name[: -len(ENDINGS[kind])]), out)


def fit_for_a_file(name: str) -> str:
    """The name of a node as a part of a file's name; of one that is no name, the characters that are fit for it."""
    if name_flaw(name):
        name = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII).lstrip(".")[:100]
    return name or "node"


def _formats(config: ExportConfig) -> tuple[str, ...]:
    if config.formats is None:
        return (_kind_of(Path(config.out)) or PLY,) if config.out else (PLY,)
    unknown = [name for name in config.formats if name not in FORMATS]
    if unknown or not config.formats:
        what = f"holds '{unknown[0]}'" if unknown else "is empty"
        raise ConfigError(f"formats {what}, but takes some of {', '.join(FORMATS)}")
    return tuple(dict.fromkeys(config.formats))


def _kind_of(path: Path) -> str | None:
    """The format of a file by its ending."""
    name = path.name.lower()
    return next((kind for kind, ending in ENDINGS.items() if name.endswith(ending) and len(name) > len(ending)), None)


def _default_stem(config: ExportConfig) -> Path:
    name = fit_for_a_file("scene" if config.node in (ALL, EACH) else config.node)
    moment = "" if config.time is None else f"-t{config.time:08.3f}"
    edits = "" if config.edits is None else "-" + re.sub(r"[^\w.-]", "_", Path(config.edits).stem, flags=re.ASCII)[:100]
    return Path(config.checkpoint).parent / f"{name}{moment}{edits}"
