#include "trainer/replica_check.hpp"

#include "trainer/replica_state.hpp"

namespace onebatch {
namespace {

std::vector<Digest> all_digests(const Digest& mine, comm::Communicator& control) {
  std::vector<Digest> all(static_cast<std::size_t>(control.size()));
  control.all_gather(mine.data(), all.data(), sizeof(mine));
  return all;
}

}  // namespace

std::optional<ReplicaDifference> mend_replicas(Replica& replica, comm::Communicator& control) {
  if (control.size() == 1) return std::nullopt;
  const auto& parameters = replica.model->parameters();
  const auto all = all_digests(digest_of(parameters), control);
  ReplicaDifference difference;
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] != all[0]) difference.ranks.push_back(static_cast<int>(rank));
  }
  if (difference.ranks.empty()) return std::nullopt;
  for (const NamedTensor& parameter : parameters) {
    const auto one = all_digests(digest_of({parameter}), control);
    if (difference.parameter.empty() && one.at(static_cast<std::size_t>(difference.ranks.front())) != one[0])
      difference.parameter = parameter.name;
  }
  broadcast_tensors(live_tensors(replica), control);
  return difference;
}

}  // namespace onebatch
