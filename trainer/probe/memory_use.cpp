#include "trainer/probe/memory_use.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

constexpr double k_apart = 0.8;           // of the larger size: nearer ones tell no slope
constexpr double k_held_by_a_host = 0.8;  // of what it has left

std::int64_t standing(const MemoryUse& memory) {
  return memory.parameters_bytes + memory.buffers_bytes + memory.gradients_bytes + memory.optimizer_bytes +
         memory.communication_bytes;
}

}  // namespace

std::string amount(double bytes) {
  constexpr double k_unit = 1024.0;
  const bool small = bytes < k_unit * k_unit;
  const double value = bytes / (small ? k_unit : k_unit * k_unit);
  return fmt::format("{:.{}f} {}", value, value < 100.0 ? 1 : 0, small ? "KiB" : "MiB");
}

void add_trials(MemoryUse& memory, const std::vector<Trial>& trials, std::int64_t resident_bytes) {
  const Trial* largest = nullptr;
  for (const Trial& trial : trials) {
    if (trial.fits && (largest == nullptr || trial.size > largest->size)) largest = &trial;
  }
  if (largest == nullptr) return;
  const Trial* before = nullptr;
  for (const Trial& trial : trials) {
    if (trial.fits && static_cast<double>(trial.size) < k_apart * static_cast<double>(largest->size) &&
        (before == nullptr || trial.size > before->size))
      before = &trial;
  }
  const double above = static_cast<double>(largest->peak_bytes - resident_bytes);
  const auto size = static_cast<double>(largest->size);
  const double slope = before == nullptr ? above / size
                                         : static_cast<double>(largest->peak_bytes - before->peak_bytes) /
                                               (size - static_cast<double>(before->size));
  memory.activation_bytes_per_sample = std::clamp(slope, 0.0, above / size);
  memory.workspace_bytes = static_cast<std::int64_t>(above - memory.activation_bytes_per_sample * size);
}

std::string memory_text(const MemoryUse& memory) {
  std::string text;
  const auto say = [&](const char* what, double bytes) {
    if (bytes > 0.0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what, amount(bytes));
  };
  say("parameters", static_cast<double>(memory.parameters_bytes));
  say("buffers", static_cast<double>(memory.buffers_bytes));
  say("gradients", static_cast<double>(memory.gradients_bytes));
  say("optimizer state", static_cast<double>(memory.optimizer_bytes));
  say("communication", static_cast<double>(memory.communication_bytes));
  say("workspace", static_cast<double>(memory.workspace_bytes));
  say("activations per sample", memory.activation_bytes_per_sample);
  say("kept per sample of the share", memory.kept_bytes_per_sample);
  return text;
}

void lower_limit(RankProfile& rank, std::int64_t failed_size, double factor) {
  const auto lowered = static_cast<std::int64_t>(std::floor(factor * static_cast<double>(failed_size)));
  rank.max_micro_batch = std::min(rank.max_micro_batch, std::max(rank.min_micro_batch, lowered));
  rank.room_bytes = static_cast<std::int64_t>(factor * static_cast<double>(rank.room_bytes));
}

std::vector<bool> hosts_hold(const std::vector<HostShare>& shares) {
  std::vector<bool> hold;
  for (const HostShare& share : shares) {
    double wanted = 0.0;
    std::int64_t available = share.available;
    for (const HostShare& other : shares) {
      if (other.host != share.host) continue;
      wanted += static_cast<double>(other.bytes);
      available = std::min(available, other.available);
    }
    hold.push_back(wanted <= k_held_by_a_host * static_cast<double>(available));
  }
  return hold;
}

std::string too_large_text(const RankProfile& rank, std::int64_t least, bool may_recompute) {
  const MemoryUse& memory = rank.memory;
  const std::int64_t left = rank.memory_limit_bytes - standing(memory);
  const std::string lacks = left > 0 ? fmt::format("the {} that are left are too little for activations and workspace",
                                                   amount(static_cast<double>(left)))
                                     : "that alone is too much";
  std::string text =
      fmt::format("not even {} sample(s) fit on {} (limit {}): {}; {}. What would help: ", least, rank.device,
                  amount(static_cast<double>(rank.memory_limit_bytes)), memory_text(memory), lacks);
  if (memory.optimizer_bytes > 0)
    text += fmt::format("optimizer.kind = \"sgd\" without momentum (frees {}); ",
                        amount(static_cast<double>(memory.optimizer_bytes)));
  if (left > 0 && may_recompute)
    text += "memory.recompute = \"auto\" (activations are computed again instead of kept); ";
  text +=
      2 * memory.parameters_bytes > left ? "a smaller model; " : "smaller samples or a model with fewer activations; ";
  return text + "a device with more memory";
}

}  // namespace onebatch
