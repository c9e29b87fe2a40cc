# SPDX-License-Identifier: Apache-2.0
"""python -m nurec_lite.render: any camera or lidar of the capture at any time, on or off its path, with actors removed or moved."""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from omegaconf import OmegaConf

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.files import write_text
from nurec_lite.base.left_out import LeftOut
from nurec_lite.base.meter import Meter
from nurec_lite.capture.deskew import poses_at, world_points
from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.cli.command import command
from nurec_lite.cli.reconstruction import Reconstruction, open_reconstruction
from nurec_lite.cli.results import contents, name_arguments, result_folder
from nurec_lite.config import RenderConfig, to_dict
from nurec_lite.evaluation.pictures import pair, range_picture, round_range, save_png, sweep_picture, to_picture
from nurec_lite.output.birds_eye import Above, birds_eye
from nurec_lite.output.edit_file import check_edits, read_edits
from nurec_lite.output.films import KINDS, animation
from nurec_lite.output.map_files import CAMERA_ARRAYS, save_class_names, save_map_png, save_maps_exr, save_maps_npz
from nurec_lite.output.maps import CameraMaps, class_names, maps_of
from nurec_lite.output.path_plan import path_plan
from nurec_lite.output.plan import EXR, PICTURES, Plan, Shot, make_plan
from nurec_lite.output.points import NPZ_ARRAYS, RenderedSweep, save_npz, save_ply
from nurec_lite.output.sensor_file import read_sensor
from nurec_lite.output.sensors import NovelSensor, with_sensor
from nurec_lite.output.sweeps import rendered_sweeps
from nurec_lite.peer.rasterize import IMAGES_ALONE
from nurec_lite.scene.edit import Edits, edited, parse_move, removed_tracks
from nurec_lite.scene.scene import Scene
from nurec_lite.training.stages import Stages

HELP = f"""
Renders a checkpoint: any camera or lidar of its capture, at any time, on the driven path or off it, actors removed or moved.
Below, FILE is a checkpoint of train, such as runs/mine/checkpoint.pt.

  python -m nurec_lite.render checkpoint=FILE subset=test compare=true                held-out frames below the captured ones
  python -m nurec_lite.render checkpoint=FILE shift=0,1,0 formats=mp4                 films from 1 m further left
  python -m nurec_lite.render checkpoint=FILE times=1.23 remove=000,007               one moment, without two actors
  python -m nurec_lite.render checkpoint=FILE times=1,2 fps=30 move=000:-3:2:0:20 formats=gif
                                                                                      an actor 3 m back, 2 m left, turned by 20 degrees
  python -m nurec_lite.render checkpoint=FILE edits=edits.yaml                        actors edited by a file (docs/editing.md)
  python -m nurec_lite.render checkpoint=FILE sensors=lidar formats=npz,ply           every sweep as points
  python -m nurec_lite.render checkpoint=FILE sensors=image_02,velodyne times=4,6     two seconds of a KITTI drive
  python -m nurec_lite.render checkpoint=FILE sensor=beams32.yaml formats=png,npz     a lidar that the drive did not have
  python -m nurec_lite.render checkpoint=FILE path=flight.yaml fps=30 formats=mp4     along a path that the viewer saved (docs/viewer.md)
  python -m nurec_lite.render checkpoint=FILE sensors=camera_0 outputs=colour,depth,normals,classes formats=png,npz

Results lie in the folder `out`, which is render-stepN next to the checkpoint unless given; what is asked, such as shift=0,1,0,
becomes part of its name. They are SENSOR_0012.png for frame 12 and SENSOR_t0001.230.png for 1.23 s, and SENSOR.mp4 (.gif, .apng) for
all; of a lidar also SENSOR_above*, the sweep from above over the measured one, with the ids that remove and move take. Points of a
lidar go to SENSOR_*.ply (world, metres, with intensity) and SENSOR_*.npz, which holds, for R rays:

{NPZ_ARRAYS}

`outputs` adds files of cameras: SENSOR_0012_depth.png (16 bits, 1/256 m a step, 0: no depth), SENSOR_0012_normals.png ((n + 1) / 2 as
red, green, blue), SENSOR_0012_opacity.png and SENSOR_0012_classes.png (numbers of classes.json). With formats=npz it adds
SENSOR_0012.npz, which holds what was asked for of

{CAMERA_ARRAYS}

formats=exr (extra `exr`) writes SENSOR_0012.exr with channels R, G, B, Z (metres), N.X, N.Y, N.Z, opacity and class.

A moment between the frames is the middle of an exposure on the interpolated path; a lidar then sends the rays of the nearest sweep.
"""
log = logging.getLogger("nurec_lite")
_SAME = frozenset(
    {"checkpoint", "out", "device", "formats", "sensors"}
)  # files are named by them, or the same with others
Show = Callable[[str, np.ndarray], None]


@dataclass(frozen=True)
class _Job:
    """Settings that all sensors share."""

    config: RenderConfig
    stages: Stages
    scene: Scene  # edited
    edits: Edits
    capture: Capture
    out: Path
    advance: Callable[[], object]  # after each frame
    left_out: LeftOut  # gets pictures that fail

    @property
    def edited(self) -> bool:
        return self.edits != Edits()

    @property
    def altered(self) -> str:
        """The differences between the render and the captured frame, for titles."""
        shift, edits, parts = self.config.shift, self.edits, []
        if any(shift):
            parts.append(f"shifted by {', '.join(f'{metres:g}' for metres in shift)} m")
        parts += [f"without {', '.join(edits.removed)}"] if edits.removed else []
        elsewhere = [name for name, _ in (*edits.moves, *edits.trajectories)]
        parts += [f"moved {', '.join(elsewhere)}"] if elsewhere else []
        parts += [f"with {', '.join(copy.name for copy in edits.copies)}"] if edits.copies else []
        return f"rendered ({'; '.join(parts)})" if parts else "rendered"


@torch.no_grad()
def render(run: Reconstruction, left_out: LeftOut) -> tuple[Plan, Path]:
    """Renders all outputs of the configuration; returns them and their folder."""
    config: RenderConfig = run.config
    own = [read_sensor(Path(file), run.capture) for file in config.sensor]
    plan, capture = _planned(run, own)
    edits = _edits(config, run.scene, run.capture)
    scene = edited(run.scene, edits)
    files = [file for file in (config.edits, config.path, *config.sensor) if file is not None]
    asked = [*name_arguments(run.arguments, _SAME), *contents(files)]
    out = result_folder(config, config.checkpoint, "render", run.counters, asked)
    if config.compare and config.times is not None:
        log.info("nothing was captured at the times given: images stand alone in spite of compare=true")
    if config.subset != RenderConfig.subset and config.times is not None:
        log.info("the times given choose the moments: subset=%s changes nothing", config.subset)
    write_text(out / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(to_dict(config))))
    with Meter(len(plan), "frames", "rendering") as meter:
        job = _Job(config, run.stages, scene, edits, capture, out, meter.advance, left_out)
        for name, images in plan.images.items():
            _render_camera(job, name, images)
        for name, sweeps in plan.sweeps.items():
            _render_lidar(job, name, sweeps)
    return plan, out


def _planned(run: Reconstruction, own: list[NovelSensor]) -> tuple[Plan, Capture]:
    """The frames to render, and the capture with the sensors that render them."""
    capture = _with_all(run.capture, own)
    if run.config.path is not None:
        return path_plan(run.config, run.capture, own)
    return _possible(make_plan(run.config, run.capture, own), run), capture


def _edits(config: RenderConfig, scene: Scene, capture: Capture) -> Edits:
    """Edits of the file and of the command line; ConfigError if both edit one track."""
    moves = tuple(map(parse_move, config.move))
    if config.edits is None:
        return Edits(tuple(config.remove), moves)
    file = read_edits(Path(config.edits), scene, trajectory_of(capture).span)
    edits = replace(file, removed=(*file.removed, *config.remove), moves=(*file.moves, *moves))
    if config.remove or moves:
        check_edits(f"the command line with {config.edits}", scene.tracks, edits)
    return edits


def _with_all(capture: Capture, own: list[NovelSensor]) -> Capture:
    """The capture with sensors of one's own; ConfigError where two have one name."""
    for k, one in enumerate(own):
        if one.sensor.name in [other.sensor.name for other in own[:k]]:
            raise ConfigError(f"sensor names two sensors '{one.sensor.name}'; rename one")
        capture = with_sensor(capture, one.sensor)
    return capture


def _possible(plan: Plan, run: Reconstruction) -> Plan:
    """The plan without lidars if the renderer draws images alone; ConfigError if they were named, or nothing else is
    left."""
    if run.stages.renders_lidar or not plan.sweeps:
        return plan
    if run.config.sensors is not None or not plan.images:
        raise ConfigError(f"{IMAGES_ALONE}; leave {', '.join(plan.sweeps)} out of sensors, or use render=own")
    log.info("%s: %s left out", IMAGES_ALONE, ", ".join(plan.sweeps))
    return replace(plan, sweeps={})


def _render_camera(job: _Job, name: str, shots: list[Shot[ImageFrame]]) -> None:
    outputs = job.config.outputs or ["colour"]
    with _pictures(job, name) as show:
        seen = maps_of(job.stages, job.scene, job.capture, (shot.frame for shot in shots), outputs)
        for shot, maps in zip(shots, seen, strict=True):
            if "colour" in outputs:
                show(shot.label, _picture(job, shot, maps.colour))
            _save_maps(job, shot, maps, outputs)
            job.advance()


def _save_maps(job: _Job, shot: Shot[ImageFrame], maps: CameraMaps, outputs: list[str]) -> None:
    """Files of everything but the picture of the colour."""
    stem, names = f"{shot.frame.sensor}_{shot.label}", class_names(job.scene)
    if "png" in job.config.formats:
        for name in outputs:
            if name != "colour":
                save_map_png(job.out / f"{stem}_{name}.png", name, maps)
        if "classes" in outputs:
            save_class_names(job.out, names)
    if EXR in job.config.formats:
        save_maps_exr(job.out / f"{stem}.exr", maps, outputs)
    if "npz" in job.config.formats and job.config.outputs is not None:
        camera = job.capture.camera(shot.frame.sensor)
        save_maps_npz(job.out / f"{stem}.npz", maps, outputs, camera, shot.frame, names, job.capture.origin)


def _picture(job: _Job, shot: Shot[ImageFrame], image: torch.Tensor) -> np.ndarray:
    """The render above its captured image, if the configuration asks for that."""

    def compared() -> np.ndarray:
        return pair(shot.captured.load(), image, job.altered)

    if not (job.config.compare and shot.own):
        return to_picture(image)
    found = job.left_out.tried(f"The comparison of {shot.frame.sensor} {shot.label}", compared)
    return to_picture(image) if found is None else found


def _render_lidar(job: _Job, name: str, shots: list[Shot[SweepFrame]]) -> None:
    first = shots[0].captured.load()
    far = round_range(first.ranges[first.returned].numpy())  # one scale for the whole film
    drawn = set(job.config.formats) & set(PICTURES)
    with _pictures(job, name) as show, _pictures(job, f"{name}_above") as show_above:
        sweeps = rendered_sweeps(job.stages, job.scene, job.capture, (shot.frame for shot in shots))
        for shot, rendered in zip(shots, sweeps, strict=True):
            if drawn:
                _tried(job, show, shot, "ranges", partial(_ranges, job, shot, rendered, far))
                _tried(job, show_above, shot, "points from above", partial(_from_above, job, shot, rendered))
            _save_points(job, shot, rendered)
            job.advance()


def _tried(job: _Job, show: Show, shot: Shot[SweepFrame], what: str, draw: Callable[[], np.ndarray]) -> None:
    """Shows a picture, unless it cannot be drawn."""
    picture = job.left_out.tried(f"The picture of {what}, {shot.frame.sensor} {shot.label},", draw)
    if picture is not None:
        show(shot.label, picture)


@contextmanager
def _pictures(job: _Job, name: str) -> Iterator[Show]:
    """A function that writes a picture as PNG and adds it to the animations, whichever are wanted."""
    with ExitStack() as stack:
        kinds = [kind for kind in KINDS if kind in job.config.formats]
        films: list[Callable[[np.ndarray], None]] = []  # begun with the first picture, since all of them may fail

        def show(label: str, picture: np.ndarray) -> None:
            if "png" in job.config.formats:
                save_png(job.out / f"{name}_{label}.png", picture)
            if not films:
                films.extend(stack.enter_context(animation(job.out / f"{name}.{k}", job.config.fps)) for k in kinds)
            for add in films:
                add(picture)

        yield show


def _comparable(job: _Job, shot: Shot[SweepFrame]) -> bool:
    """Whether the scene as it was captured was measured along the very same rays."""
    return shot.own and not any(job.config.shift) and not job.edited


def _ranges(job: _Job, shot: Shot[SweepFrame], rendered: RenderedSweep, far: float) -> np.ndarray:
    if _comparable(job, shot):
        return range_picture(rendered.rays, rendered.returns, rendered.lidar, far)
    return sweep_picture(rendered.sweep, rendered.lidar, job.altered, far)


def _from_above(job: _Job, shot: Shot[SweepFrame], rendered: RenderedSweep) -> np.ndarray:
    sweep, time = shot.captured.load(), shot.frame.time_mid
    measured = world_points(shot.captured, sweep, job.capture.lidar(shot.captured.sensor))[sweep.returned]
    middle = poses_at(shot.frame, torch.tensor(0.5))
    tracks, hidden = job.scene.learned_tracks().to("cpu"), _hidden(job)
    above = Above(rendered.points_world(), measured, middle, tracks, frozenset(hidden), time)
    legend = "measured" if shot.own else f"measured at {shot.captured.time_mid:.3f} s"
    return birds_eye(above, f"{shot.frame.sensor} at {time:.3f} s from above: {job.altered} over measured", legend)


def _hidden(job: _Job) -> list[int]:
    """Numbers of removed tracks. Copies are the last tracks, and stay."""
    own = range(len(job.scene.tracks) - len(job.edits.copies))
    return removed_tracks(job.scene.tracks.select(own), job.edits.removed)


def _save_points(job: _Job, shot: Shot[SweepFrame], rendered: RenderedSweep) -> None:
    stem = f"{shot.frame.sensor}_{shot.label}"
    if "npz" in job.config.formats:
        save_npz(job.out / f"{stem}.npz", rendered, _comparable(job, shot))
    if "ply" in job.config.formats:
        save_ply(job.out / f"{stem}.ply", rendered)


def work(arguments: list[str]) -> None:
    run = open_reconstruction("render", arguments)
    left_out = LeftOut()
    try:
        plan, out = render(run, left_out)
    finally:
        left_out.tried("Closing the options", run.stages.close)
    names = ", ".join([*plan.images, *plan.sweeps])
    count = f"{len(plan)} frame{'s' if len(plan) > 1 else ''}"
    print(f"{count} of {names} in {out}: {', '.join(dict.fromkeys(run.config.formats))}")


if __name__ == "__main__":
    command("render", HELP, work)
