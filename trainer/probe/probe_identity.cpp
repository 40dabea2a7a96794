#include "trainer/probe/probe_identity.hpp"

#include "comm/error.hpp"
#include "trainer/base/version.hpp"
#include "trainer/device/allocator_settings.hpp"
#include "trainer/replica/replica_state.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <sstream>

namespace onebatch {

namespace fs = std::filesystem;

std::string identity_of_rank(const Replica& replica, const Dataset& data) {
  // What is free of a host's memory is never the same twice: steps of a fifth.
  const double limit =
      std::floor(4.0 * std::log2(std::max(1.0, static_cast<double>(replica.device.memory_limit_bytes()))));
  std::ostringstream text;
  text << k_version << ", LibTorch " << TORCH_VERSION << ", " << comm::host_name() << ", " << replica.device.name()
       << ", limit " << limit << ", " << at::get_num_threads() << " threads, samples "
       << at::IntArrayRef(data.sample_shape());
  if (replica.device.device().is_cuda()) text << ", allocator " << given_to_allocator().text;
  for (const auto& [name, tensor] : live_tensors(replica))
    text << "; " << name << " " << tensor.scalar_type() << tensor.sizes();
  return text.str();
}

std::string identity_of_file(const std::string& path) {
  std::error_code none;
  const std::uintmax_t size = path.empty() ? 0 : fs::file_size(path, none);
  if (path.empty() || none) return {};
  const fs::file_time_type written = fs::last_write_time(path, none);
  if (none) return {};
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(written.time_since_epoch()).count();
  return fmt::format("the model's file has {} bytes, written at {} ns\n", size, nanoseconds);
}

}  // namespace onebatch
