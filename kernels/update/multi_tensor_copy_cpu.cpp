// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "multi_tensor_copy.h"

namespace nurec::cpu {

void multi_tensor_copy(CopyParams const& p) {
    for (int k = 0; k < p.count; ++k)
        std::memcpy(p.copies[k].into, p.copies[k].values, static_cast<std::size_t>(p.copies[k].bytes));
    for (int k = 0; k < p.numbers; ++k) p.numbers_at[k] = p.values[k];
}

}  // namespace nurec::cpu
