// SPDX-License-Identifier: Apache-2.0
// Nearest points of queries, on CUDA alone; a CPU has scipy's tree (nurec_lite/scene/neighbours.py). Pointers are the
// device's.
//
// Letters: n points, q queries, k neighbours.
#pragma once

#include "../common/device.h"

namespace nurec {

constexpr int MAX_NEIGHBOURS = 8;

struct NearestParams {
    int64_t n, q;
    int k;                  // 1 to MAX_NEIGHBOURS, n at most
    double const* points;   // [n, 3]
    double const* queries;  // [q, 3]
    double const* ends;     // [2, 3] lowest and highest coordinates of the points
    double* distances;      // [q, k] ascending; infinite for a query that is not finite
    int64_t* numbers;       // [q, k] of the points
};

namespace cuda {

void find_nearest(NearestParams const& p, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
