// SPDX-License-Identifier: Apache-2.0
// Update of harmonics without a stored gradient. A block computes the basis of its Gaussians' directions once, a
// Gaussian and view a thread, and keeps it with the colours' gradients in shared memory. Then it goes through the
// coefficients in the order of memory and multiplies on the way. For more than two views it first adds up the products
// in shared memory. A sparse update leaves a block of Gaussians without a gradient at once.
#include "../common/triples.cuh"
#include "../common/visible.cuh"
#include "../math/sh.cuh"
#include "adam_step.cuh"

namespace nurec::cuda {
namespace {

// Parts of a block of the store, and Gaussians of one, which a block of threads takes at once: with these a thread has
// three or four vectors of the rest, and a part's coefficients begin at a vector.
template <int S>
constexpr int PARTS = S == 16  ? 4
                      : S == 9 ? 2
                               : 1;
template <int S>
constexpr int GAUSSIANS = int(BLOCK_GAUSSIANS) / PARTS<S>;

// Factors of VIEWS views.
template <int S, int VIEWS>
struct OuterRows {
    static constexpr int STRIDE = (S + 3) | 1;    // odd: no two threads write to one bank
    float numbers[VIEWS][GAUSSIANS<S> * STRIDE];  // of a Gaussian the basis, then the three of its colour

    __device__ void read(AdamHarmonics const& h, int64_t first_view, int64_t begin, int count) {
        for (int k = int(threadIdx.x); k < VIEWS * count; k += THREADS) {
            int const view = VIEWS == 1 ? 0 : k / count, row = k - view * count;
            int64_t const from = (first_view + view) * h.stride;
            float basis[S];
            sh_basis(load3(h.directions + from, begin + row), basis);
            float* const to = numbers[view] + STRIDE * row;
            for (int j = 0; j < S; ++j) to[j] = basis[j];
            store3(to + S, 0, load3(h.colours + from, begin + row));
        }
        __syncthreads();
    }

    __device__ void read_all(AdamHarmonics const& h, int64_t begin, int count) { read(h, 0, begin, count); }

    // Gradient of the k-th number of rows of COUNT columns, which begin at column FROM of 3 S.
    template <unsigned FROM, unsigned COUNT>
    __device__ float gradient(unsigned k) const {
        unsigned const row = k / COUNT, column = FROM + k % COUNT;
        float sum = 0;
#pragma unroll
        for (int view = 0; view < VIEWS; ++view) {
            float const* const from = numbers[view] + STRIDE * row;
            float const product = from[column / 3] * from[S + column % 3];
            sum = view ? sum + product : product;
        }
        return sum;
    }
};

// The sum over any number of views.
template <int S>
struct SummedRows {
    static constexpr unsigned COLUMNS = 3 * S;
    OuterRows<S, 1> one;  // view
    float sums[GAUSSIANS<S> * COLUMNS];

    __device__ void read_all(AdamHarmonics const& h, int64_t begin, int count) {
        for (int64_t v = 0; v < h.views; ++v) {
            one.read(h, v, begin, count);
            for (unsigned k = threadIdx.x; k < COLUMNS * unsigned(count); k += THREADS) {
                float const product = one.template gradient<0, COLUMNS>(k);
                sums[k] = v ? sums[k] + product : product;
            }
            __syncthreads();
        }
    }

    template <unsigned FROM, unsigned COUNT>
    __device__ float gradient(unsigned k) const {
        return sums[COLUMNS * (k / COUNT) + FROM + k % COUNT];
    }
};

// Columns FROM to FROM + COUNT of the block's Gaussians, all of one tensor.
template <class M, unsigned FROM, unsigned COUNT, class Rows>
__device__ void step_columns(Rows const& rows, AdamTensor const& t, int64_t begin, unsigned numbers, unsigned thread,
                             bool vectors, AdamBetas<float> const& betas, AdamFactors<float> const& by,
                             uint32_t draws) {
    unsigned const whole = vectors ? numbers / VALUES_PER_THREAD * VALUES_PER_THREAD : 0;
    for (unsigned k = VALUES_PER_THREAD * thread; k < whole; k += VALUES_PER_THREAD * THREADS) {
        float4 const g =
            make_float4(rows.template gradient<FROM, COUNT>(k), rows.template gradient<FROM, COUNT>(k + 1),
                        rows.template gradient<FROM, COUNT>(k + 2), rows.template gradient<FROM, COUNT>(k + 3));
        step_four<M>(t, begin + k, g, betas, by, draws);
    }
    for (unsigned k = whole + thread; k < numbers; k += THREADS)
        step_one<M>(t, begin + k, rows.template gradient<FROM, COUNT>(k), betas, by, draws);
}

// Whether a sparse update leaves all of these Gaussians as they are. All threads of a block call it.
__device__ inline bool leaves_all(AdamParams const& p, int64_t begin, int count) {
    AdamHarmonics const& h = p.harmonics;
    if (!p.tensors[h.sh].touched_only || !p.tensors[h.rest].touched_only) return false;
    bool some = false;
    for (int64_t v = 0; v < h.views; ++v)
        for (int k = int(threadIdx.x); k < 3 * count; k += THREADS)
            some = some || h.colours[v * h.stride + 3 * begin + k] != 0;
    return !__syncthreads_or(some);
}

// Updates the Gaussians from `begin` on. M: their moments.
template <int S, class M, class Rows>
__device__ void update_part(AdamParams const& p, unsigned vectors, AdamFactors<float> const* factors, int64_t begin,
                            Rows& rows) {
    AdamHarmonics const& h = p.harmonics;
    int64_t const left = h.n - begin;
    int const count = left < GAUSSIANS<S> ? int(left) : GAUSSIANS<S>;
    if (leaves_all(p, begin, count)) return;
    rows.read_all(h, begin, count);
    constexpr unsigned REST = 3 * S - 3;
    if constexpr (REST > 0)
        step_columns<M, 3, REST>(rows, p.tensors[h.rest], REST * begin, REST * unsigned(count), threadIdx.x,
                                 vectors >> h.rest & 1, p.betas, factors[h.rest],
                                 draws_of<M>(p.tensors[h.rest], h.rest));
    // the last threads first: those have had one vector less
    step_columns<M, 0, 3>(rows, p.tensors[h.sh], 3 * begin, 3 * unsigned(count), THREADS - 1 - threadIdx.x,
                          vectors >> h.sh & 1, p.betas, factors[h.sh], draws_of<M>(p.tensors[h.sh], h.sh));
}

template <int S, class M, class Rows>
__global__ void __launch_bounds__(THREADS)
    update_adam_harmonics_kernel(AdamParams p, unsigned vectors, AdamFactors<float> const* factors) {
    __shared__ Rows rows;
    if (has_failed(p)) return;
    for_visible_blocks<PARTS<S>>(p.harmonics.blocks, p.harmonics.n,
                                 [&](int64_t begin) { update_part<S, M>(p, vectors, factors, begin, rows); });
}

template <int S, class Rows>
void launch_rows(AdamParams const& p, unsigned vectors, AdamFactors<float> const* factors, Queue const& queue) {
    unsigned const blocks = blocks_for<PARTS<S>>(p.harmonics.blocks, p.harmonics.n);
    auto* const kernel = p.tensors[p.harmonics.sh].narrow ? update_adam_harmonics_kernel<S, BFloat, Rows>
                                                          : update_adam_harmonics_kernel<S, float, Rows>;
    kernel<<<blocks, THREADS, 0, queue.stream>>>(p, vectors, factors);
}

template <int S>
void launch(AdamParams const& p, unsigned vectors, AdamFactors<float> const* factors, Queue const& queue) {
    if (p.harmonics.views == 1)
        launch_rows<S, OuterRows<S, 1>>(p, vectors, factors, queue);
    else if (p.harmonics.views == 2)  // of two ranks
        launch_rows<S, OuterRows<S, 2>>(p, vectors, factors, queue);
    else
        launch_rows<S, SummedRows<S>>(p, vectors, factors, queue);
}

}  // namespace

void adam_harmonics(AdamParams const& p, unsigned vectors, AdamFactors<float> const* factors, Queue const& queue) {
    if (!p.harmonics.n) return;
    switch (p.harmonics.s) {
        case 1:
            return launch<1>(p, vectors, factors, queue);
        case 4:
            return launch<4>(p, vectors, factors, queue);
        case 9:
            return launch<9>(p, vectors, factors, queue);
        default:
            return launch<16>(p, vectors, factors, queue);
    }
}

}  // namespace nurec::cuda
