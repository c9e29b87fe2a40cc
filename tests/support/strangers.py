# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as a stranger may write them: a value anywhere in one is replaced, its bytes made to fit.

`FLAWS` are single alterations with the text of the refusal; `altered` draws any.
"""

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from tiny_capture import tiny_state

from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.training.checkpoint import save_checkpoint
from nurec_lite.training.known_capture import fresh_digest
from nurec_lite.training.optim import make_optimizer
from nurec_lite.training.state import TrainState

Content = dict[str, Any]
NAN, INF = float("nan"), float("inf")
VALUES: tuple[Any, ...] = (
    *(None, True, 0, 1, -1, 2**40, -(2**63), 2**200, 0.5, NAN, INF, -INF, 1e30, "", "x", "a\nb", "${oc.env:HOME}", "???"),
    *("x" * 5000, (), [], {}, [1], {"a": 1}, {1: 2}, (1, 2), "../x", "\ud800"),
)  # fmt: skip
TENSORS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    lambda t: t[:0] if t.dim() else t, lambda t: t.flatten(), lambda t: t[None],
    lambda t: t.double() if t.is_floating_point() else t.float(),
    lambda t: torch.full_like(t, 255), lambda t: torch.full_like(t, -1) if t.dtype != torch.uint8 else t + 1,
    lambda t: t * NAN if t.is_floating_point() else t, lambda t: t * 1e30 if t.is_floating_point() else t,
    lambda t: torch.cat([t, t]) if t.dim() else t.expand(3), lambda t: t.bool(), lambda t: t.to(torch.int32),
    lambda t: torch.zeros(()), lambda t: t.flip(0) if t.dim() else -t, lambda t: torch.zeros(1).expand(1 << 31),
)  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container and key in it; tuples cannot be written into, so they are replaced as a whole."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def altered(content: Content, rng: random.Random) -> Content:
    """A copy with one value replaced, removed, added, or taken from elsewhere."""
    content = copy.deepcopy(content)
    holder, key = rng.choice(list(places(content)))
    kind = rng.choice(("value", "value", "tensor", "remove", "add", "copy"))
    if kind == "tensor" and isinstance(holder[key], torch.Tensor):
        holder[key] = rng.choice(TENSORS)(holder[key])
    elif kind == "remove":
        del holder[key]
    elif kind == "add" and isinstance(holder[key], dict):
        holder[key][rng.choice(("more", 3, "${oc.env:HOME}"))] = rng.choice(VALUES)
    elif kind == "copy":
        source, name = rng.choice(list(places(content)))
        holder[key] = copy.deepcopy(source[name])
    else:
        holder[key] = rng.choice(VALUES)
    return content


def save(state: TrainState, path: Path) -> None:
    row = {"step": 1, "seconds": 0.5, "gaussians": 400, "psnr": 12.5}
    counters, digest = {"step": 1, "seconds": 2.5}, fresh_digest(state.plan.capture)
    save_checkpoint(path, state.scene, state.optimizer, state.generator, state.config, counters, [row], digest=digest)


def small_checkpoint(path: Path) -> bytes:
    """A checkpoint of a few Gaussians, so that thousands are read in seconds."""
    state = tiny_state()
    names = (f.name for f in fields(Gaussians))
    gaussians = Gaussians(**{name: getattr(state.scene.gaussians, name)[:3].detach().clone() for name in names})
    state.scene = replace(state.scene, gaussians=gaussians, sky=state.scene.sky[:, :2, :2].detach().clone())
    state.optimizer = make_optimizer(state.scene, state.config.lr)
    for parameter in state.scene.parameters().values():
        parameter.grad = torch.ones_like(parameter)
    state.optimizer.step()
    save(state, path)
    return path.read_bytes()


def rewrite(path: Path, change: Callable[[Content], Any]) -> None:
    """Alters the content of a checkpoint in place."""
    content = torch.load(path, weights_only=True)
    change(content)
    torch.save(content, path)


def put(*keys: Any, value: Any) -> Callable[[Content], None]:
    """Sets the value behind the keys; a function gets the former value."""

    def change(content: Content) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value(content[keys[-1]]) if callable(value) else value

    return change


SCENE, TRACKS, ADAM = ("scene", "parameters"), ("scene", "tracks"), ("optimizer", "state", 0)
FLAWS: dict[str, tuple[Callable[[Content], None], str]] = {
    "moments of another shape": (put(*ADAM, "exp_avg", value=torch.zeros(2, 3)), r"optimizer\.state\[0\]\.exp_avg must be a tensor \["),
    "moments of another type": (put(*ADAM, "exp_avg_sq", value=lambda t: t.double()), r"exp_avg_sq must be a tensor \[.*float32"),
    "short moments that are infinite": (
        put(*ADAM, "exp_avg_sq", value=lambda t: (t + INF).bfloat16()),
        r"exp_avg_sq must be numbers from 0",
    ),
    "negative squares": (put(*ADAM, "exp_avg_sq", value=lambda t: t - 1), r"exp_avg_sq must be numbers from 0"),
    "steps of several": (put(*ADAM, "step", value=torch.zeros(3)), r"state\[0\]\.step must be a tensor \[\]"),
    "moments of no parameter": (put("optimizer", "state", 99, value={}), r"state\[99\] must be of a parameter"),
    "groups in another order": (put("optimizer", "param_groups", value=lambda g: g[::-1]), r"param_groups must be one a parameter"),
    "no groups": (put("optimizer", "param_groups", value=[]), r"param_groups must be one a parameter"),
    "NaN": (put(*SCENE, "means", value=lambda t: t * NAN), r"scene\.parameters\.means must be numbers from -1e\+08"),
    "an infinite size": (put(*SCENE, "log_scales", value=lambda t: t + INF), r"log_scales must be numbers"),
    "no Gaussian": (put(*SCENE, "means", value=lambda t: t[:0].clone()), r"means must be a tensor of at least one Gaussian"),
    "a colour less": (put(*SCENE, "sh0", value=lambda t: t[:-1].clone()), r"sh0 must be a tensor \["),
    "tracks that are not turned": (
        put(*SCENE, "track_quaternions", value=lambda t: t * 0),
        r"track_quaternions must be quaternions of a length",
    ),
    "no degree": (put(*SCENE, "sh_rest", value=lambda t: t[:, :2].clone()), r"sh_rest must be harmonics of degree 0 to 3"),
    "a lidar of four values": (
        put(*SCENE, "lidar_logits", value=lambda t: torch.cat([t, t[:, :1]], dim=1)),
        r"lidar_logits must be intensity and ray drop, without or with an opacity",
    ),
    "double means": (put(*SCENE, "means", value=lambda t: t.double()), r"means must be a tensor .*float32"),
    "gigabytes by strides": (put(*SCENE, "sky", value=lambda t: torch.zeros(1).expand(3, 1 << 14, 1 << 15)), r"does not fill its record"),
    "a flat sky": (put(*SCENE, "sky", value=lambda t: t[0].clone()), r"sky must be a tensor \[3, any, any\]"),
    "an unknown parameter": (put(*SCENE, "more", value=torch.zeros(1)), r"scene\.parameters must be a record of means, quats"),
    "a node of no track": (put("scene", "node", value=lambda t: t + 9), r"scene\.node must be numbers from 0 to 4"),
    "nodes in disorder": (put("scene", "node", value=lambda t: t.flip(0)), r"scene\.node must be in the order"),
    "offsets beyond the keyframes": (put(*TRACKS, "offsets", value=(0, 1, 2, 3, 10**6)), r"times must be a tensor \[1000000\]"),
    "offsets that fall": (put(*TRACKS, "offsets", value=lambda o: (0, 5, 3, *o[3:])), r"offsets must be 5 numbers that rise"),
    "times that fall": (put(*TRACKS, "times", value=lambda t: t.flip(0)), r"times must be rising within each track"),
    "names with line feeds": (put(*TRACKS, "ids", value=lambda i: ("a\nb", *i[1:])), r"ids must be .*printable"),
    "one name twice": (put(*TRACKS, "ids", value=lambda i: (i[1], *i[1:])), r"ids must be different"),
    "an endless margin": (put(*TRACKS, "margin", value=INF), r"margin must be a number from 0"),
    "a generator of numbers": (put("generator", value=torch.zeros(5056)), r"generator must be a tensor \[any\] of uint8"),
    "steps before the first": (put("counters", "step", value=-3), r"counters\.step must be a number from 0"),
    "half a step": (put("counters", "step", value=1.5), r"counters\.step must be a whole number"),
    "no seconds": (put("counters", "seconds", value=NAN), r"counters\.seconds must be a number"),
    "a history of texts": (put("history", value=["x"]), r"history\[0\] must be a record"),
    "a rate that is none": (put("config", "lr", "means", value=NAN), r"lr\.means is nan, but must lie between"),
    "a text for a number": (put("config", "model", "points", value="many"), r"model\.points is 'many', but must be auto or lie between"),
    "an unknown key": (put("config", "lr", "meens", value=1.0), r"key 'lr\.meens' is unknown; did you mean lr\.means"),
    "a defaults list": (put("config", "defaults", value=["train_schema"]), r"key 'defaults' is unknown"),
    "what OmegaConf resolves": (put("config", "data", "name", value="${oc.env:SECRET}"), r"data\.name is '\$\{oc\.env:SECRET\}', but"),
    "an option of lists": (put("config", "opt", value={"workers": {"count": [1]}}), r"opt\.workers\.count is a list of 1, but"),
    # found by scripts/fuzz.py
    "groups of tensors": (
        put("optimizer", "param_groups", 0, "params", value=torch.zeros(2)),
        r"param_groups must be one a parameter",
    ),
    "a tensor for a number": (
        put("config", "density", "growth", value=torch.zeros(3, 2)),
        r"density\.growth is a Tensor, but must be a number",
    ),
    "a tensor for a version": (put("format", value=torch.zeros(2)), r"is not a checkpoint of this version"),
    "another version": (put("format", value=99), r"is not a checkpoint of this version"),
    "no configuration": (put("config", value=None), r"config must be a record"),
    "a camera without a focal length": (
        put("capture", "cameras", 0, "fx", value=0.0),
        r"capture\.cameras\[0\]\.fx must be a number from 1e-09",
    ),
    "frames of a sensor that is not there": (
        put("capture", "frames", value=lambda f: {"x" if n == "lidar" else n: v for n, v in f.items()}),
        r"capture\.frames must be a record of camera_0, camera_1, lidar",
    ),
}  # fmt: skip
