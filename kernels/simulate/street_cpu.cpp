// SPDX-License-Identifier: Apache-2.0
#include "sensors.cuh"

namespace nurec::cpu {

void simulate_pixels(Street<float> const& street, PixelParams const& p) {
#pragma omp parallel for schedule(dynamic, 256)
    for (int64_t i = 0; i < p.n; ++i) simulate_pixel(street, p, i);
}

void simulate_echoes(Street<double> const& street, EchoParams const& p) {
#pragma omp parallel for schedule(dynamic, 256)
    for (int64_t i = 0; i < p.n; ++i) simulate_echo(street, p, i);
}

}  // namespace nurec::cpu
