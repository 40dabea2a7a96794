#include "launch/timeout.hpp"

#include "comm/world.hpp"
#include "launch/config_loader.hpp"
#include "launch/plan_command.hpp"
#include "trainer/base/error.hpp"

#include <filesystem>

namespace onebatch::launch {

double timeout_seconds_of(const Arguments& arguments) {
  std::error_code error;  // and a pipe can be read once
  if (!std::filesystem::is_regular_file(arguments.config_file, error)) return comm::k_default_timeout_seconds;
  try {
    const auto loaded = load_config(read_file(arguments.config_file), arguments.config_file, arguments.assignments);
    return loaded.configuration.comm.timeout_seconds;
  } catch (const UserError&) {
    return comm::k_default_timeout_seconds;
  }
}

}  // namespace onebatch::launch
