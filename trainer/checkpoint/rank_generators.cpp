#include "trainer/checkpoint/rank_generators.hpp"

#include "trainer/agreement.hpp"
#include "trainer/checkpoint/tensor_file.hpp"
#include "trainer/replica_state.hpp"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>

namespace onebatch {
namespace {

struct NamedGenerator {
  std::string name;
  at::Generator generator;
};

std::vector<NamedGenerator> generators_of(const Replica& replica) {
  std::vector<NamedGenerator> generators = {{"cpu", at::globalContext().defaultGenerator(at::kCPU)}};
  if (replica.device.device().is_cuda()) generators.push_back({"cuda", at::globalContext().defaultGenerator(replica.device.device())});
  return generators;
}

at::Tensor state_of(at::Generator& generator) {
  const std::scoped_lock lock(generator.mutex());
  return generator.get_state();
}

std::string name_of(int rank, const std::string& name) {
  return "rank" + std::to_string(rank) + "." + name;
}

// Another number of ranks, or other devices, have other names.
bool has_these(const std::filesystem::path& file, const std::vector<NamedTensor>& gathered) {
  if (!std::filesystem::exists(file)) return false;
  std::set<std::string> names;
  for (const auto& entry : read_safetensors_header(file).entries) names.insert(entry.name);
  return names.size() == gathered.size() && std::ranges::all_of(gathered, [&](const NamedTensor& one) { return names.contains(one.name); });
}

}  // namespace

std::vector<NamedTensor> gather_generators(const Replica& replica, comm::Communicator& control) {
  std::vector<NamedTensor> gathered;
  for (auto& [name, generator] : generators_of(replica)) {
    const auto bytes = host_bytes(state_of(generator));
    std::vector<std::byte> all(bytes.size() * static_cast<std::size_t>(control.size()));
    control.all_gather(bytes.data(), all.data(), bytes.size());
    for (int rank = 0; rank < control.size(); ++rank) {
      const at::Tensor one = at::empty({static_cast<std::int64_t>(bytes.size())}, at::TensorOptions().dtype(at::kByte));
      copy_from_bytes(one, std::span(all).subspan(static_cast<std::size_t>(rank) * bytes.size(), bytes.size()));
      gathered.push_back({name_of(rank, name), one});
    }
  }
  return gathered;
}

void load_generators(const std::filesystem::path& file, const Replica& replica, comm::Communicator& control) {
  const auto gathered = gather_generators(replica, control);
  std::int64_t have = 0;
  agree_on_rank_0(control, [&] {
    if (!has_these(file, gathered)) return;
    load_tensors(file, gathered, Extra::refused);
    have = 1;
  });
  control.broadcast(&have, sizeof(have), 0);
  if (have == 0) return;
  broadcast_tensors(gathered, control);
  for (auto& [name, generator] : generators_of(replica)) {
    const std::string own = name_of(control.rank(), name);
    const auto saved = std::ranges::find(gathered, own, &NamedTensor::name);
    const std::scoped_lock lock(generator.mutex());
    generator.set_state(saved->tensor);
  }
}

}  // namespace onebatch
