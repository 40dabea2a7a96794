#include "launch/log_file.hpp"

#include "comm/error.hpp"
#include "comm/launcher.hpp"
#include "comm/stopwatch.hpp"
#include "launch/standard_streams.hpp"
#include "trainer/base/error.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace onebatch::launch {
namespace {

const comm::Stopwatch since_start;
bool ended = false;

}  // namespace

void begin_log(const std::filesystem::path& folder, std::string_view command) {
  const comm::LauncherView view = comm::read_launcher();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const auto file = folder / fmt::format("rank-{}.log", view.rank);
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0)
    throw UserError(
        fmt::format("--log-dir: {}: {}; name a folder that can be written", file.string(), std::strerror(errno)));
  keep_log(descriptor);
  const std::string of = view.size == 0 ? "" : fmt::format(" of {}", view.size);  // PMIx does not say
  print_to_log(fmt::format("rank {}{} on {}, process {}: {}\n", view.rank, of, comm::host_name(), ::getpid(), command));
}

void end_log(int exit_code) {
  if (std::exchange(ended, true)) return;
  print_to_log(fmt::format("ended with exit code {} after {:.1f} s\n", exit_code, since_start.seconds()));
}

}  // namespace onebatch::launch
