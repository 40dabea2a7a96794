// Which GPU a rank takes.
#include "comm/error.hpp"
#include "comm/world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace onebatch::comm {
namespace {

using Gpus = std::vector<std::string>;

// A GPU for each rank, none twice, for as many ranks as can be: a rank that finds its own taken asks who has it to take
// another (Kuhn, 1955).
class Assignment {
 public:
  explicit Assignment(const std::vector<Gpus>& visible) : visible_(visible) {
    for (std::size_t rank = 0; rank < visible.size(); ++rank) {
      std::set<std::string> asked;
      find(rank, asked);
    }
  }

  [[nodiscard]] std::map<std::size_t, std::string> by_rank() const {
    std::map<std::size_t, std::string> gpus;
    for (const auto& [gpu, rank] : owners_) gpus[rank] = gpu;
    return gpus;
  }

 private:
  bool find(std::size_t rank, std::set<std::string>& asked) {
    for (const std::string& gpu : visible_[rank]) {
      if (!owners_.contains(gpu)) {
        owners_[gpu] = rank;
        return true;
      }
    }
    for (const std::string& gpu : visible_[rank]) {
      if (!asked.insert(gpu).second) continue;
      if (find(owners_[gpu], asked)) {
        owners_[gpu] = rank;
        return true;
      }
    }
    return false;
  }

  const std::vector<Gpus>& visible_;
  std::map<std::string, std::size_t> owners_;
};

bool share_any(const Gpus& one, const Gpus& other) {
  return std::ranges::any_of(one, [&](const std::string& gpu) { return std::ranges::find(other, gpu) != other.end(); });
}

// Of the ranks that see GPUs of this one's.
std::string too_many(std::size_t rank, const std::vector<Gpus>& visible) {
  std::size_t ranks = 0;
  std::set<std::string> gpus;
  for (const Gpus& seen : visible) {
    if (!share_any(seen, visible[rank])) continue;
    ++ranks;
    gpus.insert(seen.begin(), seen.end());
  }
  return fmt::format(
      "{} ranks on {}, which has {} visible GPU(s): two ranks would share one. Start at most {} ranks per node (mpirun "
      "-np {}), make more GPUs "
      "visible (CUDA_VISIBLE_DEVICES), or write comm.allow_shared_device = true",
      ranks, host_name(), gpus.size(), gpus.size(), gpus.size());
}

}  // namespace

GpuChoice choose_cuda_device(int own_rank, const std::vector<std::vector<std::string>>& visible, SharedGpus shared) {
  const auto own = static_cast<std::size_t>(own_rank);
  if (visible.at(own).empty())
    throw LaunchError("no CUDA GPU is visible on " + host_name() +
                      ": see nvidia-smi and CUDA_VISIBLE_DEVICES, or write run.device = \"cpu\"");
  std::map<std::size_t, std::string> chosen = Assignment(visible).by_rank();
  const auto users = [&](const std::string& gpu) {
    return std::ranges::count(chosen, gpu, [](const auto& one) { return one.second; });
  };
  for (std::size_t rank = 0; rank < visible.size(); ++rank) {
    if (chosen.contains(rank) || visible[rank].empty()) continue;
    if (shared == SharedGpus::refused && share_any(visible[rank], visible[own]))
      throw LaunchError(too_many(own, visible));
    chosen[rank] = *std::ranges::min_element(visible[rank], {}, users);
  }
  const auto index = std::ranges::find(visible[own], chosen.at(own)) - visible[own].begin();
  return {static_cast<int>(index), static_cast<int>(users(chosen.at(own)))};
}

}  // namespace onebatch::comm
