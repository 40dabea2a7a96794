#include "launch/standard_streams.hpp"

#include "comm/visible_text.hpp"
#include "launch/utc_time.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <string>

namespace onebatch::launch {
namespace {

struct Stream {
  int descriptor;
  const char* name;
  std::atomic<bool> has_lost = false;  // and it was said
};

// As many as the process has.
Stream standard_output = {STDOUT_FILENO, "standard output"};
Stream standard_error = {STDERR_FILENO, "standard error"};
Stream log_file = {-1, "the log file"};

// A closed stream's number would go to the next file that is opened, and messages into that file. Its place is taken
// before any library opens one, by something that cannot be written to either.
void hold_closed_streams(int /*argc*/, char** /*argv*/, char** /*environment*/) {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) < 0) [[maybe_unused]]
      const int same = ::open("/dev/null", O_RDONLY);
  }
}

__attribute__((section(".preinit_array"), used)) void (*const at_first)(int, char**, char**) = hold_closed_streams;

// 0, or the error.
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (written < 0 && errno == EAGAIN) {
      pollfd room = {descriptor, POLLOUT, 0};
      ::poll(&room, 1, -1);
    } else if (written == 0 || errno != EINTR) {
      return written == 0 ? EIO : errno;
    }
  }
  return 0;
}

void write_or_lose(Stream& stream, Stream& other, std::string_view text) {
  if (stream.descriptor < 0) return;
  const int error = write_all(stream.descriptor, text);
  if (error == 0 || stream.has_lost.exchange(true)) return;
  const std::string note = fmt::format("onebatch: warning: {} cannot be written ({}): what it cannot take is lost\n",
                                       stream.name, std::strerror(error));
  write_all(other.descriptor, note);
}

void print(Stream& stream, Stream& other, std::string_view text) {
  write_or_lose(stream, other, comm::visible_text(text));
  print_to_log(text);
}

// Where `descriptor` leads to now, under a number that no library writes to.
int moved(int descriptor) {
  const int copy = ::fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  return copy < 0 ? descriptor : copy;
}

}  // namespace

void print_out(std::string_view text) {
  print(standard_output, standard_error, text);
}

void print_error(std::string_view text) {
  print(standard_error, standard_output, text);
}

void print_to_log(std::string_view text) {
  if (log_file.descriptor < 0) return;
  const std::string stamp = utc_time("%Y-%m-%dT%H:%M:%S") + " ";
  std::istringstream lines(comm::visible_text(text));
  std::string stamped;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) stamped += fmt::format("{}{}\n", stamp, line);
  }
  write_or_lose(log_file, standard_error, stamped);
}

bool out_is_terminal() {
  return ::isatty(standard_output.descriptor) == 1;
}

void keep_log(int file) {
  standard_output.descriptor = moved(STDOUT_FILENO);
  standard_error.descriptor = moved(STDERR_FILENO);
  ::dup2(file, STDOUT_FILENO);
  ::dup2(file, STDERR_FILENO);
  log_file.descriptor = moved(file);
  ::close(file);
}

void redraw_line(std::string_view text) {
  write_or_lose(standard_output, standard_error, "\r\x1b[K" + comm::visible_text(text));
}

}  // namespace onebatch::launch
