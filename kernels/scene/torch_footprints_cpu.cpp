// SPDX-License-Identifier: Apache-2.0
// nurec_lite::footprints on the CPU.
#include <torch/library.h>

#include "torch_footprints.h"

namespace nurec {
namespace {

at::Tensor footprints(at::TensorList seen, double nearest, double margin) {
    return footprints_by(&cpu::footprints, seen, nearest, margin);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("footprints", &footprints);
}

}  // namespace nurec
