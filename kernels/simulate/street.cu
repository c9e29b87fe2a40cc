// SPDX-License-Identifier: Apache-2.0
// A thread a pixel, with all its rays, or a lidar's ray: neighbours meet the same solids.
#include "../common/launch.cuh"
#include "sensors.cuh"

namespace nurec::cuda {
namespace {

constexpr int TOGETHER = 128;  // threads of a block

__global__ void __launch_bounds__(TOGETHER) simulate_pixels_kernel(Street<float> street, PixelParams p) {
    wait_then_launch_dependents();
    int64_t const i = blockIdx.x * int64_t(TOGETHER) + threadIdx.x;
    if (i < p.n) simulate_pixel(street, p, i);
}

__global__ void __launch_bounds__(TOGETHER) simulate_echoes_kernel(Street<double> street, EchoParams p) {
    wait_then_launch_dependents();
    int64_t const i = blockIdx.x * int64_t(TOGETHER) + threadIdx.x;
    if (i < p.n) simulate_echo(street, p, i);
}

}  // namespace

void simulate_pixels(Street<float> const& street, PixelParams const& p, Queue const& queue) {
    if (p.n) launch_pdl(simulate_pixels_kernel, unsigned((p.n + TOGETHER - 1) / TOGETHER), TOGETHER, queue, street, p);
}

void simulate_echoes(Street<double> const& street, EchoParams const& p, Queue const& queue) {
    if (p.n) launch_pdl(simulate_echoes_kernel, unsigned((p.n + TOGETHER - 1) / TOGETHER), TOGETHER, queue, street, p);
}

}  // namespace nurec::cuda
