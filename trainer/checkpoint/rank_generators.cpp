#include "trainer/checkpoint/rank_generators.hpp"

#include "trainer/checkpoint/by_rank.hpp"

#include <ATen/Context.h>

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

std::vector<NamedTensor> states_of(const Replica& replica) {
  std::vector<NamedTensor> states;
  for (auto& [name, generator] : generators_of(replica)) states.push_back({name, state_of(generator)});
  return states;
}

}  // namespace

std::vector<NamedTensor> gather_generators(const Replica& replica, comm::Communicator& control) {
  return gather_by_rank(states_of(replica), control);
}

void load_generators(const std::filesystem::path& file, const Replica& replica, comm::Communicator& control) {
  const auto states = states_of(replica);
  if (!load_by_rank(file, states, Extra::refused, control)) return;
  auto generators = generators_of(replica);
  for (std::size_t i = 0; i < generators.size(); ++i) {
    const std::scoped_lock lock(generators[i].generator.mutex());
    generators[i].generator.set_state(states[i].tensor);
  }
}

}  // namespace onebatch
