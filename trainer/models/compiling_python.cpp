#include "trainer/models/compiling_python.hpp"

#include "trainer/models/class_dim.hpp"

#include <c10/core/Allocator.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <sstream>
#include <system_error>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds k_patience{60};
constexpr const char* k_variable = "ONEBATCH_PYTHON";

// Says which versions there are, and imports nothing.
constexpr const char* k_question = R"python(
import importlib.util, pathlib, re
def say(package, file, pattern):
    spec = importlib.util.find_spec(package)
    path = pathlib.Path(spec.origin).parent / file if spec and spec.origin else None
    found = re.search(pattern, path.read_text(), re.M) if path and path.is_file() else None
    print(package, found[1] if found else "none")
say("torch", "version.py", r"^__version__ = .([0-9.]+)")
say("onebatch", "compiling.py", r"^FORMAT = ([0-9]+)")
)python";

struct Candidate {
  std::string called;
  std::string program;
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Of the Python in whose packages the loaded LibTorch lies; empty: it lies in none.
std::string python_of_libtorch() {
  Dl_info place{};
  if (dladdr(reinterpret_cast<void*>(&c10::GetAllocator), &place) == 0 || place.dli_fname == nullptr) return "";
  const std::string file = fs::path(place.dli_fname).lexically_normal().string();
  const std::regex packages("(.*)/lib(?:64)?/(python[0-9.]+)/(?:site|dist)-packages/torch/lib/[^/]+");
  std::smatch found;
  if (!std::regex_match(file, found, packages)) return "";
  const fs::path folder = fs::path(found[1].str()) / "bin";
  const fs::path exact = folder / found[2].str();
  return (fs::exists(exact) ? exact : folder / "python3").string();
}

std::vector<Candidate> candidates() {
  if (const std::string named = variable(k_variable); !named.empty())
    return {{fmt::format("{} = \"{}\"", k_variable, named), named}};
  std::vector<Candidate> all;
  const auto add = [&](const char* called, const std::string& program) {
    const bool known = std::ranges::any_of(all, [&](const Candidate& one) { return one.program == program; });
    if (!program.empty() && !known) all.push_back({fmt::format("{}, {},", called, program), program});
  };
  const std::string environment = variable("VIRTUAL_ENV");
  add("the Python that LibTorch is a part of", python_of_libtorch());
  add("VIRTUAL_ENV's", environment.empty() ? "" : environment + "/bin/python3");
  add("PATH's", "python3");
  return all;
}

// The package that goes with this program, where it lies beside it.
std::string package_beside_program() {
  std::error_code none;
  const fs::path here = fs::read_symlink("/proc/self/exe", none).parent_path();
  for (const char* folder : {"../python", "../share/onebatch/python"}) {
    const fs::path place = (here / folder).lexically_normal();
    if (fs::is_regular_file(place / "onebatch/compiling.py", none)) return place.string();
  }
  return "";
}

std::map<std::string, std::string> environment_for(const CompilingPython& python) {
  std::map<std::string, std::string> changes = {{"PYTHONSAFEPATH", "1"}};  // what lies in this folder is no package
  if (python.package_folder.empty()) return changes;
  const std::string others = variable("PYTHONPATH");
  changes["PYTHONPATH"] = python.package_folder + (others.empty() ? "" : ":" + others);
  return changes;
}

std::string why_not_versions(const std::map<std::string, std::string>& versions) {
  if (!versions.contains("torch")) return "is no Python";
  const std::string& torch = versions.at("torch");
  if (torch == "none") return "has no PyTorch";
  if (torch != TORCH_VERSION) return fmt::format("has PyTorch {}, and this is LibTorch {}", torch, TORCH_VERSION);
  const auto format = versions.find("onebatch");
  if (format == versions.end() || format->second == "none") return "has no package onebatch that compiles";
  if (format->second != fmt::to_string(k_compiled_format)) return "has the package onebatch of another version";
  return "";
}

// Empty: it fits.
std::string why_not(const CompilingPython& python) {
  std::string said;
  ChildRequest request{.words = {python.program, "-c", k_question}};
  request.environment = environment_for(python);
  request.out = [&](std::string_view text) { said += text; };
  request.patience = k_patience;
  try {
    const ChildResult result = run_child(request);
    if (result.end == ChildEnd::too_late) return fmt::format("does not answer within {} s", k_patience.count());
    if (result.signal != 0) return fmt::format("was ended by signal {}", result.signal);
    if (result.code != 0) return fmt::format("ended with code {} when it was asked what it has", result.code);
  } catch (const std::system_error& error) {
    return "cannot be started: " + error.code().message();
  }
  std::map<std::string, std::string> versions;
  std::istringstream words(said);
  for (std::string package, version; words >> package >> version;) versions[package] = version;
  return why_not_versions(versions);
}

}  // namespace

PythonSearch find_compiling_python() {
  PythonSearch search;
  const std::string folder = package_beside_program();
  for (const auto& [called, program] : candidates()) {
    const CompilingPython python{program, folder};
    std::string reason = why_not(python);
    if (reason.empty()) {
      search.found = python;
      return search;
    }
    search.tried.push_back({called, std::move(reason)});
  }
  return search;
}

std::string why_no_python(const PythonSearch& search) {
  std::vector<std::string> reasons;
  for (const TriedPython& one : search.tried) reasons.push_back(one.called + " " + one.why_not);
  return fmt::format(
      "no Python here can compile: {}: write {}=PYTHON before the command, of one that has PyTorch {} and the package "
      "onebatch",
      fmt::join(reasons, "; "), k_variable, TORCH_VERSION);
}

std::vector<std::string> loss_options(const LossConfiguration& loss, const std::string& label_weights) {
  if (loss.kind == "model") return {};
  std::vector<std::string> words = {"--loss", loss.kind};
  if (loss.kind != "cross_entropy") return words;
  const auto add = [&](const char* option, std::string value) {
    words.emplace_back(option);
    words.push_back(std::move(value));
  };
  if (loss.ignore_index != -100) add("--ignore-index", fmt::to_string(loss.ignore_index));
  if (loss.label_smoothing != 0.0) add("--label-smoothing", fmt::format("{}", loss.label_smoothing));
  if (k_class_dim(loss) == "second") add("--class-dim", "second");
  if (!loss.class_weights.empty()) add("--class-weights", fmt::format("{}", fmt::join(loss.class_weights, ",")));
  if (label_weights != "none") add("--label-weights", label_weights);
  return words;
}

ChildRequest compile_request(const CompilingPython& python, const CompileWish& wish, const std::string& out) {
  ChildRequest request;
  request.words = {python.program, "-m", "onebatch", "compile", wish.program, "--until-input-ends"};
  const auto add = [&](const char* option, std::string value) {
    request.words.emplace_back(option);
    request.words.push_back(std::move(value));
  };
  add("--precision", wish.precision);
  if (wish.device != "cpu") add("--device", wish.device);
  if (wish.deterministic) request.words.emplace_back("--deterministic");
  if (wish.recompute) request.words.emplace_back("--recompute");
  if (wish.shared_batch_norm) request.words.emplace_back("--shared-batch-norm");
  if (!wish.evaluation) request.words.emplace_back("--no-evaluation");
  for (std::string& option : loss_options(wish.loss, wish.label_weights)) request.words.push_back(std::move(option));
  if (!out.empty()) add("--out", out);
  request.environment = environment_for(python);
  return request;
}

}  // namespace onebatch
