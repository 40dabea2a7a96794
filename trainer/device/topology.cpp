#include "trainer/device/topology.hpp"

#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace onebatch {
namespace {

std::vector<int> processors_of(hwloc_const_bitmap_t set) {
  std::vector<int> processors;
  for (int i = hwloc_bitmap_first(set); i != -1; i = hwloc_bitmap_next(set, i)) processors.push_back(i);
  return processors;
}

}  // namespace

struct Topology::State {
  hwloc_topology_t topology = nullptr;

  State() {
    if (hwloc_topology_init(&topology) != 0) throw std::runtime_error("hwloc_topology_init failed");
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  }
  ~State() { hwloc_topology_destroy(topology); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  [[nodiscard]] int count(hwloc_obj_type_t type) const { return std::max(0, hwloc_get_nbobjs_by_type(topology, type)); }
};

Topology::Topology(std::unique_ptr<State> state) : state_(std::move(state)) {}
Topology::~Topology() = default;
Topology::Topology(Topology&&) noexcept = default;
Topology& Topology::operator=(Topology&&) noexcept = default;

Topology Topology::here() {
  auto state = std::make_unique<State>();
  if (hwloc_topology_load(state->topology) != 0) throw std::runtime_error("hwloc cannot read this machine's topology");
  return Topology(std::move(state));
}

Topology Topology::from_xml(const std::string& text) {
  auto state = std::make_unique<State>();
  const int length = static_cast<int>(text.size()) + 1;
  if (hwloc_topology_set_xmlbuffer(state->topology, text.c_str(), length) != 0 ||
      hwloc_topology_load(state->topology) != 0)
    throw std::invalid_argument("this is no topology that hwloc has written");
  return Topology(std::move(state));
}

int Topology::num_packages() const {
  return state_->count(HWLOC_OBJ_PACKAGE);
}
int Topology::num_numa_nodes() const {
  return state_->count(HWLOC_OBJ_NUMANODE);
}
int Topology::num_cores() const {
  return state_->count(HWLOC_OBJ_CORE);
}

std::vector<int> Topology::allowed_processors() const {
  const hwloc_bitmap_t set = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(state_->topology));
  // What this process is bound to, by its launcher for example, is less than what the machine allows.
  const hwloc_bitmap_t bound = hwloc_bitmap_alloc();
  if (hwloc_topology_is_thissystem(state_->topology) != 0 &&
      hwloc_get_cpubind(state_->topology, bound, HWLOC_CPUBIND_PROCESS) == 0)
    hwloc_bitmap_and(set, set, bound);
  auto processors = processors_of(set);
  hwloc_bitmap_free(bound);
  hwloc_bitmap_free(set);
  return processors;
}

std::vector<int> Topology::processors_near(const std::string& pci_bus_id) const {
  const std::vector<int> allowed = allowed_processors();
  hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(state_->topology, pci_bus_id.c_str());
  if (device == nullptr) return allowed;
  const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(state_->topology, device);
  std::vector<int> both;
  for (const int processor : allowed) {
    if (hwloc_bitmap_isset(near->cpuset, static_cast<unsigned>(processor)) != 0) both.push_back(processor);
  }
  return both.empty() ? allowed : both;
}

std::vector<int> part_of_rank(const std::vector<std::vector<int>>& near_of_ranks, int node_local_rank) {
  const std::vector<int>& near = near_of_ranks.at(static_cast<std::size_t>(node_local_rank));
  const auto sharing = static_cast<std::size_t>(std::count(near_of_ranks.begin(), near_of_ranks.end(), near));
  const auto place =
      static_cast<std::size_t>(std::count(near_of_ranks.begin(), near_of_ranks.begin() + node_local_rank, near));
  if (near.size() < sharing) return near.empty() ? near : std::vector<int>{near[place % near.size()]};
  const auto begin = static_cast<std::ptrdiff_t>(near.size() * place / sharing);
  const auto end = static_cast<std::ptrdiff_t>(near.size() * (place + 1) / sharing);
  return {near.begin() + begin, near.begin() + end};
}

std::string processor_list(const std::vector<int>& processors) {
  std::ostringstream text;
  for (std::size_t i = 0; i < processors.size();) {
    std::size_t last = i;
    while (last + 1 < processors.size() && processors[last + 1] == processors[last] + 1) ++last;
    text << (i == 0 ? "" : ",") << processors[i];
    if (last > i) text << '-' << processors[last];
    i = last + 1;
  }
  return text.str();
}

bool bind_process(const std::vector<int>& processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors) CPU_SET(static_cast<std::size_t>(processor), &set);
  return sched_setaffinity(0, sizeof(set), &set) == 0;
}

}  // namespace onebatch
