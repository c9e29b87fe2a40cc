# SPDX-License-Identifier: Apache-2.0
"""The text of `--help`: the command's own text, and every key with its default and its meaning.

The meanings are the comments on the fields of `config.py`, so that each stands in one place; the defaults are composed, as by
`--cfg job`.
"""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import lru_cache, reduce
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from nurec_lite.base.config_store import store
from nurec_lite.base.key_values import hydra_value
from nurec_lite.base.paths import resource
from nurec_lite.cli.arguments import GROUPS, choices
from nurec_lite.config import VERBS, Config

Key = tuple[str, str, str]  # name, default, meaning
_SHARED = {
    "evaluate": {"out", "device"}, "render": {"out", "device"}, "pack": {"out", "data"}, "inspect": {"out", "data"},
    "profile": {"out", "device"}, "compare": {"out"}, "view": {"device"}, "serve": {"device"},
}  # fmt: skip  # with training
_RUN = "\n\nEvery key of training (--help of nurec_lite.train) can be given too, data.* and +opt= above all."
_REST = {"evaluate": _RUN, "render": _RUN, "profile": _RUN, "view": _RUN, "serve": _RUN}
_OF_GROUPS = {
    "data": "which capture, and defaults that go with it",
    "size": "model and budget of rays for a machine",
    "recipe": "a size, a budget and weights that go together",
    "opt": "optimizations of a step; several as '+opt=[A,B]', their parameters as opt.NAME.KEY=VALUE",
}
_TAKES = {
    "compare": (), "pack": ("data",), "inspect": ("data",), "export": ("data",), "evaluate": ("data", "opt"), "render": ("data", "opt"),
    "view": ("data", "opt"), "serve": ("data", "opt"),
}  # fmt: skip


def help_text(verb: str, text: str) -> str:
    """The text, the groups, the command's own keys, and where the rest is explained (for `train`: all keys)."""
    groups = [f"Groups, with their choices:\n\n{_groups(verb)}"] if _TAKES.get(verb) != () else []
    keys, said = _composed_keys(verb), [text.strip(), *groups]
    own = {f.name for f in fields(VERBS[verb])} - {f.name for f in fields(Config)}
    mine = [key for key in keys if verb == "train" or key[0].split(".")[0] in own | _SHARED.get(verb, {"out"})]
    return "\n\n".join([*said, f"Keys, with their defaults:\n\n{_table(mine)}{_REST.get(verb, '')}"])


def keys_of(verb: str) -> list[str]:
    return [name for name, _, _ in list_keys(VERBS[verb])]


def _groups(verb: str) -> str:
    rows = []
    for group in _TAKES.get(verb, tuple(_OF_GROUPS)):
        rows += [f"  {GROUPS[group]}{group}=NAME".ljust(16) + _OF_GROUPS[group]]
        rows += textwrap.wrap(", ".join(choices(group)), 120, initial_indent=" " * 16, subsequent_indent=" " * 16)
    return "\n".join(rows)


def _composed_keys(verb: str) -> list[Key]:
    """Keys with the defaults that the files under conf/ give the command."""
    store(name="stored", node={})
    with initialize_config_dir(str(resource("conf")), version_base="1.3", job_name=verb):
        given = OmegaConf.to_container(compose(verb), resolve=False)
    assert isinstance(given, dict)
    return [(name, _shown(_at(given, name)), meaning) for name, _, meaning in list_keys(VERBS[verb])]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else hydra_value(value)


def _at(tree: Mapping[Any, Any], name: str) -> Any:
    return reduce(lambda inner, part: inner[part], name.split("."), tree)


def list_keys(cls: type, prefix: str = "", otherwise: str = "") -> list[Key]:
    """Every key of a dataclass of the configuration, nested ones with dots; `otherwise` is the meaning of a field without comment."""
    comments, keys = _comments(cls), []
    for f in fields(cls):
        value, meaning = _default(f), comments[f.name] or otherwise
        if is_dataclass(value):
            keys += list_keys(type(value), f"{prefix}{f.name}.", meaning)
        else:
            keys.append((prefix + f.name, _shown(value), meaning))
    return keys


def _default(f: Field) -> Any:
    return f.default if f.default_factory is MISSING else f.default_factory()


@lru_cache
def _comments(cls: type) -> dict[str, str]:
    """Returns the comment within the lines of each field, base classes included."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not is_dataclass(base):
            continue
        lines = textwrap.dedent(inspect.getsource(base)).splitlines()
        (body,) = ast.parse("\n".join(lines)).body
        for node in body.body:  # type: ignore[attr-defined]
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                own = lines[node.lineno - 1 : node.end_lineno]  # a formatter spreads a long field over several lines
                found[node.target.id] = "".join(line.partition("  # ")[2] for line in own)
    return found


def _table(keys: list[Key]) -> str:
    width = max(len(f"{name}={default}") for name, default, _ in keys if len(f"{name}={default}") < 36)
    return "\n".join(f"  {f'{name}={default}':{width}}  {meaning}".rstrip() for name, default, meaning in keys)
