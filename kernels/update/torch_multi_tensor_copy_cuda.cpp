// SPDX-License-Identifier: Apache-2.0
// nurec_lite::multi_tensor_copy on CUDA.
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include "../common/torch_site.h"
#include "torch_multi_tensor_copy.h"

namespace nurec {
namespace {

// torch gives page-locked memory out again as soon as no tensor has it, unless it knows of work that uses it: of its
// own copies it does, of our kernels it must be told.
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

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("multi_tensor_copy", &multi_tensor_copy);
}

}  // namespace nurec
