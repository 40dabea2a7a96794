// A machine's facts on their way to rank 0.
#include "launch/doctor/machine_facts.hpp"

#include <nlohmann/json.hpp>

namespace onebatch {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuFacts, runtime, driver_serves, names, pairs_without_peer_access, problem)

namespace launch {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FolderFacts, path, problem, total_bytes, free_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LimitFacts, now, most)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MachineFacts, host, program, launcher, rank, ranks_here, root, versions, environment,
                                   driver, driver_gpus, gpus, shared_memory, output, scratch, locked_bytes, open_files,
                                   processors, allowed, quota, interfaces, loopback, infiniband)

std::string to_text(const MachineFacts& facts) {
  return nlohmann::json(facts).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

MachineFacts parse_facts(const std::string& text) {
  return nlohmann::json::parse(text).get<MachineFacts>();
}

}  // namespace launch
}  // namespace onebatch
