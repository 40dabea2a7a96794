#include "launch/core_binding.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <thread>

namespace onebatch::launch {

std::string binding_warning(const comm::World& world) {
  cpu_set_t cores;
  if (world.size() > 2 || world.launcher().launcher != "mpirun" || sched_getaffinity(0, sizeof(cores), &cores) != 0)
    return {};
  const auto all = static_cast<int>(std::thread::hardware_concurrency());
  if (CPU_COUNT(&cores) != 1 || all <= world.size()) return {};
  return fmt::format(
      "onebatch: warning: mpirun has bound each rank to 1 of {} cores; start it as mpirun --bind-to none …\n", all);
}

}  // namespace onebatch::launch
