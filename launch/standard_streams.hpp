// Everything that the program writes to people goes through here. What cannot be written (a full disk under a log, a
// reader that has gone, a closed stream) is lost: it never ends a run. The first loss on a stream is said on the other
// one. Control characters but line ends are shown as "\x1b" and the like.
#pragma once

#include <string_view>

namespace onebatch::launch {

/// Writes all of `text` at once, so that ranks' lines do not mix. Never throws.
void print_out(std::string_view text);
/// To standard error.
void print_error(std::string_view text);
/// Puts `text` in the place of what the terminal's current line shows. Not for the log file.
void redraw_line(std::string_view text);
/// For the log file alone; nothing where there is none.
void print_to_log(std::string_view text);

/// Whether standard output, as the program was started with it, is a terminal.
bool out_is_terminal();

/// From now on everything that is printed goes into `file` too, each line with its time; and what libraries write to
/// the two streams themselves goes there alone. `file` is a descriptor open for appending, which this takes over.
void keep_log(int file);

}  // namespace onebatch::launch
