// SPDX-License-Identifier: Apache-2.0
// nurec_lite::multi_tensor_copy on the CPU.
#include <torch/library.h>

#include "torch_multi_tensor_copy.h"

namespace nurec {
namespace {

void multi_tensor_copy(at::TensorList into, at::TensorList values, MaybeTensor const& numbers_at,
                       at::ArrayRef<double> numbers) {
    CopyArguments const a = {into, values, numbers_at, numbers};
    check_copies(a, at::kCPU);
    copy_all_by(a, &cpu::multi_tensor_copy);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("multi_tensor_copy", &multi_tensor_copy);
}

}  // namespace nurec
