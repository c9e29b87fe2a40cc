// SPDX-License-Identifier: Apache-2.0
// Bindings of nurec_lite::multi_tensor_copy, for the CPU and for CUDA, and of operators on rows of visible blocks, on
// CUDA alone: checks and allocation.
#include <torch/library.h>

#include <algorithm>

#include "../common/torch_check.h"
#include "multi_tensor_copy.h"

#ifdef NUREC_CUDA
#include "../common/torch_site.h"
#include "block_copy.h"
#include "drop_unseen.h"
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#endif

namespace nurec {
namespace {

struct CopyArguments {
    at::TensorList into, values;
    MaybeTensor const& numbers_at;
    at::ArrayRef<double> numbers;
};

// That of the first tensor that is not the host's.
at::Device device_of(CopyArguments const& a) {
    for (at::TensorList const list : {a.values, a.into})
        for (at::Tensor const& t : list)
            if (!t.device().is_cpu()) return t.device();
    return a.numbers_at ? a.numbers_at->device() : at::Device(at::kCPU);
}

// Whether kernels can write to a tensor that is not on the device.
bool lies_in_locked_memory(at::Tensor const& t) {
    return t.device().is_cpu() && t.is_pinned();
}

void check_copy(at::Tensor const& into, at::Tensor const& values, std::size_t k, at::Device device) {
    TORCH_CHECK_VALUE(values.device() == device, "values[", k, "] is on ", values.device(), ", but must be on ",
                      device);
    TORCH_CHECK_VALUE(into.device() == device || lies_in_locked_memory(into), "into[", k, "] is on ", into.device(),
                      ", but must be on ", device, " or in page-locked memory of the host");
    TORCH_CHECK_VALUE(into.nbytes() == values.nbytes(), "into[", k, "] has ", into.nbytes(),
                      " bytes, but must have as many as its values, ", values.nbytes());
    TORCH_CHECK_VALUE(into.is_contiguous(), "into[", k, "] has strides ", into.strides(), ", but must be contiguous");
    TORCH_CHECK_VALUE(values.is_contiguous(), "values[", k, "] is not contiguous; call .contiguous()");
}

void check_numbers(CopyArguments const& a, at::Device device) {
    TORCH_CHECK_VALUE(a.numbers.size() <= std::size_t(MAX_NUMBERS), "numbers has ", a.numbers.size(),
                      " elements, but must have ", MAX_NUMBERS, " at most");
    TORCH_CHECK_VALUE(a.numbers_at || a.numbers.empty(),
                      "numbers are given, but not numbers_at, where they are to lie");
    if (a.numbers_at) check_tensor(*a.numbers_at, "numbers_at", at::kFloat, {int64_t(a.numbers.size())}, device);
}

void check_copies(CopyArguments const& a, at::Device device) {
    TORCH_CHECK_VALUE(a.into.size() == a.values.size(), "into has ", a.into.size(),
                      " tensors, but must have as many as values, ", a.values.size());
    for (std::size_t k = 0; k < a.into.size(); ++k) check_copy(a.into[k], a.values[k], k, device);
    check_numbers(a, device);
}

CopyParams with_numbers(CopyArguments const& a) {
    CopyParams p = {};
    p.numbers = int(a.numbers.size());
    p.numbers_at = a.numbers_at ? a.numbers_at->mutable_data_ptr<float>() : nullptr;
    std::transform(a.numbers.begin(), a.numbers.end(), p.values, [](double x) { return float(x); });
    return p;
}

// Calls `launch` with the arguments of one launch, until all is copied; the numbers are in the first launch.
template <class Launch>
void copy_all_by(CopyArguments const& a, Launch const& launch) {
    CopyParams p = with_numbers(a);
    for (std::size_t k = 0; k < a.into.size(); ++k) {
        if (!a.into[k].nbytes()) continue;
        if (p.count == MAX_COPIES_PER_LAUNCH) {
            launch(p);
            p = {};
        }
        p.copies[p.count++] = {a.into[k].mutable_data_ptr(), a.values[k].const_data_ptr(), int64_t(a.into[k].nbytes())};
    }
    if (p.count || p.numbers) launch(p);
}

#ifdef NUREC_CUDA

// torch reuses page-locked memory as soon as no tensor holds it, unless it knows of work on it. It knows its own
// copies; this records our kernels.
void hold_locked_memory(CopyArguments const& a, at::Device device) {
    for (at::Tensor const& t : a.into) {
        if (t.device() == device || !t.nbytes()) continue;
        c10::Stream const stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
        void* const owner = t.storage().data_ptr().get_context();
        at::getHostAllocator(device.type())->record_event(t.mutable_data_ptr(), owner, stream);
    }
}

void multi_tensor_copy(at::TensorList into, at::TensorList values, MaybeTensor const& numbers_at,
                       at::ArrayRef<double> numbers) {
    CopyArguments const a = {into, values, numbers_at, numbers};
    at::Device const device = device_of(a);
    check_copies(a, device);
    Site site(device);
    copy_all_by(a, [&](CopyParams const& p) {
        cuda::multi_tensor_copy(p, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
    hold_locked_memory(a, device);
}

// One of `rows` with its place in `packed`.
cuda::BlockCopy block_copy(at::Tensor const& rows, at::Tensor const& packed, cuda::BlockCopies const& p,
                           at::Device device) {
    TORCH_CHECK_VALUE(rows.device() == device && rows.scalar_type() == at::kFloat && rows.is_contiguous() &&
                          rows.dim() > 0 && rows.size(0) == p.n,
                      "rows must be contiguous float32 tensors on ", device, " with ", p.n, " rows each");
    int64_t const width = rows.numel() / std::max(p.n, int64_t(1));
    check_tensor(packed, "packed", at::kFloat, {p.capacity, BLOCK_GAUSSIANS * width}, device);
    return {rows.mutable_data_ptr<float>(), packed.mutable_data_ptr<float>(), int(width), 1,
            is_aligned(rows) && is_aligned(packed)};
}

cuda::BlockCopies block_copies(at::TensorList rows, at::TensorList packed, at::Tensor const& blocks) {
    check_count(int64_t(rows.size()), "number of rows", cuda::MAX_BLOCK_COPIES);
    TORCH_CHECK_VALUE(rows.size() == packed.size(), "packed has ", packed.size(),
                      " tensors, but must have as many as rows, ", rows.size());
    TORCH_CHECK_VALUE(rows[0].dim() > 0 && packed[0].dim() == 2, "rows and packed must have rows");
    int64_t const n = rows[0].size(0);
    cuda::BlockCopies p = {int(rows.size()), n, packed[0].size(0), checked_blocks(blocks, n, blocks.device()), {}};
    for (std::size_t k = 0; k < rows.size(); ++k) p.copies[k] = block_copy(rows[k], packed[k], p, blocks.device());
    return p;
}

void pack_blocks(at::TensorList rows, at::Tensor const& blocks, at::ArrayRef<double> factors, at::TensorList packed) {
    cuda::BlockCopies p = block_copies(rows, packed, blocks);
    TORCH_CHECK_VALUE(factors.size() == rows.size(), "factors has ", factors.size(),
                      " numbers, but must have as many as rows, ", rows.size());
    for (std::size_t k = 0; k < factors.size(); ++k) p.copies[k].factor = float(factors[k]);
    Site site(blocks.device());
    cuda::pack_blocks(p, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void unpack_blocks(at::TensorList packed, at::Tensor const& blocks, at::TensorList rows) {
    cuda::BlockCopies const p = block_copies(rows, packed, blocks);
    Site site(blocks.device());
    cuda::unpack_blocks(p, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void drop_unseen(at::Tensor const& d_means, at::Tensor const& blocks, at::TensorList gradients) {
    auto const device = d_means.device();
    check_tensor(d_means, "d_means", at::kFloat, {-1, 3}, device);
    check_count(int64_t(gradients.size()), "number of gradients", cuda::MAX_UNSEEN_GRADIENTS);
    int64_t const n = d_means.size(0);
    cuda::UnseenGradients p = {
        n, checked_blocks(blocks, n, device), d_means.const_data_ptr<float>(), int(gradients.size()), {}, {}};
    for (std::size_t k = 0; k < gradients.size(); ++k) {
        at::Tensor const& t = gradients[k];
        TORCH_CHECK_VALUE(
            t.device() == device && t.scalar_type() == at::kFloat && t.is_contiguous() && t.dim() > 0 && t.size(0) == n,
            "gradients[", k, "] must be a contiguous float32 tensor on ", device, " with ", n, " rows");
        p.gradients[k] = t.mutable_data_ptr<float>(), p.widths[k] = int(t.numel() / std::max(n, int64_t(1)));
    }
    Site site(device);
    cuda::drop_unseen(p, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

#else

void multi_tensor_copy(at::TensorList into, at::TensorList values, MaybeTensor const& numbers_at,
                       at::ArrayRef<double> numbers) {
    CopyArguments const a = {into, values, numbers_at, numbers};
    check_copies(a, at::kCPU);
    copy_all_by(a, &cpu::multi_tensor_copy);
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("multi_tensor_copy", &multi_tensor_copy);
#ifdef NUREC_CUDA
    m.impl("pack_blocks", &pack_blocks);
    m.impl("unpack_blocks", &unpack_blocks);
    m.impl("drop_unseen", &drop_unseen);
#endif
}

}  // namespace nurec
