// What a reduction takes in a cluster that is not there.
#pragma once

#include <cstdint>

namespace onebatch {

struct Network {
  std::int64_t ranks_per_node = 8;
  double node_bytes_per_second = 100e9;  // of a rank to another within a node
  double bytes_per_second = 12.5e9;      // of a node to another
  double latency_seconds = 10e-6;        // of a message between nodes
  double node_latency_seconds = 3e-6;    // within one
};

/// Seconds of one all-reduce of `bytes` over `ranks`: within each node, then between nodes, each by a ring (2 (n - 1) /
/// n of the bytes in 2 (n - 1) messages) or a tree (twice the bytes in 2 log2 n messages), whichever is quicker, as
/// collective libraries choose.
double all_reduce_seconds(double bytes, std::int64_t ranks, const Network& network);

}  // namespace onebatch
