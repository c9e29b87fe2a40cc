// SPDX-License-Identifier: Apache-2.0
// The window along rows for all rows, then along columns. Sums are those of rows, added in their order: the number of
// threads changes nothing.
#include <algorithm>
#include <cmath>
#include <vector>

#include "image_loss.h"

namespace nurec::cpu {
namespace {

using Row = std::vector<float>;

// Copies a row, with as many zeros before and after it as a window sees.
void pad(float const* from, int64_t n, Row& to) {
    to.assign(std::size_t(n) + 2 * REACH, 0.f);
    std::copy_n(from, n, to.begin() + REACH);
}

// N maps, blurred along rows.
template <int N>
struct Blurred {
    Blurred(int64_t h, int64_t j) : height(h), row(j), maps(std::size_t(N * h * j)), outside(std::size_t(j)) {}

    float* at(int map, int64_t y) { return maps.data() + (map * height + y) * row; }

    // The rows that a window about row y sees.
    void around(int64_t y, float const* (&taps)[N][SSIM_TAPS]) {
        for (int map = 0; map < N; ++map)
            for (int k = 0; k < SSIM_TAPS; ++k) {
                int64_t const at_y = y + k - SSIM_HALF;
                taps[map][k] = at_y < 0 || at_y >= height ? outside.data() : at(map, at_y);
            }
    }

    int64_t height, row;
    Row maps, outside;  // [N, H, J] and a row of zeros
};

inline float along_column(float const* const (&taps)[SSIM_TAPS], int64_t j) {
    float sum = 0;
    for (int k = 0; k < SSIM_TAPS; ++k) sum += ssim_window<float>(k) * taps[k][j];
    return sum;
}

void moments_along_row(float const* a, float const* b, int64_t n, float* const (&out)[MOMENTS]) {
    float *const mean_u = out[0], *const mean_v = out[1], *const uu = out[2], *const vv = out[3];
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) {
        float sum_u = 0, sum_v = 0, sum_uu = 0, sum_vv = 0;  // an array of these is not made a vector of
        for (int k = 0; k < SSIM_TAPS; ++k) {
            float const w = ssim_window<float>(k), x = a[j + CHANNELS * k], y = b[j + CHANNELS * k];
            float const u = x + y, v = x - y;
            sum_u += w * u, sum_v += w * v, sum_uu += w * (u * u), sum_vv += w * (v * v);
        }
        mean_u[j] = sum_u, mean_v[j] = sum_v, uu[j] = sum_uu, vv[j] = sum_vv;
    }
}

void along_row(float const* a, int64_t n, float* out) {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) {
        float sum = 0;
        for (int k = 0; k < SSIM_TAPS; ++k) sum += ssim_window<float>(k) * a[j + CHANNELS * k];
        out[j] = sum;
    }
}

Blurred<MOMENTS> moments_of(ImagePair const& in) {
    Blurred<MOMENTS> moments(in.height, in.row);
#pragma omp parallel
    {
        Row a, b;
#pragma omp for schedule(static)
        for (int64_t y = 0; y < in.height; ++y) {
            pad(in.rendered + y * in.row, in.row, a);
            pad(in.target + y * in.row, in.row, b);
            float* const out[] = {moments.at(0, y), moments.at(1, y), moments.at(2, y), moments.at(3, y)};
            moments_along_row(a.data(), b.data(), in.row, out);
        }
    }
    return moments;
}

Blurred<SLOPES> slopes_along_rows(ImagePair const& in, float const* slopes) {
    Blurred<SLOPES> out(in.height, in.row);
#pragma omp parallel
    {
        Row padded;
#pragma omp for schedule(static)
        for (int64_t y = 0; y < SLOPES * in.height; ++y) {
            pad(slopes + y * in.row, in.row, padded);
            along_row(padded.data(), in.row, out.at(0, y));
        }
    }
    return out;
}

struct Sums {
    double similar, apart;  // of SSIM and of |a - b|
};

Sums finish_row(ImagePair const& in, Blurred<MOMENTS>& moments, int64_t y, float* slopes) {
    float const* taps[MOMENTS][SSIM_TAPS];
    moments.around(y, taps);
    int64_t const plane = in.height * in.row, first = y * in.row;
    float *const mean = slopes + first, *const sum = mean + plane, *const difference = sum + plane;
    float const *const a = in.rendered + first, *const b = in.target + first;
    double similar = 0, apart = 0;
#pragma omp simd reduction(+ : similar, apart)
    for (int64_t j = 0; j < in.row; ++j) {
        Ssim<float> const found = ssim_of<float>(
            {along_column(taps[0], j), along_column(taps[1], j), along_column(taps[2], j), along_column(taps[3], j)});
        mean[j] = found.mean, sum[j] = found.sum, difference[j] = found.difference;
        similar += found.value, apart += std::fabs(a[j] - b[j]);
    }
    return {similar, apart};
}

}  // namespace

void image_loss(ImagePair const& in, float* loss, float* slopes) {
    Blurred<MOMENTS> moments = moments_of(in);
    std::vector<Sums> rows(std::size_t(in.height));
#pragma omp parallel for schedule(static)
    for (int64_t y = 0; y < in.height; ++y) rows[std::size_t(y)] = finish_row(in, moments, y, slopes);
    Sums all = {0, 0};
    for (Sums const& one : rows) all.similar += one.similar, all.apart += one.apart;
    double const n = double(in.height) * double(in.row), w = in.weight;
    *loss = float((1 - w) * all.apart / n + w * (1 - all.similar / n));
}

void image_loss_backward(ImagePair const& in, ImageGrads const& d) {
    Blurred<SLOPES> slopes = slopes_along_rows(in, d.slopes);
    float const each = *d.d_loss / float(in.height * in.row), l1 = each * (1 - in.weight), ssim = each * in.weight;
#pragma omp parallel for schedule(static)
    for (int64_t y = 0; y < in.height; ++y) {
        float const* taps[SLOPES][SSIM_TAPS];
        slopes.around(y, taps);
        float const *const a = in.rendered + y * in.row, *const b = in.target + y * in.row;
        float* const out = d.rendered + y * in.row;
#pragma omp simd
        for (int64_t j = 0; j < in.row; ++j)
            out[j] =
                l1 * sign_of(a[j] - b[j]) - ssim * ssim_backward(a[j], b[j], along_column(taps[0], j),
                                                                 along_column(taps[1], j), along_column(taps[2], j));
    }
}

}  // namespace nurec::cpu
