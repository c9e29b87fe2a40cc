# SPDX-License-Identifier: Apache-2.0
"""Every dataclass of the configuration. Hydra composes `conf/` over it, `to_config` checks it and returns plain objects.

Defaults are here and nowhere else; the files under `conf/` only choose.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nurec_lite.base.config_store import store_class
from nurec_lite.base.errors import ConfigError
from nurec_lite.base.export_keys import ExportKeys
from nurec_lite.base.paths import at_home
from nurec_lite.base.service_keys import ServiceKeys
from nurec_lite.bounds import check_values, refuse_unknown

SUBSETS = ("test", "train", "all")
PATHS = (  # keys that name a file or folder
    "out", "checkpoint", "train.resume", "data.root", "data.poses.file", "data.tracks.file", "data.mapping", "data.masks", "csv",
    "edits", "path", "ego_masks", "tls_certificate", "tls_key", "tls_clients", "sensor", "patterns", "runs",
)  # fmt: skip


@dataclass
class FileChoice:
    file: str | None = None


@dataclass
class PosesChoice(FileChoice):
    source: str = "auto"  # capture: as the capture says; lidar: estimated from the sweeps; auto: the sharper of both
    convention: str = "lidar"  # frame of a row: lidar, camera (0) or rig (oxts), alone or with _inverse or _relative


@dataclass
class TracksChoice(FileChoice):
    source: str = "auto"  # auto: labels, completed from the sweeps; or only capture, lidar, none
    sizes: str = "hwl"  # order of height, width and length in the file's columns, by first letters
    first_frame: int = 0  # the file's number of the drive's frame 0


@dataclass
class DataConfig:
    """The capture, and the part of it that is read."""

    name: str = "capture"  # name of the capture, and of the results' folder
    kind: str = "bundled"  # the reader; data=NAME sets it, with its defaults
    root: str | None = None  # file of a pack, folder of a drive, bag
    downscale: int = 1  # images are reduced by this factor
    split: str = "interp"  # interp, side, validation or half
    frames: list[int] | None = None  # first and last (exclusive) frame, and if given the step between them; null: all
    cameras: list[str] | None = None  # cameras to read, in order; `side` holds out the last; null: all (KITTI: colour)
    lidars: list[str] | None = None  # lidars to read, in this order; null: all (PandaSet: the Pandar64)
    seconds: list[float] | None = None  # first and last (exclusive) second of the middles of frames; null: all
    without: list[str] | None = None  # frames to leave out: SENSOR/NUMBER or SENSOR/FIRST-LAST; null: none
    masks: str | None = None  # folder of CAMERA.png, white is left out; auto: the bonnet; none; null: the capture's own
    trust: bool = False  # true trains although sensors prove that the capture is wrong
    mapping: str | None = None  # rosbag: YAML file that maps topics to sensors; null: found
    date: str | None = None  # KITTI raw: found when there is one
    drive: str | None = None  # KITTI raw: found when there is one; Argoverse 2, nuScenes, PandaSet, Waymo: the scene
    image_delay: float = 0.0075  # KITTI raw: seconds from exposure to time stamp
    rate: float | None = None  # COLMAP: images a second where names are numbers; null: names are times, or 10
    unit_metres: float = 1.0  # COLMAP: metres of a unit of the reconstruction
    poses: PosesChoice = field(default_factory=PosesChoice)  # KITTI raw: a 3x4 matrix a row; null: oxts
    tracks: TracksChoice = field(default_factory=TracksChoice)  # KITTI raw: labels; null: tracklet_labels.xml, if any


@dataclass
class ModelConfig:
    """The start of the scene."""

    points: int | str = 60_000  # background Gaussians from the lidar, about; auto: half of density.cap
    actor_points: int = 2_000  # largest number of Gaussians of an actor
    mirror_actors: bool = True  # cars and the like begin with a mirror image of their measured side
    raised_points: int | str = 8_000  # Gaussians above the lidar's highest beam, about; auto: a fifth of density.cap
    far_points: int | str = 4_000  # Gaussians of the far shell at most; auto: a tenth of density.cap, at most 100 000
    far_metres: float = 150.0  # distance of the far shell
    sh_degree: int = 1  # 0 to 3
    sky_height: int = 128  # rows of the environment map; it has twice as many columns
    lidar_opacity: bool = True  # the lidar has its own opacity; false: it uses the camera's
    opacity: float = 0.5  # initial opacity of measured points
    guessed_opacity: float = 0.1  # initial opacity of raised and far points
    calibrate: bool = False  # corrects the rig's poses, the cameras' mountings and clocks, and exposure over time
    knot_seconds: float = 0.5  # seconds between the knots of corrections over time, if model.calibrate
    bilateral_grid: list[int] | None = None  # cells across, down and over luminance, if model.calibrate; null: no grid
    thickness: float = 0.3  # initial scale across a surface, relative to the scale along it


@dataclass
class LearningRates:
    """Adam's step sizes. That of the means falls exponentially by `means_decay` over the run, as in 3DGS; the others by `decay`."""

    means: float = 4e-3  # metres
    means_decay: float = 0.01  # factor over the whole run
    quats: float = 4e-3  # rotations
    log_scales: float = 4e-2  # sizes
    opacity_logits: float = 5e-2  # opacities
    sh0: float = 4e-2  # colour that does not depend on the direction
    sh_rest: float = 3e-3  # colour that depends on the direction
    lidar_logits: float = 5e-2  # intensity, ray drop and the lidar's opacity
    sky: float = 5e-2  # environment map
    track_translations: float = 1e-4  # metres, of actors
    track_quaternions: float = 2e-5  # rotations of actors
    exposure: float = 2e-3  # gain and offset of the cameras
    rig_rotations: float = 2e-5  # radians, of corrections of the rig's poses, if model.calibrate
    rig_translations: float = 3e-4  # metres, of corrections of the rig's poses, if model.calibrate
    camera_rotations: float = 2e-5  # radians, of corrections of the cameras' places on the rig, if model.calibrate
    camera_translations: float = 3e-4  # metres, of corrections of the cameras' places on the rig, if model.calibrate
    camera_offsets: float = 1e-4  # seconds, of the cameras' clocks, if model.calibrate
    exposure_drift: float = 2e-3  # gain and offset from knot to knot, if model.calibrate
    vignetting: float = 1e-3  # log gain towards the corners, if model.calibrate
    bilateral: float = 2e-3  # transforms of colour in the cells of model.bilateral_grid
    decay: float = 0.3  # factor of all other rates over the whole run


@dataclass
class DensityConfig:
    """3DGS-MCMC (Kheradmand et al. 2024): relocation of dead Gaussians, growth up to a cap, and noise."""

    every: int = 100  # steps between relocations
    start: float = 0.05  # fraction of the run when relocations begin
    stop: float = 0.8  # fraction of the run when they end
    cap: int | str = 80_000  # largest number of Gaussians; auto: by the surface that images see (docs/model.md)
    growth: float = 1.05  # factor at each relocation until the cap is reached
    footprint: bool = True  # relocation prefers Gaussians that cover many pixels of a training image
    jitter: float = 0.5  # standard deviations that copies move apart
    box: float | None = None  # factor that enlarges an actor's box; Gaussians outside are dead; null: no limit
    noise: float = 1.0  # times the means' learning rate: standard deviations of noise at opacity 0


@dataclass
class LossWeights:
    """Factors of the terms, by their names."""

    image: float = 1.0  # L1 and SSIM of the image
    ssim: float = 0.2  # share of 1 - SSIM inside the term `image`
    range: float = 0.1  # a metre
    reach: float = 0.3  # metres: largest residual of a Gaussian away from the return; 0: compares the expected range
    intensity: float = 0.1  # L1 on rays that returned
    drop: float = 0.05  # cross entropy of ray drop
    opacity: float = 0.01  # mean opacity, of camera and lidar added up; it falls where no term needs it
    tie: float = 0.01  # mean difference of the camera's and the lidar's opacity, if model.lidar_opacity
    scale: float = 0.01  # a metre
    exposure: float = 0.01  # squares of log gain and offset
    calibration: float = 1.0  # squares of corrections of poses and clocks, in metres, if model.calibrate
    drift: float = 0.01  # squares of the exposure's drift and of its changes, if model.calibrate
    bilateral: float = 1.0  # squares of differences between neighbouring cells of model.bilateral_grid


@dataclass
class TrainConfig:
    steps: int | None = None  # budget in steps, instead of seconds; with both, the first limit ends the run
    seconds: float | None = None  # budget of training, without reading, initialisation and evaluation
    lidar_rays: int = 4096  # approximate number of rays of a sweep in a step
    lidar_sector: int | None = None  # width of a sector of rays, in columns of four azimuth steps; null: two sectors
    lidar_every: int = 1  # a sweep in every so many steps; the other steps learn from images alone
    coarse: int | float | str = 0.0  # first share of the run, at half of images' width and height; auto: by pixels
    checkpoint_seconds: float = 60.0  # seconds between checkpoints
    resume: str | None = None  # checkpoint to continue from; auto: the run in `out`, if it exists
    overwrite: bool = False  # true replaces the run in `out`
    evaluate: bool = True  # measures the held-out frames at the end
    tensorboard: bool = False  # writes scalars for TensorBoard (extra `tensorboard`)
    timing: bool = False  # prints the time of each range of a step, and writes timing.csv


@dataclass
class MeasureConfig:
    """Figures beyond those of every held-out frame."""

    seconds: float | None = None  # largest time for FLIP, LPIPS, figures off the path; 0: none; null: 3, or 20 on a CPU


@dataclass
class Config:
    """Configuration of a run; those of the other commands extend it."""

    out: str = "runs/last"  # folder of the results
    seed: int = 0  # seed of all random numbers
    device: str = "auto"  # auto, cpu, cuda or cuda:N
    ops: str = "native"  # native: kernels, compiled at first use; reference: plain torch, exact and slow
    render: str = "own"  # own: our renderer, by `ops`; gsplat: the peer (CUDA; images, lidar as their depth)
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    lr: LearningRates = field(default_factory=LearningRates)
    density: DensityConfig = field(default_factory=DensityConfig)
    loss: LossWeights = field(default_factory=LossWeights)
    measure: MeasureConfig = field(default_factory=MeasureConfig)
    opt: dict[str, Any] = field(default_factory=dict)  # option name -> its parameters, in the order of the command line


@dataclass
class EvaluateConfig(Config):
    """Configuration of `evaluate`, which measures a checkpoint."""

    out: str = Config.out  # folder of the results; by default evaluate-SPLIT-SUBSET-stepN next to the checkpoint
    checkpoint: str = ""  # checkpoint of train: runs/NAME/checkpoint.pt
    subset: str = "test"  # frames of the split to measure: test (held out), train or all


@dataclass
class RenderConfig(Config):
    """Configuration of `render`. Metres, seconds of the capture, degrees."""

    out: str = Config.out  # folder of the results; by default render-stepN-... next to the checkpoint
    checkpoint: str = ""  # checkpoint of train: runs/NAME/checkpoint.pt
    sensors: list[str] | None = None  # names of cameras and lidars, A,B; null: all, or only those of `sensor`
    sensor: list[str] = field(default_factory=list)  # YAML files of your own cameras and lidars (docs/sensors.md)
    subset: str = "all"  # frames to render if no times are given: test (held out), train or all
    times: list[float] | None = None  # T: one moment; FIRST,LAST: fps moments a second between; null: the frames' own
    path: str | None = None  # YAML file of a camera path, instead of times, shift and sensors (docs/viewer.md)
    fps: float = 10.0  # moments a second between the first and the last; pictures a second in an animation
    shift: list[float] = field(default_factory=lambda: [0.0] * 3)  # metres FORWARD,LEFT,UP in the vehicle's axes
    remove: list[str] = field(default_factory=list)  # ids of tracks to remove; actors: all of them
    move: list[str] = field(default_factory=list)  # ID:FORWARD:LEFT:UP:TURN in an actor's axes, metres; degrees left
    edits: str | None = None  # YAML file: actors removed, moved, on other paths, copied (docs/editing.md)
    compare: bool = False  # the captured image, if there is one, above its render
    formats: list[str] = field(default_factory=lambda: ["png"])  # png, gif, apng, mp4; cameras: exr; lidars: npz, ply
    outputs: list[str] | None = None  # of cameras: colour, depth, normals, opacity, classes; null: colour, not in npz


@dataclass
class ExportConfig(ExportKeys, Config):
    """Configuration of `export`, which writes a checkpoint's scene as files of other programs."""


@dataclass
class PackConfig(Config):
    """Writes a capture into one file."""

    format: str = "pack"  # or ncore: NCore v4, NVIDIA's format
    out: str = "capture.pack"  # the file; by default named after data.name
    image_format: str = "jpeg"  # jpeg, or png without loss
    quality: int = 95  # of JPEG, 1 to 100
    show: bool = False  # true only prints the contents of the capture


@dataclass
class InspectConfig(Config):
    """Compares a capture with its sensors and draws it."""

    out: str = "runs/inspect"  # folder of the results; by default inspect- and data.name


@dataclass
class CompareConfig(Config):
    """Compares finished runs."""

    out: str = "compare.html"  # the page
    csv: str | None = None  # file that gets the table as CSV; null: none
    runs: list[str] = field(default_factory=list)  # folders of the runs; they stand on the command line without a key


@dataclass
class ViewConfig(Config):
    """Shows a scene in a browser."""

    checkpoint: str = ""  # folder of a run, or a checkpoint; it stands on the command line without a key
    host: str = "127.0.0.1"  # address of this machine that answers; 0.0.0.0 answers other machines, too
    port: int = 8080  # port that answers
    height: int = 1080  # largest height of a picture, pixels


@dataclass
class ProfileConfig(Config):
    """Records some steps of a training run."""

    tool: str = "nsys"  # nsys: timeline; ncu: counters of kernels; torch: timeline where nsys is missing, also on a CPU
    warmup: int = 20  # steps before the recorded ones
    steps: int = 10  # number of recorded steps
    kernels: str | None = None  # ncu: regular expression of kernels' names; null: all
    range: str | None = None  # ncu: only kernels that this range starts, such as step/render_camera
    launches: int = 200  # ncu: largest number of measured launches, the first ones; a step of the baseline has 1 400


@dataclass
class ServeConfig(ServiceKeys, Config):
    """Serves sensors to a simulator."""


VERBS: dict[str, type[Config]] = {
    "train": Config, "evaluate": EvaluateConfig, "render": RenderConfig, "export": ExportConfig, "pack": PackConfig,
    "inspect": InspectConfig, "profile": ProfileConfig, "compare": CompareConfig, "view": ViewConfig, "serve": ServeConfig,
}  # fmt: skip
for _verb, _class in VERBS.items():
    store_class(f"{_verb}_schema", _class)


def to_config(
    composed: DictConfig,  # as Hydra composed it
) -> Config:
    """Plain, typed configuration; ConfigError for a wrong type or a value out of range."""
    try:
        config = OmegaConf.to_object(composed)
    except Exception as error:  # OmegaConf raises a class of its own for each kind of mistake
        raise ConfigError(f"configuration: {str(error).splitlines()[0]}; correct this key") from error
    assert isinstance(config, Config)
    _refuse_unknown(composed, type(config))
    _expand_paths(config)
    _check(config)
    return config


def _expand_paths(config: Config) -> None:
    """Expands `~` to the home folder. ConfigError for a path without a character, where a default names one."""
    for owner, name, key in _places(config):
        path = getattr(owner, name)
        if path == "" and type(owner).__dataclass_fields__[name].default != "":
            raise ConfigError(f"{key} is empty; name a file or folder, as in {key}=PATH, or leave it out")
        setattr(owner, name, at_home(path))


def _places(config: Config) -> Iterator[tuple[Any, str, str]]:
    """Each path of the configuration: the dataclass that holds it, its name there, and its key."""
    for key in PATHS:
        *parts, name = key.split(".")
        owner = reduce(getattr, parts, config)
        if hasattr(owner, name):
            yield owner, name, key


def _refuse_unknown(composed: DictConfig, cls: type[Config]) -> None:
    """Refuses unknown keys: `+KEY=VALUE` adds one to any node, and a dataclass would keep it as an unread attribute."""
    plain = OmegaConf.to_container(composed)
    assert isinstance(plain, dict)
    refuse_unknown({str(key): value for key, value in plain.items()}, [cls])


def to_dict(config: Config) -> dict[str, Any]:
    return asdict(config)


def to_yaml(config: Config) -> str:
    """Text of config.yaml; texts that look like interpolations stay as they are."""
    return OmegaConf.to_yaml(OmegaConf.create(to_dict(config)))


def check_budget(config: Config) -> None:
    """Checks the budgets of time and Gaussians: density control never removes Gaussians of the first scene."""
    if config.train.steps is None and config.train.seconds is None:
        raise ConfigError("give a budget: train.steps=N or train.seconds=S")
    model, cap = config.model, config.density.cap
    first = sum(n for n in (model.points, model.raised_points, model.far_points) if isinstance(n, int))
    if isinstance(cap, int) and cap < first and config.train.resume is None:
        raise ConfigError(
            f"density.cap is {cap}, but model.points, model.raised_points and model.far_points ask for {first} to start with; "
            "raise the cap or lower these"
        )


def _check(config: Config) -> None:
    check_values(asdict(config), [type(config)])
    frames = config.data.frames
    if frames is not None:
        _check_frames(frames)
    _check_seconds(config.data.seconds)
    _check_grid(config)
    if getattr(config, "checkpoint", None) == "":
        raise ConfigError(
            "checkpoint is missing: name a file that train wrote, as in checkpoint=runs/NAME/checkpoint.pt"
        )


def _check_frames(frames: list[int]) -> None:
    if len(frames) not in (2, 3):
        raise ConfigError(
            "data.frames takes the first frame and the one after the last, as in [0,20], and if wanted the step between frames, "
            "as in [0,20,2]"
        )
    if not frames[0] < frames[1]:
        raise ConfigError(
            f"data.frames is {frames}, but the first frame must lie before the last (exclusive), as in [0,20]"
        )
    if frames[2:] == [0]:
        raise ConfigError(f"data.frames is {frames}, but the step between frames must be at least 1, as in [0,20,2]")


def _check_seconds(seconds: list[float] | None) -> None:
    if seconds is not None and not (len(seconds) == 2 and seconds[0] < seconds[1]):
        raise ConfigError(
            "data.seconds takes the first second and the one after the last, as in [2.5,10]; correct this key"
        )


def _check_grid(config: Config) -> None:
    grid = config.model.bilateral_grid
    if grid is not None and len(grid) != 3:
        raise ConfigError(
            "model.bilateral_grid takes three numbers, cells across, down and over luminance, as in [8,8,4]"
        )
    if grid is not None and not (config.model.calibrate and config.render == "own"):
        raise ConfigError(
            "model.bilateral_grid is learned where sensors are corrected; "
            "give model.calibrate=true and render=own with it, or leave it out"
        )
