# SPDX-License-Identifier: Apache-2.0
"""Rendered images as the bytes of a reply, and the vehicle's own body laid over them."""

from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from nurec_lite.base.errors import ConfigError
from nurec_lite.output.image_bytes import jpeg_bytes, png_bytes
from nurec_lite.service.errors import MISSING, UNSUPPORTED, RequestError
from nurec_lite.service.messages import name_of

PNG, JPEG, PLANAR = "PNG", "JPEG", "RGB_UINT8_PLANAR"
FORMATS = (PNG, JPEG, PLANAR)
QUALITY = 95.0  # of JPEG, where the request gives none


def image_format(number: int) -> str:
    name = name_of("ImageFormat", number)
    if name not in FORMATS:
        raise RequestError(
            f"image_format is {number} ({name or 'unknown'}); use 1 (PNG), 2 (JPEG) or 4 (RGB_UINT8_PLANAR)",
            UNSUPPORTED,
        )
    return name


def quality_of(given: float) -> int:
    if given == 0:
        return int(QUALITY)
    if not 1 <= given <= 100:  # NaN fails as well
        raise RequestError(f"image_quality is {given:g}, but must lie between 1 and 100")
    return round(given)


def encoded(
    image: np.ndarray,  # [H, W, 3] uint8
    kind: str,  # of FORMATS
    quality: int,  # of JPEG
) -> bytes:
    if kind == PLANAR:
        return np.ascontiguousarray(image.transpose(2, 0, 1)).tobytes()
    return jpeg_bytes(image, quality) if kind == JPEG else png_bytes(image)


class EgoMasks:
    """Pictures of the vehicle's body, one a camera: NAME.png in a folder. Where a picture has transparency, the body is its opaque part;
    else it is the part that is not black, and is painted black."""

    def __init__(self, folder: str | None) -> None:
        self.rig = "" if folder is None else Path(folder).name
        self._files = {} if folder is None else {path.stem: path for path in sorted(Path(folder).glob("*.png"))}
        if folder is not None and not self._files:
            raise ConfigError(f"ego_masks is {folder}, which holds no PNG; put CAMERA.png there, or leave it out")
        for path in self._files.values():
            _body(path, 1, 1)

    def cameras(self) -> tuple[str, ...]:
        return tuple(self._files)

    def file(self, camera: str) -> Path:
        if camera not in self._files:
            known = f"masks of {', '.join(self._files)}; name one of these"
            known = known if self._files else "no masks; leave insert_ego_mask out"
            raise RequestError(f"ego_mask_id names camera '{camera:.200}', but there are {known}", MISSING)
        return self._files[camera]


def with_body(image: np.ndarray, file: Path) -> np.ndarray:  # [H, W, 3] uint8
    """The image with the vehicle's body in front."""
    body = _body(file, *image.shape[:2]).astype(np.float32)
    alpha = body[..., 3:] / 255
    return (image * (1 - alpha) + body[..., :3] * alpha).round().astype(np.uint8)


@lru_cache(maxsize=16)
def _body(file: Path, height: int, width: int) -> np.ndarray:  # [H, W, 4] uint8
    try:
        with Image.open(file) as picture:
            clear = picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info
            body = np.array(picture.convert("RGBA").resize((width, height), Image.Resampling.NEAREST))
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise ConfigError(f"{file} is no picture that can be read; replace it") from error
    if not clear:
        body = np.dstack([np.zeros_like(body[..., :3]), np.where(body[..., :3].any(2), 255, 0)]).astype(np.uint8)
    return body
