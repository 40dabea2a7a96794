#include "trainer/replica/replica_check.hpp"

#include "trainer/base/error.hpp"
#include "trainer/replica/replica_state.hpp"

#include <algorithm>

namespace onebatch {
namespace {

std::vector<Digest> all_digests(const Digest& mine, comm::Communicator& control) {
  std::vector<Digest> all(static_cast<std::size_t>(control.size()));
  control.all_gather(mine.data(), all.data(), sizeof(mine));
  return all;
}

}  // namespace

std::optional<ReplicaDifference> mend_replicas(Replica& replica, comm::Communicator& control,
                                               const std::function<void()>& before_mending) {
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
  if (before_mending) before_mending();
  broadcast_tensors(live_tensors(replica), control);
  return difference;
}

void check_other_buffers(const Replica& replica, comm::Communicator& control) {
  if (control.size() == 1) return;
  const auto differ = [&](const std::vector<NamedTensor>& buffers) {
    const auto all = all_digests(digest_of(buffers), control);
    return std::ranges::any_of(all, [&](const Digest& digest) { return digest != all[0]; });
  };
  const auto others = replica.other_buffers();
  if (!differ(others)) return;
  for (const NamedTensor& buffer : others) {
    if (!differ({buffer})) continue;
    throw AgreedError(ExitCode::user_error,
                      "the buffer " + buffer.name +
                          " is not the same on every rank: the model keeps something of its samples in it, and each "
                          "rank has seen others. Only the running statistics of BatchNorm layers may change in "
                          "training: leave it as it is there, or train on one rank");
  }
}

}  // namespace onebatch
