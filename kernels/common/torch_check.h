// SPDX-License-Identifier: Apache-2.0
// Sentences for operators that are called wrongly.
//
// Values of tensors are checked, too, on the CPU, where that is cheap. On CUDA the host would have to wait
// for the device in every call, so there it happens only if the environment has NUREC_LITE_CHECK=1.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "blocks.h"
#include "check_cpu.h"

namespace nurec {

using MaybeTensor = std::optional<at::Tensor>;

constexpr int64_t MAX_SIDE = 1 << 16;  // of an image or of a grid: products of two stay far from overflowing

constexpr int64_t MAX_CAPACITY = int64_t(1) << 30;  // entries of a view's lists that the sort can take

// Tensors that come as one list: which they are is said where it is taken apart, once for each kind of list.
inline void check_group(at::TensorList group, char const* name, std::size_t n, char const* fields) {
    TORCH_CHECK_VALUE(group.size() == n, name, " has ", group.size(), " tensors, but must have ", n, ": ", fields);
}

// -1 in `shape` stands for any size.
inline void check_tensor(at::Tensor const& t, char const* name, at::ScalarType dtype,
                         std::initializer_list<int64_t> shape, at::Device device) {
    bool fits = t.dim() == static_cast<int64_t>(shape.size());
    int64_t k = 0;
    for (int64_t const size : shape) {
        fits = fits && (size < 0 || t.size(k) == size);
        ++k;
    }
    TORCH_CHECK_VALUE(fits, name, " has shape ", t.sizes(), ", but must have ",
                      at::IntArrayRef(shape.begin(), shape.size()), " (-1: any)");
    TORCH_CHECK_TYPE(t.scalar_type() == dtype, name, " is ", t.scalar_type(), ", but must be ", dtype);
    TORCH_CHECK_VALUE(t.device() == device, name, " is on ", t.device(), ", but must be on ", device);
    TORCH_CHECK_VALUE(t.is_contiguous(), name, " is not contiguous; call .contiguous()");
}

// The gradient of a scalar; null: there is none.
inline float const* checked_scalar(MaybeTensor const& d, char const* name, at::Device device) {
    if (!d) return nullptr;
    check_tensor(*d, name, at::kFloat, {}, device);
    return d->const_data_ptr<float>();
}

inline void check_count(int64_t value, char const* name, int64_t most) {
    TORCH_CHECK_VALUE(value > 0 && value <= most, name, " is ", value, ", but must be 1 to ", most);
}

inline void check_image(int64_t width, int64_t height, int64_t tile) {
    check_count(width, "width", MAX_SIDE);
    check_count(height, "height", MAX_SIDE);
    check_count(tile, "tile", MAX_SIDE);
}

inline void check_capacity(int64_t capacity) {
    TORCH_CHECK_VALUE(capacity >= -1 && capacity <= MAX_CAPACITY, "capacity is ", capacity, ", but must be 0 to ",
                      MAX_CAPACITY, ", or -1");
}

// Checks the length of lists that hold everything.
inline int64_t checked_needed(int64_t n) {
    TORCH_CHECK_VALUE(n <= MAX_CAPACITY, "the lists of a view need ", n, " entries, but can have ", MAX_CAPACITY,
                      ": use fewer or smaller Gaussians, or a view with fewer rays");
    return n;
}

inline bool values_are_checked(at::Device device) {
    char const* const asked = std::getenv("NUREC_LITE_CHECK");
    return device.is_cpu() || (asked && std::string_view(asked) == "1");
}

// The tensor if its values may be read on the host; nothing otherwise.
inline std::optional<at::Tensor> values_of(at::Tensor const& t) {
    return values_are_checked(t.device()) ? std::optional<at::Tensor>(t.cpu()) : std::nullopt;
}

// Row of the first value that breaks a rule, for messages.
inline int64_t row_of(at::Tensor const& t, int64_t place) {
    return place / (t.numel() / t.size(0));
}

inline void check_finite(at::Tensor const& t, char const* name) {
    auto const host = values_of(t);
    if (!host) return;
    auto const* values = host->const_data_ptr<float>();
    int64_t const place = cpu::first_not_finite(values, host->numel());
    TORCH_CHECK_VALUE(place < 0, name, " holds ", values[place], " in row ", row_of(t, place), ", but must be finite");
}

inline void check_positive(at::Tensor const& t, char const* name) {
    auto const host = values_of(t);
    if (!host) return;
    auto const* values = host->const_data_ptr<float>();
    int64_t const place = cpu::first_not_positive(values, host->numel());
    TORCH_CHECK_VALUE(place < 0, name, " holds ", values[place], " in row ", row_of(t, place), ", but must be above 0");
}

// low <= values < high, of int32 or int64.
inline void check_range(at::Tensor const& t, char const* name, int64_t low, int64_t high) {
    auto host = values_of(t);
    if (!host) return;
    if (host->scalar_type() == at::kInt) host = host->to(at::kLong);
    auto const* values = host->const_data_ptr<int64_t>();
    int64_t const place = cpu::first_outside(values, host->numel(), low, high);
    TORCH_CHECK_VALUE(place < 0, name, " holds ", values[place], " in row ", row_of(t, place),
                      ", but must be at least ", low, " and below ", high);
}

template <class T>
void check_ascends(at::Tensor const& t, char const* name) {
    auto const host = values_of(t);
    if (!host) return;
    int64_t const place = cpu::first_descent(host->const_data_ptr<T>(), host->numel());
    TORCH_CHECK_VALUE(place < 0, name, " falls in row ", place, ", but must ascend");
}

// `blocks` [1 + blocks] int32 of a store of n Gaussians, as visible_blocks has them; nothing: all count.
inline VisibleBlocks checked_blocks(MaybeTensor const& blocks, int64_t n, at::Device device) {
    if (!blocks) return {nullptr};
    int64_t const all = blocks_of_store(n);
    check_tensor(*blocks, "blocks", at::kInt, {1 + all}, device);
    if (auto const host = values_of(*blocks)) {
        auto const* listed = host->const_data_ptr<int>();
        TORCH_CHECK_VALUE(listed[0] >= 0 && listed[0] <= all, "blocks lists ", listed[0], " blocks, but there are ",
                          all);
        for (int k = 1; k <= listed[0]; ++k)
            TORCH_CHECK_VALUE(listed[k] >= (k > 1 ? listed[k - 1] + 1 : 0) && listed[k] < all, "blocks holds ",
                              listed[k], " in row ", k, ", but numbers must ascend, and be below ", all);
    }
    return {blocks->const_data_ptr<int>()};
}

// ---- tensors that kernels read in vectors of four

constexpr int64_t VECTOR = 16;  // bytes that are loaded together

inline bool is_aligned(at::Tensor const& t) {
    return reinterpret_cast<std::uintptr_t>(t.const_data_ptr()) % VECTOR == 0;
}

inline void check_aligned(at::Tensor const& t, char const* name) {
    TORCH_CHECK_VALUE(is_aligned(t), name, " does not start on a multiple of ", VECTOR, " bytes; call .clone()");
}

// Returns the tensor itself if it is aligned, else a copy: a slice of a flat array may begin in the middle of a vector,
// and so may a gradient that autograd cut out of a larger one.
inline at::Tensor aligned(at::Tensor const& t) {
    return is_aligned(t) ? t : t.clone();
}

}  // namespace nurec
