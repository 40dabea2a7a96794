// Another program, run to its end: what it says is passed on as it comes, and it does not outlive who waits for it.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace onebatch {

struct ChildRequest {
  std::vector<std::string> words;                                // the program, found along PATH, and its arguments
  std::map<std::string, std::string> environment = {};           // over this process's own
  std::function<void(std::string_view)> out = [](auto) {};       // what it writes
  std::function<void(std::string_view)> error = [](auto) {};     // to standard error
  std::function<bool()> stop = [] { return false; };             // asked again and again: it is to end
  std::chrono::seconds patience = std::chrono::hours(24 * 365);  // then it is too late
};

enum class ChildEnd { by_itself, stopped, too_late };

struct ChildResult {
  ChildEnd end = ChildEnd::by_itself;
  int code = 0;    // its exit code; 0 where a signal ended it
  int signal = 0;  // that ended it; 0: none
};

/// It leads a process group, believes that it is no rank, and its standard input ends when this process does, or when
/// it is to stop: a few seconds later it is killed, with its group. Throws std::system_error where it cannot be
/// started.
ChildResult run_child(const ChildRequest& request);

}  // namespace onebatch
