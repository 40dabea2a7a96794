#include "comm/local_communicator.hpp"

#include "comm/error.hpp"
#include "comm/visible_text.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace onebatch::comm {
namespace {

void write_to_standard_error(std::string_view text) {
  const std::string line = visible_text(text);
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

std::atomic<void (*)(std::string_view)> say = write_to_standard_error;

}  // namespace

void LocalCommunicator::all_gather(const void* send, void* receive, std::size_t bytes_per_rank) {
  if (bytes_per_rank > 0) std::memmove(receive, send, bytes_per_rank);
}

void LocalCommunicator::abort(std::string_view reason, int exit_code) {
  say_failure(0, reason);
  std::_Exit(exit_code);
}

void say_failure(int rank, std::string_view reason) {
  say.load()(fmt::format("onebatch: rank {} ({}): {}\n", rank, host_name(), reason));
}

void say_failures_by(void (*function)(std::string_view text)) {
  say = function;
}

}  // namespace onebatch::comm
