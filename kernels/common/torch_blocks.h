// SPDX-License-Identifier: Apache-2.0
// Visible blocks as operators take them.
#pragma once

#include "blocks.h"
#include "torch_check.h"

namespace nurec {

// `blocks` [blocks] uint8 of a store of n Gaussians; nothing: all count.
inline VisibleBlocks checked_blocks(MaybeTensor const& blocks, int64_t n, at::Device device) {
    if (!blocks) return {nullptr};
    check_tensor(*blocks, "blocks", at::kByte, {blocks_of_store(n)}, device);
    return {blocks->const_data_ptr<uint8_t>()};
}

}  // namespace nurec
