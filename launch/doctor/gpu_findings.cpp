#include "launch/doctor/host_findings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>

namespace onebatch::launch {
namespace {

constexpr const char* k_no_gpu = "no NVIDIA GPU here";

bool has_gpus(const MachineFacts& facts) {
  return !facts.driver.empty() || facts.driver_gpus > 0 || !facts.gpus.names.empty();
}

// "2 x H100, 1 x A100"
std::string counted(const std::vector<std::string>& names) {
  std::map<std::string, int> counts;
  for (const std::string& name : names) ++counts[name];
  std::vector<std::string> texts;
  for (const auto& [name, count] : counts) texts.push_back(fmt::format("{} x {}", count, name));
  return fmt::format("{}", fmt::join(texts, ", "));
}

int major_of(const std::string& version) {
  return version.empty() ? 0 : std::atoi(version.c_str());
}

Finding driver(const MachineFacts& facts) {
  Finding finding{.check = "driver"};
  if (facts.driver.empty() && facts.gpus.driver_serves.empty()) {
    finding.state = State::skipped;
    finding.found = fmt::format("{}: ranks compute on the CPU", k_no_gpu);
    return finding;
  }
  finding.found = fmt::format("NVIDIA {}", facts.driver.empty() ? "(its version is not shown)" : facts.driver);
  if (!facts.gpus.driver_serves.empty()) finding.found += fmt::format(", CUDA up to {}", facts.gpus.driver_serves);
  if (!facts.gpus.runtime.empty() && major_of(facts.gpus.driver_serves) > 0 &&
      major_of(facts.gpus.driver_serves) < major_of(facts.gpus.runtime)) {
    finding.state = State::broken;
    finding.found += fmt::format("; this program needs CUDA {}", facts.gpus.runtime);
    finding.why = "no GPU is counted, and nothing can be trained on one";
    finding.mend = "apt-get install --only-upgrade nvidia-driver";
    finding.otherwise =
        fmt::format("build with LIBTORCH_ROOT set to a LibTorch for CUDA {}", major_of(facts.gpus.driver_serves));
  }
  return finding;
}

void explain_missing_gpus(Finding& finding, const MachineFacts& facts) {
  const std::string* shown = variable(facts, "CUDA_VISIBLE_DEVICES");
  finding.state = State::broken;
  finding.why = "run.device = \"auto\" trains on the CPU then, and \"cuda\" is refused";
  if (shown != nullptr) {
    finding.found = fmt::format("the driver has {}, and CUDA_VISIBLE_DEVICES={} shows none of them", facts.driver_gpus,
                                shown->empty() ? "\"\"" : *shown);
    finding.mend = "unset CUDA_VISIBLE_DEVICES";
    return;
  }
  finding.found = fmt::format("the driver has {}, and CUDA finds none{}", facts.driver_gpus,
                              facts.gpus.problem.empty() ? "" : ": " + facts.gpus.problem);
  finding.mend = "nvidia-smi -L";
  finding.otherwise = "in a container: docker run --gpus all …, or apptainer exec --nv …";
}

Finding gpus(const MachineFacts& facts) {
  Finding finding{.check = "GPUs"};
  const int seen = static_cast<int>(facts.gpus.names.size());
  if (!has_gpus(facts)) {
    finding.state = State::skipped;
    finding.found = k_no_gpu;
  } else if (facts.gpus.runtime.empty()) {
    finding.state = State::warning;
    finding.found = fmt::format("the driver has {}, and this program was built without CUDA", facts.driver_gpus);
    finding.why = "ranks compute on the CPU";
    finding.mend = "./dev build --cuda";
  } else if (seen == 0) {
    explain_missing_gpus(finding, facts);
  } else if (const std::string* shown = variable(facts, "CUDA_VISIBLE_DEVICES");
             shown != nullptr && !shown->empty() && seen < static_cast<int>(std::ranges::count(*shown, ',')) + 1) {
    finding.state = State::warning;
    finding.found =
        fmt::format("CUDA_VISIBLE_DEVICES={} names more than CUDA shows: {}", *shown, counted(facts.gpus.names));
    finding.why = "CUDA stops at the first number that is no GPU: those after it are not used";
    finding.mend = "unset CUDA_VISIBLE_DEVICES";
  } else {
    finding.found = counted(facts.gpus.names);
    if (facts.driver_gpus > seen) finding.found += fmt::format(", of the driver's {}", facts.driver_gpus);
  }
  return finding;
}

Finding peer_access(const MachineFacts& facts) {
  Finding finding{.check = "peer access"};
  const int count = static_cast<int>(facts.gpus.names.size());
  if (count < 2) {
    finding.state = State::skipped;
    finding.found = count == 0 ? k_no_gpu : "one GPU";
    return finding;
  }
  const int pairs = count * (count - 1) / 2;
  finding.found = fmt::format("{} of {} pairs of GPUs reach each other directly",
                              pairs - facts.gpus.pairs_without_peer_access, pairs);
  if (facts.gpus.pairs_without_peer_access > 0) {
    finding.state = State::warning;
    finding.why = "NCCL carries gradients between the others through host memory, which is slower";
    finding.mend = "nvidia-smi topo -p2p r";
    finding.otherwise = "consumer cards have none; on servers ACS or the IOMMU may stand in the way";
  }
  return finding;
}

Finding nccl(const MachineFacts& facts) {
  Finding finding{.check = "NCCL"};
  const auto version = facts.versions.find("nccl");
  finding.found = version == facts.versions.end() ? "none" : version->second;
  if (finding.found.find("(built with ") != std::string::npos) {
    finding.state = State::warning;
    finding.why = "another library than the program's own was found first: LD_LIBRARY_PATH goes before it";
    finding.mend = "unset LD_LIBRARY_PATH LD_PRELOAD";
  } else if (!has_gpus(facts)) {
    finding.state = State::skipped;
    finding.found += fmt::format("; {} to use it", k_no_gpu);
  } else if (finding.found == "unknown") {
    finding.state = State::broken;
    finding.found = "the library that was loaded does not say its version";
    finding.why = "it may be another one than this program was built with";
    finding.mend = "unset LD_LIBRARY_PATH LD_PRELOAD";
  } else if (const std::string* off = variable(facts, "NCCL_P2P_DISABLE");
             off != nullptr && *off == "1" && facts.gpus.names.size() > 1) {
    finding.state = State::warning;
    finding.found += ", and NCCL_P2P_DISABLE=1";
    finding.why = "gradients go through host memory, which is slower";
    finding.mend = "unset NCCL_P2P_DISABLE";
  }
  return finding;
}

}  // namespace

std::vector<Finding> gpu_findings(const MachineFacts& facts) {
  return {driver(facts), gpus(facts), peer_access(facts), nccl(facts)};
}

}  // namespace onebatch::launch
