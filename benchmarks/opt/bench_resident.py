# SPDX-License-Identifier: Apache-2.0
"""Gain of the option `resident` over the baseline and `workers`: time of `feed` and of whole training steps.

    python benchmarks/opt/bench_resident.py [data=pack data.root=FILE +size=large train.resume=FILE --out benchmarks/results/NAME.json]
    python benchmarks/opt/bench_resident.py --decoding [data=pack data.root=FILE --rounds 10 --out benchmarks/results/NAME.json]

Arguments are those of nurec_lite.train; options given there go with every set. Checks and times: benchmarks/common/feeding.py.
With --decoding no step is made: all training images are decoded onto the device, by threads of the host and on a GPU by nvImageCodec and
torchvision where they are installed (opt.resident.jpeg): benchmarks/opt/image_decoding.py. For a large case the simulator makes images:

    python -m nurec_lite.capture.simulate --out six.pack --frames 12 --cameras 6 --width 1920 --height 1080 --beams 128 \\
        --azimuth-steps 1800 --moving-cars 9 --parked-cars 50 --image-format jpeg
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import sys

from benchmarks.common.feeding import main
from benchmarks.opt import image_decoding

SETS: tuple[tuple[str, ...], ...] = ((), ("workers",), ("resident",))

if __name__ == "__main__":
    if "--decoding" in sys.argv:
        image_decoding.main(__doc__, sys.argv[1:])
    else:
        main("resident", __doc__, SETS, sys.argv[1:])
