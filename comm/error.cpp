#include "comm/error.hpp"

#include <unistd.h>

#include <array>

namespace onebatch::comm {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

CommError::CommError(int rank, std::string_view call, std::string_view text, std::source_location where)
    : std::runtime_error("rank " + std::to_string(rank) + " (" + host_name() + "): " + std::string(call) + " failed at " +
                         where.file_name() + ":" + std::to_string(where.line()) + ": " + std::string(text)) {}

}  // namespace onebatch::comm
