# SPDX-License-Identifier: Apache-2.0
"""Keys of an export that would change nothing in its files: each is refused."""

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.export_keys import ExportKeys
from nurec_lite.config import ExportConfig
from nurec_lite.output.interchange.choice import STATIC
from nurec_lite.output.interchange.names import FORMATS, MESHES, PLY, SPLATS, USDZ, Files

CHANGED = {"node": (*SPLATS, USDZ), "time": (*SPLATS, USDZ), "normals": (PLY,), "rig": (USDZ,), "cell": MESHES}
UPRIGHT = {USDZ: "z"}  # axes that the format prescribes


def check_keys(config: ExportConfig, files: Files) -> None:
    """Raises ConfigError for a key that no file of the export depends on."""
    for key, kinds in CHANGED.items():
        if getattr(config, key) != getattr(ExportKeys, key) and not files.any_of(kinds):
            raise ConfigError(
                f"{key}={_shown(getattr(config, key))} changes {_listed(kinds)} alone, but formats asks for "
                f"{_listed(files.formats)}; leave {key} out"
            )
    if config.node == STATIC and config.time is not None:
        raise ConfigError(f"node={STATIC} stands still at any time; leave time out, or use node=all")
    if config.up is not None and all(UPRIGHT.get(kind, config.up) != config.up for kind in files.formats):
        free = [kind for kind in FORMATS if kind not in UPRIGHT]
        fixed = _listed([f"{kind} always has {UPRIGHT[kind]} up" for kind in files.formats])
        raise ConfigError(f"up={config.up} turns {_listed(free)}, but {fixed}; leave up out")


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _listed(names: "list[str] | tuple[str, ...]") -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
