#include "trainer/checkpoint/by_rank.hpp"

#include "trainer/device/agreement.hpp"
#include "trainer/io/named_tensors.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace onebatch {
namespace {

std::string rank_name(int rank, const std::string& name) {
  return fmt::format("rank{}.{}", rank, name);
}

bool has_all(const std::filesystem::path& file, const std::vector<NamedTensor>& gathered, Extra extra, int world_size) {
  if (!std::filesystem::exists(file)) return false;
  std::set<std::string> names;
  for (const SafetensorsEntry& entry : read_safetensors_header(file).entries) names.insert(entry.name);
  if (extra == Extra::refused && names.size() != gathered.size()) return false;
  const bool has_more_ranks =
      std::ranges::any_of(names, [&](const std::string& name) { return name.starts_with(rank_name(world_size, "")); });
  return !has_more_ranks &&
         std::ranges::all_of(gathered, [&](const NamedTensor& one) { return names.contains(one.name); });
}

}  // namespace

std::vector<NamedTensor> gather_by_rank(const std::vector<NamedTensor>& own, comm::Communicator& control) {
  std::vector<NamedTensor> gathered;
  for (const auto& [name, tensor] : own) {
    const auto bytes = host_bytes(tensor);
    std::vector<std::byte> all(bytes.size() * static_cast<std::size_t>(control.size()));
    control.all_gather(bytes.data(), all.data(), bytes.size());
    for (int rank = 0; rank < control.size(); ++rank) {
      const at::Tensor one = at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
      copy_from_bytes(one, std::span(all).subspan(static_cast<std::size_t>(rank) * bytes.size(), bytes.size()));
      gathered.push_back({rank_name(rank, name), one});
    }
  }
  return gathered;
}

bool load_by_rank(const std::filesystem::path& file, const std::vector<NamedTensor>& own, Extra extra,
                  comm::Communicator& control) {
  if (own.empty()) return false;
  const auto gathered = gather_by_rank(own, control);
  std::int64_t have = 0;
  agree_on_rank_0(control, [&] {
    if (!has_all(file, gathered, extra, control.size())) return;
    load_tensors(file, gathered, extra);
    have = 1;
  });
  control.broadcast(&have, sizeof(have), 0);
  if (have == 0) return false;
  broadcast_tensors(gathered, control);
  for (std::size_t i = 0; i < own.size(); ++i) {
    const std::size_t mine = i * static_cast<std::size_t>(control.size()) + static_cast<std::size_t>(control.rank());
    copy_from_bytes(own[i].tensor, host_bytes(gathered[mine].tensor));
  }
  return true;
}

}  // namespace onebatch
