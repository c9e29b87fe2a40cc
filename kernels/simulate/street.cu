// SPDX-License-Identifier: Apache-2.0
// One thread casts all rays of a pixel, or one ray of a lidar. Neighbouring threads hit the same solids.
#include "../common/launch.cuh"
#include "sensors.cuh"

namespace nurec::cuda {
namespace {

constexpr int BLOCK_THREADS = 128;
constexpr int PIXEL_BLOCKS = 4;  // on a multiprocessor: without this bound nvcc takes 72 registers and spills 168 bytes

__global__ void __launch_bounds__(BLOCK_THREADS, PIXEL_BLOCKS)
    simulate_pixels_kernel(Street<float> street, PixelParams p) {
    wait_then_launch_dependents();
    int64_t const i = blockIdx.x * int64_t(BLOCK_THREADS) + threadIdx.x;
    if (i < p.n) simulate_pixel(street, p, i);
}

__global__ void __launch_bounds__(BLOCK_THREADS) simulate_echoes_kernel(Street<double> street, EchoParams p) {
    wait_then_launch_dependents();
    int64_t const i = blockIdx.x * int64_t(BLOCK_THREADS) + threadIdx.x;
    if (i < p.n) simulate_echo(street, p, i);
}

}  // namespace

void simulate_pixels(Street<float> const& street, PixelParams const& p, Queue const& queue) {
    if (p.n)
        launch_pdl(simulate_pixels_kernel, unsigned((p.n + BLOCK_THREADS - 1) / BLOCK_THREADS), BLOCK_THREADS, queue,
                   street, p);
}

void simulate_echoes(Street<double> const& street, EchoParams const& p, Queue const& queue) {
    if (p.n)
        launch_pdl(simulate_echoes_kernel, unsigned((p.n + BLOCK_THREADS - 1) / BLOCK_THREADS), BLOCK_THREADS, queue,
                   street, p);
}

}  // namespace nurec::cuda
