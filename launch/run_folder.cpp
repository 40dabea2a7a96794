#include "launch/run_folder.hpp"

#include "trainer/error.hpp"

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;

bool has_checkpoint(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder / "checkpoints", error)) {
    if (entry.path().filename().string().starts_with("step-")) return true;
  }
  return false;
}

// Nothing but the configuration: a start that failed before it measured anything.
bool never_began(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename() != "config.toml") return false;
  }
  return true;
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  if (!fs::exists(path) || !fs::exists(folder)) return false;
  const auto inner = fs::canonical(path).string();
  const auto outer = fs::canonical(folder).string();
  return inner == outer || inner.starts_with(outer + "/");
}

bool goes_on(const Configuration& configuration, const fs::path& folder) {
  switch (configuration.checkpoint.resume) {
    case ResumeMode::automatic: return has_checkpoint(folder);
    case ResumeMode::path: return lies_in(configuration.checkpoint.resume_path, folder);
    case ResumeMode::never: return false;
  }
  return false;
}

// create_directory tells who was first, should two runs start at once.
fs::path make_next_free(const fs::path& wanted) {
  for (int number = 2;; ++number) {
    const fs::path candidate = wanted.string() + "-" + std::to_string(number);
    if (fs::create_directory(candidate)) return candidate;
  }
}

}  // namespace

RunFolder make_run_folder(const Configuration& configuration, const std::string& default_name) {
  const std::string name = configuration.run.name.empty() ? default_name : configuration.run.name;
  if (name.find('/') != std::string::npos || name == "." || name == "..")
    throw UserError("run.name = \"" + name + "\" must be a plain name; the place is run.output_dir");
  const fs::path wanted = fs::path(configuration.run.output_dir) / name;
  try {
    fs::create_directories(wanted.parent_path());
    if (fs::create_directory(wanted)) return {wanted, {}};
    if (!fs::is_directory(wanted)) throw UserError(wanted.string() + " is a file: write another run.name");
    if (!fs::is_empty(wanted) && !fs::exists(wanted / "config.toml"))
      throw UserError(wanted.string() + " is not a run's folder and is not empty: write another run.name or run.output_dir");
    if (goes_on(configuration, wanted))
      return {wanted, "the run in " + wanted.string() + " goes on (checkpoint.resume = \"never\" begins a new one)"};
    if (never_began(wanted)) return {wanted, {}};
    const fs::path free = make_next_free(wanted);
    return {free, wanted.string() + " holds a run already: this one is in " + free.string()};
  } catch (const fs::filesystem_error& error) {
    throw UserError("cannot make the run's folder " + wanted.string() + ": " + error.code().message() + "; write another run.output_dir");
  }
}

}  // namespace onebatch::launch
