// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "../common/torch_check.h"

namespace nurec {

// Row numbers 0 = offsets[0] <= offsets[1] <= ... <= offsets[K] = n; each track has at least `least` rows.
inline void check_rows(at::Tensor const& offsets, char const* name, int64_t n, int64_t least) {
    auto const host = values_of(offsets);
    if (!host) return;
    auto const* rows = host->const_data_ptr<int64_t>();
    auto const last = host->numel() - 1;
    TORCH_CHECK_VALUE(rows[0] == 0 && rows[last] == n, name, " goes from ", rows[0], " to ", rows[last],
                      ", but must go from 0 to ", n);
    for (int64_t k = 0; k < last; ++k)
        TORCH_CHECK_VALUE(rows[k + 1] - rows[k] >= least, name, " gives track ", k, " ", rows[k + 1] - rows[k],
                          " rows, but it must have at least ", least);
}

inline void check_times(at::Tensor const& times, char const* name) {
    auto const host = values_of(times);
    if (!host) return;
    auto const* values = host->const_data_ptr<double>();
    for (int64_t i = 0; i < host->numel(); ++i)
        TORCH_CHECK_VALUE(std::isfinite(values[i]), name, " holds ", values[i], " in row ", i, ", but must be finite");
}

inline void check_key_times(at::Tensor const& key_times, at::Tensor const& key_offsets) {
    check_times(key_times, "key_times");
    auto const times = values_of(key_times), offsets = values_of(key_offsets);
    if (!times) return;
    auto const* values = times->const_data_ptr<double>();
    auto const* rows = offsets->const_data_ptr<int64_t>();
    for (int64_t k = 0; k + 1 < offsets->numel(); ++k)
        for (int64_t i = rows[k] + 1; i < rows[k + 1]; ++i)
            TORCH_CHECK_VALUE(values[i] > values[i - 1], "key_times of track ", k, " do not rise in row ", i);
}

inline void check_actors(at::Tensor const& means, at::Tensor const& quats, at::Tensor const& starts,
                         at::Tensor const& key_offsets, at::Tensor const& key_times, at::Tensor const& translations,
                         at::Tensor const& quaternions, at::Tensor const& times) {
    auto const device = means.device();
    check_tensor(means, "means", at::kFloat, {-1, 3}, device);
    auto const n = means.size(0);
    check_tensor(quats, "quats", at::kFloat, {n, 4}, device);
    check_tensor(starts, "starts", at::kLong, {-1}, device);
    TORCH_CHECK_VALUE(starts.size(0) > 0, "starts is empty, but must have a row more than there are tracks");
    auto const k = starts.size(0) - 1;
    check_tensor(key_offsets, "key_offsets", at::kLong, {k + 1}, device);
    check_tensor(key_times, "key_times", at::kDouble, {-1}, device);
    auto const m = key_times.size(0);
    TORCH_CHECK_VALUE(k > 0 || (n == 0 && m == 0), "there are ", n, " Gaussians and ", m, " keyframes of no track");
    check_tensor(translations, "translations", at::kFloat, {m, 3}, device);
    check_tensor(quaternions, "quaternions", at::kFloat, {m, 4}, device);
    check_tensor(times, "times", at::kDouble, {-1}, device);
    check_finite(means, "means");
    check_finite(quats, "quats");
    check_rows(starts, "starts", n, 0);
    check_rows(key_offsets, "key_offsets", m, 1);
    check_key_times(key_times, key_offsets);
    check_finite(translations, "translations");
    check_finite(quaternions, "quaternions");
    check_times(times, "times");
}

// Gradients of what was moved.
inline void check_moved(at::Tensor const& means, at::Tensor const& starts, at::Tensor const& times,
                        at::Tensor const& d_means, at::Tensor const& d_quats, at::Tensor const& d_velocities,
                        at::Tensor const& d_rotations) {
    auto const n = means.size(0), k = starts.size(0) - 1, q = times.size(0);
    auto const check = [&](at::Tensor const& t, char const* name, std::initializer_list<int64_t> shape) {
        check_tensor(t, name, at::kFloat, shape, means.device());
        check_finite(t, name);
    };
    check(d_means, "d_means", {q, n, 3});
    check(d_quats, "d_quats", {q, n, 4});
    check(d_velocities, "d_velocities", {q, n, 3});
    check(d_rotations, "d_rotations", {q, k, 4});
}

}  // namespace nurec
