// Everything that the program writes to people goes through here. What cannot be written (a full disk under a log, a
// reader that has gone, a closed stream) is lost: it never ends a run. The first loss on a stream is said on the other
// one. Control characters but line ends are shown as "\x1b" and the like. Colour marks errors and warnings on a
// terminal, unless NO_COLOR is set (https://no-color.org). From any thread.
#pragma once

#include "launch/live_line.hpp"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace onebatch::launch {

/// Where one of the three standard streams is closed. Calls nothing but the C library: meant for .preinit_array, with
/// what the loader gives.
void hold_closed_streams(int argc, char** argv, char** environment);

/// While it lives: several times a second `tell` is called where what this thread prints waits for its reader, as a
/// terminal that was stopped or a pager makes it. One at a time.
class WhileOutputWaits {
 public:
  explicit WhileOutputWaits(std::function<void()> tell);
  ~WhileOutputWaits();
  WhileOutputWaits(const WhileOutputWaits&) = delete;
  WhileOutputWaits& operator=(const WhileOutputWaits&) = delete;
};

/// Writes all of `text`, and what fits into a pipe at once, so that ranks' lines do not mix. Never throws.
void print_out(std::string_view text);
/// To standard error.
void print_error(std::string_view text);
/// Shows these parts as the terminal's last line, in the place of those before; what is printed stands above it. None:
/// the line is gone. Where there is no terminal they are kept for say_activity(). Not for the log file.
void show_live(std::vector<LivePart> parts);
/// What goes on meanwhile: beside the live line on a terminal, a line of its own elsewhere.
void say_activity(const std::string& text);
/// Since something was printed or shown.
[[nodiscard]] double silent_seconds();
/// For the log file alone; nothing where there is none.
void print_to_log(std::string_view text);

/// Whether what is printed comes to a terminal on which a line can be drawn again, if need be by way of mpirun.
[[nodiscard]] bool is_live();

/// From now on everything that is printed goes into `file` too, each line with its time; and what libraries write to
/// the two streams themselves goes there alone. `file` is a descriptor open for appending, which this takes over.
void keep_log(int file);

/// Where standard output and standard error really go: not into the log.
int descriptor_of_output();
int descriptor_of_error();

}  // namespace onebatch::launch
