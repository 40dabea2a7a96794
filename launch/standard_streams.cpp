#include "launch/standard_streams.hpp"

#include "comm/visible_text.hpp"
#include "launch/utc_time.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

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

// Whose waiting for a reader is told of.
struct Waiting {
  std::atomic<std::thread::id> thread;
  std::function<void()> tell;  // that thread's alone
};

Waiting& waiting() {
  static Waiting one;
  return one;
}

// A terminal that somebody has stopped, or a pager that shows what came before, takes nothing for as long as it likes.
void wait_for_room(int descriptor) {
  constexpr int k_milliseconds = 200;
  pollfd room = {descriptor, POLLOUT, 0};
  for (;;) {
    const int ready = ::poll(&room, 1, k_milliseconds);
    if (ready > 0 || (ready < 0 && errno != EINTR)) return;
    if (waiting().thread.load() == std::this_thread::get_id()) waiting().tell();
  }
}

// 0, or the error.
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    wait_for_room(descriptor);
    const ssize_t written = ::write(descriptor, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    if (written > 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (written == 0 || (errno != EINTR && errno != EAGAIN)) {
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

using Clock = std::chrono::steady_clock;

// One thread at a time writes. Who has crashed while it wrote holds up no message: its turn is over after a while.
std::atomic_flag somebody_writes;
class Turn {
 public:
  Turn() {
    for (int i = 0; i < k_most_looks && !mine_; ++i) {
      mine_ = !somebody_writes.test_and_set();
      if (!mine_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  ~Turn() {
    if (mine_) somebody_writes.clear();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  static constexpr int k_most_looks = 200;
  bool mine_ = false;
};

// What a terminal shows last.
struct Live {
  std::vector<LivePart> parts;
  bool drawn = false;
  std::atomic<Clock::rep> said = Clock::now().time_since_epoch().count();  // when anything was written last
};

Live& live() {
  static Live one;
  return one;
}

void note_said() {
  live().said = Clock::now().time_since_epoch().count();
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

bool is_dumb() {
  const char* terminal = std::getenv("TERM");
  return terminal != nullptr && std::string_view(terminal) == "dumb";
}

std::string coloured(const Stream& stream, const std::string& text) {
  if (&stream != &standard_error || ::isatty(stream.descriptor) != 1 || is_dumb() || is_set("NO_COLOR")) return text;
  for (const auto& [prefix, colour] : {std::pair("onebatch: warning:", "33"), std::pair("onebatch:", "31")}) {
    if (text.starts_with(prefix))
      return fmt::format("\x1b[{}m{}\x1b[0m{}", colour, prefix, text.substr(std::string_view(prefix).size()));
  }
  return text;
}

void erase_live() {
  if (std::exchange(live().drawn, false)) write_or_lose(standard_output, standard_error, "\r\x1b[K");
}

void print(Stream& stream, Stream& other, std::string_view text) {
  const Turn turn;
  erase_live();
  write_or_lose(stream, other, coloured(stream, comm::visible_text(text)));
  note_said();
  print_to_log(text);
}

// mpirun gives its ranks a terminal of their own and copies what they write: where that goes is what counts.
std::string terminal_of_launcher() {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) return {};
  std::error_code error;
  return std::filesystem::read_symlink(fmt::format("/proc/{}/fd/1", ::getppid()), error).string();
}

int columns_of(int descriptor) {
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

// Asked each time: a window may be made wider.
std::size_t terminal_columns() {
  constexpr int k_usual = 80;
  int columns = 0;
  if (const std::string terminal = terminal_of_launcher(); !terminal.empty()) {
    const int descriptor = ::open(terminal.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC);
    if (descriptor >= 0) columns = columns_of(descriptor);
    if (descriptor >= 0) ::close(descriptor);
  } else {
    columns = columns_of(standard_output.descriptor);
  }
  return static_cast<std::size_t>(columns > 0 ? columns : k_usual) - 1;  // in the last one some begin a new line
}

void draw(const std::vector<LivePart>& parts) {
  const std::string text = comm::visible_text(fitted(parts, terminal_columns()));
  write_or_lose(standard_output, standard_error, fmt::format("\r\x1b[K{}", text));
  live().drawn = true;
  note_said();
}

// Where `descriptor` leads to now, under a number that no library writes to.
int moved(int descriptor) {
  const int copy = ::fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  return copy < 0 ? descriptor : copy;
}

}  // namespace

// A closed stream's number would go to the next file that is opened, and messages into that file. Its place is taken
// before any library opens one, by something that cannot be written to either.
void hold_closed_streams(int /*argc*/, char** /*argv*/, char** /*environment*/) {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) < 0) [[maybe_unused]]
      const int same = ::open("/dev/null", O_RDONLY);
  }
}

WhileOutputWaits::WhileOutputWaits(std::function<void()> tell) {
  waiting().tell = std::move(tell);
  waiting().thread = std::this_thread::get_id();
}

WhileOutputWaits::~WhileOutputWaits() {
  waiting().thread = std::thread::id();
  waiting().tell = nullptr;
}

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

bool is_live() {
  if (::isatty(standard_output.descriptor) != 1 || is_dumb()) return false;
  const std::string terminal = terminal_of_launcher();
  return terminal.empty() || terminal.starts_with("/dev/pts/") || terminal.starts_with("/dev/tty");
}

void show_live(std::vector<LivePart> parts) {
  const Turn turn;
  live().parts = std::move(parts);
  if (live().parts.empty()) return erase_live();
  if (is_live()) draw(live().parts);
}

void say_activity(const std::string& text) {
  constexpr int k_heaviest = 100;
  std::vector<LivePart> parts = {{text, k_heaviest}};
  {
    const Turn turn;
    parts.insert(parts.end(), live().parts.begin(), live().parts.end());
    if (is_live()) return draw(parts);
  }
  print_out(fmt::format("{}\n", fitted(parts, std::string::npos)));
}

double silent_seconds() {
  const Clock::time_point said{Clock::duration{live().said}};
  return std::chrono::duration<double>(Clock::now() - said).count();
}

int descriptor_of_output() {
  return standard_output.descriptor;
}

int descriptor_of_error() {
  return standard_error.descriptor;
}

void keep_log(int file) {
  standard_output.descriptor = moved(STDOUT_FILENO);
  standard_error.descriptor = moved(STDERR_FILENO);
  ::dup2(file, STDOUT_FILENO);
  ::dup2(file, STDERR_FILENO);
  log_file.descriptor = moved(file);
  ::close(file);
}

}  // namespace onebatch::launch
