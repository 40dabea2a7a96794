#include "comm/siblings.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>

namespace onebatch::comm {
namespace {

namespace fs = std::filesystem;

// What all ranks of a job have in common, and what tells them apart, by launcher.
struct Names {
  const char* job;
  const char* rank;
};
constexpr Names k_names[] = {{"PMIX_NAMESPACE", "PMIX_RANK"},
                             {"OMPI_MCA_ess_base_jobid", "OMPI_COMM_WORLD_RANK"},
                             {"SLURM_STEP_ID", "SLURM_PROCID"}};

std::optional<std::string> variable(std::string_view environment, std::string_view name) {
  while (!environment.empty()) {
    const std::string_view entry = environment.substr(0, environment.find('\0'));
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return std::string(entry.substr(name.size() + 1));
    environment.remove_prefix(std::min(environment.size(), entry.size() + 1));
  }
  return std::nullopt;
}

std::string environment_of(const fs::path& process) {
  std::ifstream in(process / "environ", std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

// The state letter follows the command's name, which is in parentheses and may hold anything.
std::string process_state(long process) {
  std::ifstream in(fmt::format("/proc/{}/stat", process));
  std::string line;
  if (!std::getline(in, line)) return "gone";
  const std::size_t end = line.rfind(')');
  const char letter = end == std::string::npos || end + 2 >= line.size() ? '?' : line[end + 2];
  if (letter == 'Z' || letter == 'X') return "gone";
  return letter == 'T' || letter == 't' ? "stopped" : "running";
}

std::vector<StatusBoard::Process> stopped_siblings() {
  std::vector<StatusBoard::Process> stopped;
  for (const Names& names : k_names) {
    const char* job = std::getenv(names.job);
    if (job == nullptr) continue;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator("/proc", error)) {
      const long process = std::strtol(entry.path().filename().c_str(), nullptr, 10);
      if (process <= 0 || process_state(process) != "stopped") continue;
      const std::string environment = environment_of(entry.path());
      if (variable(environment, names.job) != job) continue;
      const std::string rank = variable(environment, names.rank).value_or("");
      stopped.push_back({rank.empty() ? -1 : std::atoi(rank.c_str()), process});
    }
    break;
  }
  return stopped;
}

std::string to_text(const std::vector<StatusBoard::Process>& stopped) {
  std::string text;
  for (const StatusBoard::Process& process : stopped)
    text += fmt::format("\n  rank {} (process {}): its process is stopped",
                        process.rank < 0 ? "?" : fmt::to_string(process.rank), process.number);
  return text;
}

}  // namespace onebatch::comm
