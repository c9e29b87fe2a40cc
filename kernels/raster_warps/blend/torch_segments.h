// SPDX-License-Identifier: Apache-2.0
// Arguments of the operators of segments, and their kept values.
#pragma once

#include <tuple>

#include "../../common/torch_site.h"
#include "../../project/torch_render.h"
#include "segments.h"

namespace nurec {

using Kept = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;  // first, list_index, fields, rows

inline void check_warp_tiles(RenderTensors const& in) {
    check_render(in, true);
    int const rays = cuda::rays_with(in.features.size(1));
    TORCH_CHECK_VALUE(in.rays.size(1) == rays, "rays has ", in.rays.size(1), " rays a tile, but a list has ", rays);
    TORCH_CHECK_VALUE(in.rays.numel() >= in.directions.size(0), "lists are of ", in.rays.numel(),
                      " rays at most, but there are ", in.directions.size(0), ": each must be in one");
}

inline cuda::Segments parts_of(Kept const& kept, int64_t length) {
    auto const& [first, list_index, fields, rows] = kept;
    return {list_index.size(0),
            length,
            first.mutable_data_ptr<int64_t>(),
            list_index.mutable_data_ptr<int>(),
            fields.mutable_data_ptr<float>(),
            rows.mutable_data_ptr<float>()};
}

}  // namespace nurec
