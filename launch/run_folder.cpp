#include "launch/run_folder.hpp"

#include "launch/run_differences.hpp"
#include "trainer/base/error.hpp"
#include "trainer/io/durable_file.hpp"
#include "trainer/io/folder.hpp"
#include "trainer/io/lies_in.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* k_config = "config.toml";
constexpr const char* k_result = "result.json";

bool has_checkpoint(const fs::path& folder) {
  if (!fs::is_directory(folder / "checkpoints")) return false;
  for (const auto& entry : entries_of(folder / "checkpoints")) {
    if (entry.path().filename().string().starts_with("step-")) return true;
  }
  return false;
}

// But what a start leaves that measured nothing, or that failed even before its configuration was written. It makes its
// lock first and removes it last: a configuration without one is a person's.
bool holds_nothing(const fs::path& folder) {
  static const std::set<std::string> left_by_a_start = {RunLock::k_file, k_config, std::string(k_config) + ".partial"};
  const bool has_begun = fs::exists(folder / k_config);
  if (has_begun && !fs::exists(folder / RunLock::k_file) && fs::exists(folder / k_config)) return false;
  for (const auto& entry : entries_of(folder)) {
    const std::string name = entry.path().filename().string();
    const bool early_incident = !has_begun && name.starts_with("incident-");
    if (!early_incident && !left_by_a_start.contains(name)) return false;
  }
  return true;
}

bool holds_a_configuration_alone(const fs::path& folder) {
  return fs::exists(folder / k_config) && entries_of(folder).size() == 1;
}

bool is_same_place(const fs::path& a, const fs::path& b) {
  return !a.empty() && fs::weakly_canonical(a) == fs::weakly_canonical(b);
}

// The number of name-N, 1 of the name itself; none of any other.
std::optional<std::int64_t> number_of(const std::string& folder, const std::string& name) {
  if (folder == name) return 1;
  if (!folder.starts_with(name + "-")) return std::nullopt;
  std::int64_t number = 0;
  const char* end = folder.data() + folder.size();
  const auto read = std::from_chars(folder.data() + name.size() + 1, end, number);
  return read.ec == std::errc() && read.ptr == end && number >= 2 ? std::optional(number) : std::nullopt;
}

bool is_run(FolderState state) {
  return state == FolderState::begun || state == FolderState::has_checkpoints || state == FolderState::complete;
}

// A run that may go on.
struct Candidate {
  std::int64_t number;
  fs::path path;
  FolderState state;
  RunDifferences differences;
};

// Which is gone on with, first of all: see RunFolder::claim.
bool comes_before(const Candidate& a, const Candidate& b) {
  const auto rank = [](const Candidate& one) {
    if (!one.differences.none()) return 2;
    return one.state == FolderState::complete ? 1 : 0;
  };
  return rank(a) != rank(b) ? rank(a) < rank(b) : a.number > b.number;
}

// Throws where it is removed meanwhile.
FolderState state_now(const fs::path& folder) {
  const fs::file_type type = fs::status(folder).type();
  if (type == fs::file_type::not_found && !fs::is_symlink(folder)) return FolderState::absent;
  if (type != fs::file_type::directory) return FolderState::foreign;
  if (holds_nothing(folder)) return FolderState::unused;
  if (!fs::exists(folder / k_config) || holds_a_configuration_alone(folder)) return FolderState::foreign;
  if (fs::exists(folder / k_result)) return FolderState::complete;
  return has_checkpoint(folder) ? FolderState::has_checkpoints : FolderState::begun;
}

}  // namespace

FolderState state_of(const fs::path& folder) {
  for (;;) {
    try {
      return state_now(folder);
    } catch (const fs::filesystem_error& error) {
      if (error.code() != std::errc::no_such_file_or_directory) throw;
      // A start that was refused has removed it under our eyes, and another may have made it anew.
    }
  }
}

class RunFolderSearch {
 public:
  RunFolderSearch(LoadedConfig loaded, const std::string& default_name, Named named)
      : loaded_(std::move(loaded)), named_(named) {
    RunConfiguration& run = loaded_.configuration.run;
    if (run.name.empty()) run.name = default_name;
    if (run.name.find('/') != std::string::npos || run.name == "." || run.name == "..")
      throw UserError("run.name = \"" + run.name + "\" must be a plain name; the place is run.output_dir");
    name_ = run.name;
    wanted_ = fs::path(run.output_dir) / name_;
  }

  RunFolder run() {
    try {
      fs::create_directories(wanted_.parent_path());
      const CheckpointConfiguration& checkpoint = loaded_.configuration.checkpoint;
      if (checkpoint.resume == ResumeMode::never) return begin_anew({});
      if (checkpoint.resume == ResumeMode::automatic) return go_on();
      return from_path(checkpoint.resume_path);
    } catch (const fs::filesystem_error& error) {
      fail(error.code());
    } catch (const std::system_error& error) {
      fail(error.code());
    }
  }

 private:
  [[noreturn]] void fail(const std::error_code& code) const {
    throw UserError("cannot make the run's folder " + wanted_.string() + ": " + code.message() +
                    "; write another run.output_dir");
  }

  [[nodiscard]] RunDifferences differences_of(const fs::path& run) const {
    return compare_with_saved(run / k_config, loaded_.configuration);
  }
  [[nodiscard]] bool is_of_this_name(const RunDifferences& run) const {
    return run.saved_name.empty() || run.saved_name == name_;
  }

  // Numbers are the order in which runs were begun: one that is gone gives its own to no other.
  std::int64_t first_free() const {
    std::int64_t first = 1;
    for (const auto& entry : entries_of(wanted_.parent_path())) {
      const auto number = number_of(entry.path().filename().string(), name_);
      if (!number || *number < first) continue;
      if (is_run(state_of(entry.path())) && is_of_this_name(differences_of(entry.path()))) first = *number + 1;
    }
    return first;
  }

  RunFolder begin_anew(std::string said) {
    if (state_of(wanted_) == FolderState::foreign) refuse_foreign();
    for (std::int64_t number = first_free();; ++number) {
      const fs::path path = number == 1 ? wanted_ : fs::path(fmt::format("{}-{}", wanted_.string(), number));
      auto lock = lock_unused(path);
      if (!lock) continue;
      if (number > 1)
        said += "a new run of this name: it is in " + path.string() + " (--resume goes on with an earlier one)";
      return {std::move(loaded_), path, std::move(*lock), std::move(said)};
    }
  }

  [[noreturn]] void refuse_foreign() const {
    throw UserError(wanted_.string() +
                    (fs::is_directory(wanted_)
                         ? " is not a run's folder and is not empty: write another run.name or run.output_dir"
                         : " is a file: write another run.name"));
  }

  // None where it belongs to another run, also to one that starts at this moment.
  std::optional<RunLock> lock_unused(const fs::path& path) const {
    for (;;) {
      std::error_code code;
      fs::create_directory(path, code);
      // That a file is there is said of a folder, too, which goes at this moment.
      if (code && code != std::errc::file_exists) fail(code);
      const FolderState state = state_of(path);
      if (state == FolderState::foreign && path == wanted_) refuse_foreign();
      if (state == FolderState::absent) continue;  // a start that was refused has removed it
      if (state != FolderState::unused) return std::nullopt;
      LockAttempt attempt = RunLock::try_lock(path, std::chrono::milliseconds(0));
      if (!attempt.lock && attempt.holder.empty()) continue;
      if (!attempt.lock || state_of(path) != FolderState::unused) return std::nullopt;
      return std::move(attempt.lock);
    }
  }

  RunFolder from_path(const std::string& path) {
    const auto found = candidates();
    if (named_ == Named::first_start) {
      const auto begun = std::ranges::find_if(
          found, [&](const Candidate& one) { return is_same_place(one.differences.begun_from, path); });
      if (begun != found.end()) {
        RunFolder folder = go_on_in({*begun});
        folder.has_begun_from_named_ = has_checkpoint(folder.path());
        return folder;
      }
    }
    for (const Candidate& candidate : found) {
      if (lies_in(path, candidate.path)) return go_on_in({candidate});
    }
    return begin_anew({});
  }

  std::vector<Candidate> candidates() const {
    std::vector<Candidate> found;
    for (const auto& entry : entries_of(wanted_.parent_path())) {
      const auto number = number_of(entry.path().filename().string(), name_);
      if (!number) continue;
      const fs::path path = wanted_.parent_path() / entry.path().filename();
      const FolderState state = state_of(path);
      if (!is_run(state)) continue;
      if (state == FolderState::complete && !has_checkpoint(path))
        continue;  // nothing to go on from, and it is not lost
      RunDifferences differences = differences_of(path);
      if (is_of_this_name(differences)) found.push_back({*number, path, state, std::move(differences)});
    }
    std::sort(found.begin(), found.end(), comes_before);
    return found;
  }

  RunFolder go_on() {
    auto found = candidates();
    if (found.empty())
      return begin_anew("there is no run " + name_ + " in " + wanted_.parent_path().string() +
                        " to go on with: a new one begins\n");
    // Of several alike any may go on; another configuration's is not what was meant.
    const bool alike = found.front().differences.none();
    std::erase_if(found, [&](const Candidate& one) { return alike && !one.differences.none(); });
    if (!alike) found.resize(1);
    return go_on_in(found);
  }

  RunFolder go_on_in(const std::vector<Candidate>& alike) {
    std::string held;
    for (const Candidate& one : alike) {
      if (!held.empty() && one.state == FolderState::complete) break;
      LockAttempt attempt = RunLock::try_lock(one.path, RunLock::k_patience);
      if (attempt.lock && one.state != state_of(one.path)) {
        attempt.lock.reset();
        return run();  // somebody has ended it in between: another may be the one to go on with now
      }
      if (attempt.lock) {
        const std::string what = going_on(state_of(one.path), one.path) + one.differences.text();
        const std::string from = attempt.taken_over.empty()
                                     ? ""
                                     : "\n" + attempt.taken_over + ", was working on it and has shown no sign of life";
        return {std::move(loaded_), one.path, std::move(*attempt.lock), what + from};
      }
      if (held.empty()) held = one.path.string() + " is in use: " + attempt.holder;
    }
    throw UserError(held + ". Wait for its end or stop it (kill -USR1: it saves); without --resume a new run begins");
  }

  static std::string going_on(FolderState state, const fs::path& path) {
    switch (state) {
      case FolderState::begun:
        return "the run in " + path.string() + " has ended, and has no checkpoint: it begins again there";
      case FolderState::complete: return "the run in " + path.string() + " was complete";
      default: return "the run in " + path.string() + " goes on";
    }
  }

  LoadedConfig loaded_;
  Named named_;
  std::string name_;
  fs::path wanted_;
};

RunFolder RunFolder::claim(const LoadedConfig& loaded, const std::string& default_name, Named named) {
  return RunFolderSearch(loaded, default_name, named).run();
}

RunFolder::RunFolder(LoadedConfig loaded, fs::path path, RunLock lock, std::string said)
    : loaded_(std::move(loaded)), path_(std::move(path)), lock_(std::move(lock)), said_(std::move(said)) {}

RunFolder::~RunFolder() {
  std::error_code ignored;
  try {
    if (path_.empty() || state_of(path_) != FolderState::unused) return;
  } catch (const std::system_error&) {
    return;  // a folder that cannot be read stays
  }
  // The lock last: who takes it from then on has written nothing yet that would go too.
  for (const std::string name : {k_config, "config.toml.partial", RunLock::k_file}) fs::remove(path_ / name, ignored);
  fs::remove(path_, ignored);
}

void RunFolder::begin() const {
  write_text_atomically(path_ / k_config, resolved_config(loaded_));
  fs::remove(path_ / k_result);
}

void RunFolder::complete(const std::string& result) const {
  if (fs::exists(path_ / k_result)) return;  // a start that had nothing to do: what the run came to stands
  write_text_atomically(path_ / k_result, result);
}

}  // namespace onebatch::launch
