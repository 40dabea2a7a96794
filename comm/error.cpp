#include "comm/error.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <fstream>

namespace onebatch::comm {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

std::string boot_id() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(in, text);
  return text;
}

CommError::CommError(int rank, std::string_view call, std::string_view text, std::source_location where)
    : std::runtime_error(fmt::format("rank {} ({}): {} failed at {}:{}: {}", rank, host_name(), call, where.file_name(),
                                     where.line(), text)) {}

}  // namespace onebatch::comm
