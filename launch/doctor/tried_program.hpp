// Another program, run to its end or to a deadline.
#pragma once

#include <string>
#include <vector>

namespace onebatch::launch {

struct TriedProgram {
  int code = -1;  // 128 and a signal's number where one ended it; 127: it could not be started
  bool too_late = false;
  std::string output;  // both streams
};

/// The program and all that it has started are ended at the deadline. `words[0]` is a path. Throws std::system_error
/// where no process can be made.
TriedProgram try_program(const std::vector<std::string>& words, double seconds);

/// The executables of that name in PATH, in its order.
std::vector<std::string> all_in_path(const std::string& name);

}  // namespace onebatch::launch
