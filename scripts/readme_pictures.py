# SPDX-License-Identifier: Apache-2.0
"""Draws the README's pictures from a run on the bundled capture: python scripts/readme_pictures.py runs/RUN --out docs/images

report.png is a picture of the run's report.html by Chromium, and is left out without it. It carries the run's metrics, which must be
those of benchmarks/results/train_street_cpu_2_threads.json, the run that README.md quotes. Train on idle cores: it shows times.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from nurec_lite.base.program import Parser, ends_with_a_sentence
from nurec_lite.capture.types import Capture
from nurec_lite.config import DataConfig
from nurec_lite.evaluation.measure import image_of
from nurec_lite.evaluation.pictures import RANGE_MAP, Bar, enlarged, range_image, save_png, to_picture
from nurec_lite.geometry.lidar import azimuth_elevation
from nurec_lite.output.films import save_animation
from nurec_lite.readers import open_capture
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.views import lidar_view
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.checkpoint import load_checkpoint, scene_from_dict
from nurec_lite.training.step import render_sweep

FAR_METRES = 40.0
REPORT = 1200, 2350  # pixels of its upper part
BROWSERS = "chromium", "chromium-browser", "google-chrome"


@torch.no_grad()
def moment(scene: Scene, capture: Capture, index: int, cameras: int) -> np.ndarray:
    """Truth above render for the first cameras, and below them measured above rendered range."""
    stages, columns = reference_stages(), []
    names = [camera.name for camera in capture.cameras[:cameras]]
    for frame in (f for f in capture.images if f.index == index and f.sensor in names):
        columns.append(np.concatenate([to_picture(frame.load()), to_picture(image_of(stages, scene, capture, frame))]))
    picture = enlarged(np.concatenate(columns, axis=1), 2, 2)
    frame = next(f for f in capture.sweeps if f.index == index)
    sweep, lidar = frame.load(), capture.lidar(frame.sensor)
    median = render_sweep(stages, scene, lidar_view(capture, frame, sweep, "cpu")).median
    azimuth = azimuth_elevation(sweep.directions)[:, 0].numpy()
    strips = []
    for values, seen in ((sweep.ranges, sweep.returned), (median, median > 0)):
        ranges = torch.where(seen, values, torch.nan).numpy()
        image = range_image(ranges, sweep.rings.numpy(), azimuth, lidar.elevations.numpy(), picture.shape[1] // 2)
        strips.append(enlarged(Bar(RANGE_MAP, 0, FAR_METRES).paint(image), 2, 2))
    return np.concatenate([picture, *strips])


def render(run: Path, *arguments: str) -> dict[str, np.ndarray]:
    """Images from the command `render` with these arguments, by the names of its files."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "nurec_lite.render", f"checkpoint={run / 'checkpoint.pt'}", f"out={folder}"]
        subprocess.run([*command, *arguments], check=True)
        return {path.name: np.asarray(Image.open(path).convert("RGB")) for path in Path(folder).glob("*.png")}


def edited(run: Path, out: Path) -> None:
    """The same moment on the path and off it, with an actor and without it, and a sweep from above."""
    camera, above = "camera_0_t0001.230.png", "lidar_above_t0001.230.png"
    plain = render(run, "times=1.23", "sensors=camera_0,lidar")
    for name, argument in (("shift", "shift=0,1,0"), ("remove", "remove=000")):
        changed = render(run, "times=1.23", "sensors=camera_0", argument)[camera]
        save_png(out / f"{name}.png", enlarged(np.concatenate([plain[camera], changed], axis=1), 2, 2))
    save_png(out / "above.png", plain[above])


def report(run: Path, file: Path) -> None:
    """The upper part of the run's report. Its notes name the home folder, which becomes ~."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        print(f"{file} is left out: it needs one of {', '.join(BROWSERS)}")
        return
    with tempfile.TemporaryDirectory() as folder:
        page, picture = Path(folder, "report.html"), Path(folder, "report.png")
        page.write_text((run / "report.html").read_text().replace(str(Path.home()), "~"))
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        size = "--window-size={},{}".format(*REPORT)
        subprocess.run(
            [program, *flags, size, f"--screenshot={picture}", page.as_uri()], check=True, capture_output=True
        )
        drawn = (
            Image.open(picture).convert("RGB").quantize(256, dither=Image.Dither.NONE, kmeans=3)
        )  # a third of the bytes
        metrics, figures = json.loads((run / "metrics.json").read_text()), PngInfo()
        figures.add_text(
            "metrics", json.dumps({key: value for key, value in metrics.items() if key not in ("notes", "findings")})
        )
        drawn.save(file, optimize=True, pnginfo=figures)


def draw(run: Path, out: Path) -> None:
    scene = scene_from_dict(load_checkpoint(run / "checkpoint.pt", "cpu")["scene"])
    capture = open_capture(DataConfig())
    moments = sorted({frame.index for frame in capture.images})
    out.mkdir(parents=True, exist_ok=True)
    save_png(out / "street.png", moment(scene, capture, moments[len(moments) // 2 // 5 * 5 + 4], cameras=2))
    edited(run, out)
    report(run, out / "report.png")
    save_animation(out / "street.gif", [moment(scene, capture, i, cameras=1) for i in moments[::2]], fps=5)


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("run", type=Path, help="folder of a run on the bundled capture")
    parser.add_argument("--out", type=Path, required=True, help="folder for street.png and street.gif")
    args = parser.parse_args()
    with ends_with_a_sentence():
        draw(args.run, args.out)


if __name__ == "__main__":
    main()
