// SPDX-License-Identifier: Apache-2.0
// Values that the first phase of the backward pass (segments_backward.cu) stores for each (ray, Gaussian) pair, and
// their sums over rays in the second phase; there a lane is a Gaussian of the group.
#pragma once

#include "../../project/moment_row.cuh"
#include "../../project/ray_state.cuh"
#include "segments.cuh"

namespace nurec::cuda {

template <class N>
using RowFor = GaussianRow<N::MOVING, N::FEATURES>;

struct PairGrad {          // of a (ray, Gaussian) pair
    float weight, d_peak;  // d_peak: dL/d(peak) peak
};

template <class N, bool DISTANCE = N::DISTANCE>
struct PairStore;

template <class N>
constexpr int GROUP_BATCH = PairStore<N>::GROUP_BATCH;  // Gaussians that a group processes together

template <class N>
struct GroupRows {
    RowFor<N> of[GROUP_BATCH<N> + (LANES<N::FEATURES> < 32)];  // padding against bank conflicts
};
template <class N>
using BatchRows = GroupRows<N>[GROUPS<N::FEATURES>];

// --- sums ---

constexpr int SUMS = sizeof(MomentRow) / sizeof(float);
static_assert(SUMS == 16 && SUMS == MOMENT_FLOATS);

// Adds four consecutive numbers; from sm_90 on with one instruction.
__device__ inline void add4(float* to, float const* from) {
    if (from[0] == 0 && from[1] == 0 && from[2] == 0 && from[3] == 0) return;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    atomicAdd(reinterpret_cast<float4*>(to), make_float4(from[0], from[1], from[2], from[3]));
#else
    for (int k = 0; k < 4; ++k) atomicAdd(to + k, from[k]);
#endif
}

// Reduces 2 N sums over lanes STEP apart that have the same row; each lane keeps N of them.
template <int N, int STEP>
__device__ void keep_half(float const (&sums)[2 * N], float (&kept)[N]) {
    bool const upper = threadIdx.x & STEP;
#pragma unroll
    for (int k = 0; k < N; ++k) {
        float const low = sums[k], high = sums[k + N];
        kept[k] = (upper ? high : low) + __shfl_xor_sync(ALL_LANES, upper ? low : high, STEP);
    }
}

// Adds a row's sums, which SHARES lanes 32 / SHARES apart hold. `to`: null if there is no row.
template <int SHARES>
__device__ void add_shares(float const (&sums)[SUMS], float* to) {
    static_assert(SHARES == 1 || SHARES == 2 || SHARES == 4);
    int const lane = int(threadIdx.x % 32);
    if constexpr (SHARES == 1) {
#pragma unroll
        for (int k = 0; k < SUMS; k += 4)
            if (to) add4(to + k, sums + k);
    } else {
        float half[SUMS / 2];
        keep_half<SUMS / 2, 16>(sums, half);
        if (to) to += lane / 16 * (SUMS / 2);
        if constexpr (SHARES == 2) {
            if (to) add4(to, half), add4(to + 4, half + 4);
        } else {
            float quarter[SUMS / 4];
            keep_half<SUMS / 4, 8>(half, quarter);
            if (to) add4(to + lane / 8 % 2 * (SUMS / 4), quarter);
        }
    }
}

// --- distances without gradient: images in training ---

// Stores where the ray passes the mean, p, and the factor that turns it into dL/dg.
template <class N>
struct PairStore<N, false> {
    static_assert(N::FEATURES == 3);
    static constexpr int GROUP_BATCH = 8, P = LANES<3>, SHARES = 32 / GROUP_BATCH, RUN = P / SHARES;

    float4 rays[P + P / RUN];  // dL/d(features), and the delay; padded against bank conflicts
    float4 closest_points[GROUP_BATCH][P + 1];
    float weights[GROUP_BATCH][P + 1];

    __device__ static int place_of(int ray) { return ray + ray / RUN; }

    __device__ void store_ray(OneRay<N> const& one) {
        rays[place_of(lane_of_group<3>())] = {one.features[0], one.features[1], one.features[2], one.ray.dt};
    }

    __device__ RangeTarget<float> target() const { return NO_RANGE_TARGET; }

    __device__ void store_pair(int k, bool met, AlignedResponse<float> const& at, PairGrad const& gain) {
        float4& to = closest_points[k][lane_of_group<3>()];
        weights[k][lane_of_group<3>()] = gain.weight;
        if (!met) {
            to = {0, 0, 0, 0};
            return;
        }
        Vec3<float> const p = closest_point<N::MOVING>(at.g, at.e, at.inverse);
        to = {p.x, p.y, p.z, float(-2 * LN2) * gain.d_peak};
    }

    // Sums over a quarter of the rays. Lane l has Gaussian l % 8.
    __device__ MomentRow sums_of(int k) const {
        MomentRow sum = {};
        int const first = RUN * (int(threadIdx.x % 32) / GROUP_BATCH);
#pragma unroll
        for (int j = first; j < first + RUN; ++j) {
            float4 const left = closest_points[k][j], ray = rays[place_of(j)];
            float const weight = weights[k][j];
            Vec3<float> const p = {left.x, left.y, left.z};
            add_moments<N::MOVING, false>(RayMoments<float>{p, left.w * p, {0, 0, 0}, left.w}, {}, ray.w, sum.moments);
            sum.features[0] += weight * ray.x, sum.features[1] += weight * ray.y, sum.features[2] += weight * ray.z;
        }
        sum.moments.opacity *= float(-0.5 / LN2);
        return sum;
    }

    // Adds the sums of n Gaussians to `moments`. Lane k passes the k-th as `member`.
    __device__ void add(BatchRows<N> const&, int n, int member, MomentRow* moments) const {
        int const k = int(threadIdx.x % GROUP_BATCH), whose = __shfl_sync(ALL_LANES, member, k);
        MomentRow const sum = k < n ? sums_of(k) : MomentRow{};
        float all[SUMS];
#pragma unroll
        for (int j = 0; j < SUMS; ++j) all[j] = reinterpret_cast<float const*>(&sum)[j];
        add_shares<SHARES>(all, k < n ? reinterpret_cast<float*>(moments + whose) : nullptr);
    }
};

// --- distances with gradient: sweeps ---

// Storing would take nine numbers a pair, so the second phase finds again where the ray passes. Few pairs of a sweep
// contribute, so it tests each first.
template <class N>
struct PairStore<N, true> {
    static constexpr int C = N::FEATURES, P = LANES<C>, GROUP_BATCH = 16, ROWS = GROUP_BATCH * GROUPS<C>,
                         SHARES = 32 / ROWS;
    static constexpr bool SPARSE = C == 2;

    struct alignas(16) RayGrad {  // of a ray, read by all Gaussians
        Vec3<float> d;
        float dt;
        float features[C], distance;  // dL/d(output)
        RangeTarget<float> target[C == 2];
    };

    RayGrad rays[32];
    PairGrad pairs[ROWS][P + 1];  // padding against bank conflicts

    __device__ void store_ray(OneRay<N> const& one) {
        RayGrad& to = rays[threadIdx.x % 32];
        to.d = one.ray.d, to.dt = one.ray.dt, to.distance = one.distance;
        if (C == 2) to.target[0] = one.target;
#pragma unroll
        for (int c = 0; c < C; ++c) to.features[c] = one.features[c];
    }

    // Read each time: in registers it would be two more than there are.
    __device__ static RangeTarget<float> target_of(RayGrad const& ray) {
        if (C != 2) return NO_RANGE_TARGET;
        RangeTarget<float> const volatile& kept = ray.target[0];
        return {kept.distance, kept.max_residual};
    }

    __device__ RangeTarget<float> target() const { return target_of(rays[threadIdx.x % 32]); }

    __device__ void store_pair(int k, bool, AlignedResponse<float> const&, PairGrad const& gain) {
        pairs[GROUP_BATCH * group_of_warp<C>() + k][lane_of_group<C>()] = gain;
    }

    __device__ static void add_pair(RowFor<N> const& g, RayGrad const& ray, PairGrad const& pair, MomentRow& sum) {
        Vec3<float> const e = g.frame.M * ray.d;
        Vec2<float> const at = drifted(g.frame, ray.dt);
        float const inverse = 1 / larger(dot(e, e), 1e-30f);  // also for pairs that do not contribute
        float const t = -(at.x * e.x + at.y * e.y) * inverse * g.frame.unit;
        float const d_t = distance_backward<N>(ray.distance, target_of(ray), t, pair.weight);
        RayMoments<float> const a =
            aligned_ray_moments<N::MOVING, true>(at, e, inverse, g.frame.unit, pair.d_peak, d_t);
        add_moments<N::MOVING, true>(a, e, ray.dt, sum.moments);
#pragma unroll
        for (int c = 0; c < C; ++c) sum.features[c] += pair.weight * ray.features[c];
    }

    // Adds the sums of n Gaussians of this lane's group to `moments`. The group's lane k passes the k-th as `member`.
    __device__ void add(BatchRows<N> const& rows, int n, int member, MomentRow* moments) const {
        int const row = int(threadIdx.x % ROWS), group = row / GROUP_BATCH, k = row % GROUP_BATCH;
        int const whose = __shfl_sync(ALL_LANES, member, P * group + k);
        bool const there = k < __shfl_sync(ALL_LANES, n, P * group);
        MomentRow sum = {};
        if (there) {
            RowFor<N> const g = rows[group].of[k];
#pragma unroll(SPARSE ? 1 : 2)
            for (int j = int(threadIdx.x % 32) / ROWS; j < P; j += SHARES) {
                PairGrad const pair = pairs[row][j];
                if (!SPARSE || pair.weight != 0) add_pair(g, rays[P * group + j], pair, sum);
            }
        }
        float all[SUMS];
#pragma unroll
        for (int j = 0; j < SUMS; ++j) all[j] = reinterpret_cast<float const*>(&sum)[j];
        add_shares<SHARES>(all, there ? reinterpret_cast<float*>(moments + whose) : nullptr);
    }
};

}  // namespace nurec::cuda
