#include "trainer/plan/elsewhere/all_reduce_model.hpp"

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

double one_level(double bytes, std::int64_t count, double bytes_per_second, double latency) {
  if (count < 2) return 0.0;
  const auto n = static_cast<double>(count);
  const double ring = 2.0 * (n - 1.0) / n * bytes / bytes_per_second + 2.0 * (n - 1.0) * latency;
  const double tree = 2.0 * bytes / bytes_per_second + 2.0 * std::ceil(std::log2(n)) * latency;
  return std::min(ring, tree);
}

}  // namespace

double all_reduce_seconds(double bytes, std::int64_t ranks, const Network& network) {
  const std::int64_t in_node = std::min(ranks, network.ranks_per_node);
  const std::int64_t nodes = (ranks + network.ranks_per_node - 1) / network.ranks_per_node;
  return one_level(bytes, in_node, network.node_bytes_per_second, network.node_latency_seconds) +
         one_level(bytes, nodes, network.bytes_per_second, network.latency_seconds);
}

}  // namespace onebatch
