// SPDX-License-Identifier: Apache-2.0
// Entries of clusters, and what makes lists of them.
#pragma once

#include "params.h"

namespace nurec::cuda {

// A Gaussian enters some lists of a cluster, a bit each, the first one's the lowest: number of the cluster << 16 |
// bits.
struct ClusterEntries {
    uint32_t* lists;      // [room]
    uint32_t* gaussians;  // [room]
    Counts const* counts;
    int64_t room;

    __device__ int64_t n() const { return counts->entries < room ? counts->entries : room; }
};

// Stable: within a list, Gaussians stay in the order of the entries.
void make_lists(ClusterEntries const& entries, Bundles const& bundles, ListEntries const& out, int64_t* needed,
                Zeros& zeros, Queue const& queue);
int64_t words_to_list(Bundles const& bundles, int64_t room);  // that it takes of them

}  // namespace nurec::cuda
