#include "comm/local_communicator.hpp"

#include "comm/error.hpp"
#include "comm/visible_text.hpp"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace onebatch::comm {

void LocalCommunicator::all_gather(const void* send, void* receive, std::size_t bytes_per_rank) {
  if (bytes_per_rank > 0) std::memmove(receive, send, bytes_per_rank);
}

void LocalCommunicator::abort(std::string_view reason, int exit_code) {
  say_failure(0, reason);
  std::_Exit(exit_code);
}

void say_failure(int rank, std::string_view reason) {
  const std::string line = visible_text("onebatch: rank " + std::to_string(rank) + " (" + host_name() + "): " + std::string(reason) + "\n");
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace onebatch::comm
