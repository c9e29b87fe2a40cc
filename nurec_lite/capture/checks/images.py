# SPDX-License-Identifier: Apache-2.0
"""Images of a camera: files of the size that is said, pictures that show something, that change, and that no other camera has, too."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import combinations
from statistics import median

from torch import Tensor
from torch.nn import functional as F

from nurec_lite.base.pool import in_threads
from nurec_lite.capture.checks.channels import opposite_channels
from nurec_lite.capture.checks.damaged import damaged_images
from nurec_lite.capture.checks.misplaced import misplaced
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.single_images import file_size, single_images
from nurec_lite.capture.checks.thumbnails import thumbnail
from nurec_lite.capture.checks.tones import changed_at_once
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.images import grey, kind_of
from nurec_lite.capture.jpeg import damage_of
from nurec_lite.capture.masks.found import own_vehicle, small, while_driving
from nurec_lite.capture.types import Capture, CaptureError, Glanced, ImageFrame
from nurec_lite.capture.without import FEW, frame_names, leave_out, without
from nurec_lite.geometry.camera import Camera

NAME = "images"
PLAIN = 1.0  # grey levels of standard deviation: an image of one colour has less
ALIKE = 1.0  # grey levels between small copies of two images that show the same
SMALL_FILE, LOOKED = 0.3, 4  # of the usual size of a camera's files, and the number of smaller ones that are looked at
SMALL = (24, 40)  # rows and columns of such copies
MOVED = 0.2  # metres from an image to the next that change the view
SURE, WAY = 11, 20.0  # images of all, and metres from the first to the last, that show the own vehicle
MOST = 0.5  # of the images of two cameras that are the same: certainly wrong
Kind = tuple[str, str]  # PNG or JPEG, RGB or L


def check_images(sample: Sample) -> Iterator[Verdict]:
    """Yields verdicts about images; CaptureError where a file cannot be used."""
    kinds = _kinds(sample)
    for camera in sample.capture.cameras:
        found = [*_kind_verdicts(camera.name, kinds[camera.name]), *of_camera(sample, camera)]
        yield from found
        if all(verdict.level is Level.RIGHT for verdict in found):
            yield from changed_at_once(sample, camera.name, NAME)
    yield from _same_verdicts(sample)
    yield from opposite_channels(sample, NAME)


def of_camera(sample: Sample, camera: Camera) -> list[Verdict]:
    """Returns the verdicts of a camera's images alone."""
    return sample.kept(("images of", camera.name), lambda: list(_of_camera(sample, camera)))


def _of_camera(sample: Sample, camera: Camera) -> Iterator[Verdict]:
    frames = {
        frame.index: frame for frame in (*sample.images_of(camera.name), *_small_files(sample.capture, camera.name))
    }
    yield from _plain_verdicts(
        camera.name, {number: thumbnail(sample, frame) for number, frame in sorted(frames.items())}
    )
    yield from _own_verdicts(sample, camera)
    every = [frame for frame in sample.capture.images if frame.sensor == camera.name]
    yield from _repeated_verdicts(every)
    damaged = list(damaged_images(sample, every, NAME))
    yield from damaged or list(misplaced(sample, every, NAME, "images")) or single_images(sample, every, NAME)


def _small_files(capture: Capture, camera: str) -> list[ImageFrame]:
    """A few images with far smaller files than others: those of one colour are among them."""
    frames = [f for f in capture.images if f.sensor == camera]
    sizes = [(size, frame) for frame in frames if (size := file_size(frame)) is not None]
    usual = median(size for size, _ in sizes) if sizes else 0
    small = sorted((pair for pair in sizes if pair[0] < SMALL_FILE * usual), key=lambda pair: pair[0])
    return [frame for _, frame in small[:LOOKED]]


def _kinds(sample: Sample) -> dict[str, Counter[Kind]]:
    """Kinds of each camera's files. All files are looked at: one that cannot be used would end a run, or cost its metrics."""
    found = {camera.name: kinds_of(sample, camera.name) for camera in sample.capture.cameras}
    flaws = [flaw for _, flawed in found.values() for flaw in flawed.values()]
    if flaws:
        more = f" ({len(flaws) - 1} more files cannot be used either)" if len(flaws) > 1 else ""
        names = [name for camera, (_, flawed) in found.items() for name in frame_names(camera, flawed)]
        others = f", or leave the frame{'s' * (len(flaws) > 1)} out by {without(names)}"
        raise CaptureError(f"{flaws[0]}{more}{others * (len(flaws) <= FEW * len(sample.capture.images))}")
    return {name: kinds for name, (kinds, _) in found.items()}


def kinds_of(sample: Sample, camera: str) -> tuple[Counter[Kind], dict[int, str]]:
    """Returns the number of a camera's files of each kind, and a sentence for each file that cannot be used, by the frame's number."""
    return sample.kept(("kinds of", camera), partial(_kinds_of, sample.capture, camera))


def _kinds_of(capture: Capture, camera: str) -> tuple[Counter[Kind], dict[int, str]]:
    frames = [frame for frame in capture.images if frame.sensor == camera]
    every = dict(zip((frame.index for frame in frames), in_threads(_looked_at, frames), strict=True))
    kinds = Counter(found for found in every.values() if isinstance(found, tuple))
    return kinds, {number: found for number, found in every.items() if isinstance(found, str)}


def _looked_at(frame: ImageFrame) -> Kind | str | None:  # a sentence where it cannot be used
    try:
        found = kind_of(frame.load.glance()) if isinstance(frame.load, Glanced) else None
        if found is None and isinstance(frame.load, Glanced):
            frame.load()
            _check_whole(frame)
    except CaptureError as error:
        return str(error)
    return found


def _check_whole(frame: ImageFrame) -> None:
    """Raises CaptureError for a JPEG without its end: a decoder takes zeros there for pixels."""
    encoded = frame.encoded()
    if encoded is not None and (words := damage_of(encoded)) is not None:
        raise CaptureError(f"{encoded.name} is no whole JPEG image ({words}); copy it again from its source")


def _kind_verdicts(camera: str, kinds: Counter[Kind]) -> Iterator[Verdict]:
    if len(kinds) > 1:
        found = " and ".join(
            f"{count} {file} {'grey' if mode == 'L' else 'in colour'}" for (file, mode), count in kinds.most_common()
        )
        sentence = f"The images of {camera} are of several kinds: {found}."
        yield Verdict(NAME, camera, Level.LIKELY, sentence, "take all of them from one source")


def _plain_verdicts(camera: str, images: dict[int, Tensor]) -> Iterator[Verdict]:
    found = {number: image.float() for number, image in images.items() if float(image.float().std()) < PLAIN}
    plain = list(found.values())
    if not plain:
        yield Verdict(NAME, camera, Level.RIGHT, f"The images of {camera} show something.")
        return
    level = sum(float(image.mean()) for image in plain) / len(plain)
    colour = "white" if level > 250 else "black" if level < 5 else "of one colour"
    number = "All images" if len(plain) == len(images) else f"{len(plain)} of {len(images)} images that were looked at"
    first = "" if len(plain) == len(images) else f", the first is image {next(iter(found))}"
    sentence = f"{number} of {camera} are {colour} ({level:.0f} of 255){first}: their figures say nothing of the scene."
    yield Verdict(NAME, camera, Level.LIKELY, sentence, "restore them, or leave the camera out by data.cameras")


def _own_verdicts(sample: Sample, camera: Camera) -> Iterator[Verdict]:
    """A finding for pixels that never change while the vehicle drives and that no mask leaves out."""
    frames = [] if camera.mask is not None else while_driving(sample.images_of(camera.name))
    if own_vehicle([small(thumbnail(sample, frame)) for frame in frames]) is None:
        return
    more = while_driving([frame for frame in sample.capture.images if frame.sensor == camera.name])
    far = len(more) >= SURE and _metres(more[0], more[-1]) > WAY
    mask = own_vehicle([small(thumbnail(sample, frame)) for frame in more]) if far else None
    if mask is not None:  # a plain road changes as little in a few images
        sentence = (
            f"{100 * float(mask.double().mean()):.0f} % of the images of {camera.name}, at their lower edge, never"
        )
        sentence += " change while the vehicle drives: this may be its own bonnet."
        yield Verdict(NAME, camera.name, Level.LIKELY, sentence, "give data.masks=auto, which leaves it out")


# ---- images that are there twice


def _repeated_verdicts(frames: list[ImageFrame]) -> Iterator[Verdict]:
    """Files of one content, while the vehicle moves: in a row, or single ones."""
    copies = _copies(frames)
    again = [later for k, later in copies if later == k + 1]
    if again:
        camera, first = frames[again[0]].sensor, frames[again[0]].index
        sentence = (
            f"{len(again)} of {len(frames)} images of {camera} repeat the image before (the first is image {first})"
        )
        sentence += ", although the vehicle moves."
        yield Verdict(NAME, camera, Level.LIKELY, sentence, _restore(frames, again))
    elif copies:
        camera, (k, later) = frames[0].sensor, copies[0]
        sentence = f"Images {frames[k].index} and {frames[later].index} of {camera} have the same file"
        sentence += f"{f' ({len(copies) - 1} more)' * (len(copies) > 1)}, although the vehicle moves."
        yield Verdict(NAME, camera, Level.LIKELY, sentence, _restore(frames, [later for _, later in copies]))


def _restore(frames: list[ImageFrame], places: list[int]) -> str:
    return f"restore them, or {leave_out(frames[0].sensor, [frames[k].index for k in places])}"


def _copies(frames: list[ImageFrame]) -> list[tuple[int, int]]:
    """Places of an image, and of the next one with the same file."""
    last, found = dict[int, int](), list[tuple[int, int]]()
    for k, size in enumerate(map(file_size, frames)):
        if size is not None:
            before = last.get(size)
            if before is not None and _moved(frames[before], frames[k]) and _same_file(frames[before], frames[k]):
                found.append((before, k))
            last[size] = k
    return found


def _moved(a: ImageFrame, b: ImageFrame) -> bool:
    return _metres(a, b) > MOVED


def _metres(a: ImageFrame, b: ImageFrame) -> float:
    return float((a.T_world_rig_start[:3, 3] - b.T_world_rig_start[:3, 3]).norm())


def _same_file(a: ImageFrame, b: ImageFrame) -> bool:
    """Compares the sizes of files first, then reads files of equal size."""
    if not (isinstance(a.load, Glanced) and isinstance(b.load, Glanced)):
        return False
    one, other = a.load.glance(), b.load.glance()
    if one.size != other.size or one.first.data != other.first.data or one.last != other.last:
        return False
    encoded = a.encoded(), b.encoded()
    return encoded[0] is not None and encoded[1] is not None and encoded[0].data == encoded[1].data


def _same_verdicts(sample: Sample) -> Iterator[Verdict]:
    """Two cameras that see the same: images that were looked at of one moment."""
    small = {
        (frame.sensor, frame.index): _small(thumbnail(sample, frame))
        for camera in sample.capture.cameras
        for frame in sample.images_of(camera.name)
    }
    for a, b in combinations([camera.name for camera in sample.capture.cameras], 2):
        moments = [index for name, index in small if name == a and (b, index) in small]
        same = [m for m in moments if _alike(small[a, m], small[b, m])]
        if same and len(same) >= MOST * len(moments):
            sentence = f"{b} has the images of {a}: {len(same)} of {len(moments)} that were looked at are the same."
            yield Verdict(
                NAME, b, Level.CERTAIN, sentence, f"restore the images of {b}, or leave it out by data.cameras"
            )


def _alike(a: Tensor, b: Tensor) -> bool:
    return min(float(a.std()), float(b.std())) >= PLAIN and float((a - b).abs().mean()) < ALIKE


def _small(image: Tensor) -> Tensor:  # [h, w] grey
    return F.adaptive_avg_pool2d(grey(image)[None], SMALL)[0]
