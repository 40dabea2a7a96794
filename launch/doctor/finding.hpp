// What doctor has to say of one thing that it looked at.
#pragma once

#include <string>
#include <vector>

namespace onebatch::launch {

/// In the order of how bad they are. `skipped`: there is nothing here to look at.
enum class State { skipped, well, warning, broken };

struct Finding {
  std::string check = {};  // "shared memory"
  State state = State::well;
  std::string found = {};
  std::string why = {};                 // it matters; empty where all is well
  std::string mend = {};                // a line for a shell; empty: nothing that a command mends
  std::string otherwise = {};           // where that line cannot be run, as in a container
  std::vector<std::string> hosts = {};  // on which it was found; empty: it is of the ranks together
};

[[nodiscard]] inline bool is_problem(const Finding& finding) {
  return finding.state == State::warning || finding.state == State::broken;
}

/// Adds what another rank has found, where it is not known of its host: ranks of one machine see the same, but for
/// bytes that come and go. What is known of another host gets this one, too. Returns whether it
/// is new.
bool add_of_another(const Finding& finding, std::vector<Finding>& known);

/// "ok", "skipped", "warning", "broken".
const char* word_of(State state);

/// Lines as a terminal shows them.
std::string text_of(const Finding& finding);

/// The document of `--json`.
struct DoctorReport {
  int ranks = 1;
  std::vector<Finding> findings = {};
};
std::string to_json(const DoctorReport& report);
/// Throws std::exception where it is none.
DoctorReport parse_doctor_report(const std::string& text);

/// "2 warnings, 1 thing is broken".
std::string summary_of(const std::vector<Finding>& findings);

}  // namespace onebatch::launch
