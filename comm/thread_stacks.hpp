// Where the threads of a process are, by name: read from outside, so that a process that is stopped, stuck or about to
// die can be asked.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace onebatch::comm {

struct ThreadStack {
  long id = 0;
  std::string name;                 // "onebatch", or what the thread is called
  std::vector<std::string> frames;  // from where it is outwards: "onebatch::TrainingStep::run(...)+0x31", demangled
};

/// Stops the process's threads one by one, reads where they are, and lets them go on as they were: a stopped process
/// stays stopped. Not of the own process. Threads that cannot be read have a frame that says why. Throws
/// std::system_error where there is no such process.
[[nodiscard]] std::vector<ThreadStack> read_thread_stacks(pid_t process);

/// For people, and back: "thread 12 (onebatch)" and a line a frame.
[[nodiscard]] std::string to_text(const std::vector<ThreadStack>& stacks);
[[nodiscard]] std::vector<ThreadStack> parse_thread_stacks(std::string_view text);

/// The same of any process, this one too, by the program onebatch-stacks that lies beside this one, which gets so many
/// seconds; one stack without a thread, whose frame says why, where that fails.
[[nodiscard]] std::vector<ThreadStack> ask_for_thread_stacks(pid_t process, double seconds);

/// From now on other processes of this user may look into this one, as those of its node do where it is stuck.
void allow_to_be_looked_into();

}  // namespace onebatch::comm
