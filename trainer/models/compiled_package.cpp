#include "trainer/models/compiled_package.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/version.hpp"
#include "trainer/images/image_mixing.hpp"
#include "trainer/io/json_reader.hpp"
#include "trainer/models/class_dim.hpp"

#include <c10/util/hash.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>

#include <fstream>
#include <set>
#include <sstream>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t k_most_constants = std::int64_t{1} << 20;
constexpr std::int64_t k_most_size = std::int64_t{1} << 31;
constexpr const char* k_leave_it = ", or leave model.compiled out";

std::string bytes_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream bytes;
  bytes << stream.rdbuf();
  if (!stream) throw UserError(file.string() + " cannot be read");
  return std::move(bytes).str();
}

std::string sha1_of(const fs::path& file) {
  return c10::sha1(bytes_of(file)).str();
}

bool is_deterministic(const Configuration& configuration) {
  return configuration.run.deterministic != Determinism::off;
}

// What makes a package for the run.
std::string command_for(const Configuration& configuration, const CompiledFor& device) {
  std::string command = "onebatch compile " + configuration.model.path;
  const std::string precision = compiled_precision(configuration);
  if (device.is_gpu()) command += " --device " + device.name();
  if (precision != "float32") command += " --precision " + precision;
  if (is_deterministic(configuration)) command += " --deterministic";
  if (has_variants(configuration)) command += " --recompute";
  if (shares_statistics(configuration)) command += " --shared-batch-norm";
  for (const std::string& option : loss_options(configuration.loss, label_weights_of(configuration)))
    command += " " + option;
  return command;
}

// As Linux names what the processor knows.
std::set<std::string> instructions_here() {
  std::ifstream stream("/proc/cpuinfo");
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), std::istream_iterator<std::string>()};
  }
  return {};
}

std::string digest_for(const CompiledRequest& request) {
  return request.program_digest.empty() ? program_digest(request.configuration) : request.program_digest;
}

class Checking {
 public:
  explicit Checking(const CompiledRequest& request)
      : request_(request),
        called_("model.compiled = \"" + request.folder.string() + "\""),
        text_(text_of(request.folder / "compiled.json")),
        json_(JsonReader::parse(text_, called_ + ": compiled.json")) {}

  CompiledPackage run() const {
    check_run();
    const JsonReader document(json_, called_ + ": compiled.json");
    if (document.field("format").integer(0, INT32_MAX) != k_compiled_format)
      refuse("is of another version of onebatch");
    check_torch(document.field("torch").text());
    check_machine(document.field("machine"));
    check_precision(document.field("precision").text());
    if (is_deterministic(request_.configuration) && !document.field("deterministic").boolean())
      refuse("may add in another order each time, and run.deterministic wants the same bits");
    const bool shares = document.field("shared_batch_norm").boolean();
    if (shares != shares_statistics(request_.configuration))
      refuse(fmt::format("was made for batch_norm.mode = {}, and this run's is another",
                         shares ? "\"sync\" or \"exact\"" : "\"local\""));
    check_loss(document.field("loss"));
    const JsonReader training = document.field("training");
    const fs::path package = file_of(training, "training.pt2");
    const bool in_variants = has_variants(request_.configuration);
    if (in_variants && !document.has("lean"))
      refuse("keeps all activations, and memory.recompute = \"auto\" is to compute them again where they do not fit");
    const fs::path lean = in_variants ? file_of(document.field("lean"), "lean.pt2") : fs::path();
    if (digest_for(request_) != document.field("program").field("sha1").text())
      refuse("was made of another program than model.path = \"" + request_.configuration.model.path + "\"");
    CompiledPackage found = read(training, package);
    found.lean = lean;
    if (validates(request_.configuration) && document.has("evaluation"))
      take_evaluation(document.field("evaluation"), found);
    found.shares_statistics = shares;
    found.program_recomputes = request_.configuration.batch_norm.mode == BatchNormMode::exact;
    return found;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw UserError(called_ + " " + why + ": make it anew by " + command_for(request_.configuration, request_.device) +
                    k_leave_it);
  }

  // Code, as it was compiled.
  fs::path file_of(const JsonReader& described, const char* name) const {
    const fs::path file = request_.folder / name;
    if (!fs::is_regular_file(file)) refuse(std::string("has no ") + name);
    if (sha1_of(file) != described.field("sha1").text())
      refuse(std::string("is damaged: ") + name + " is not what was compiled");
    return file;
  }

  // What no package is made for.
  void check_run() const {
    if (const std::string why = why_not_compiled(request_.configuration); !why.empty())
      throw UserError(called_ + " " + why + k_leave_it);
  }

  std::string text_of(const fs::path& file) const {
    if (!fs::is_regular_file(file)) refuse("is no folder of a compiled program, which has a file compiled.json");
    return bytes_of(file);
  }

  void check_torch(const std::string& version) const {
    if (version != request_.torch_version)
      refuse(fmt::format("was made by PyTorch {}, and this is LibTorch {}", version, request_.torch_version));
  }

  void check_machine(const JsonReader& machine) const {
    utsname here{};
    uname(&here);
    const std::string architecture = machine.field("architecture").text();
    if (architecture != here.machine)
      refuse(fmt::format("was made on another machine, of {}, and this is {}", architecture, here.machine));
    check_device(machine);
    const JsonReader needed = machine.field("instructions");
    const std::set<std::string> known = instructions_here();
    for (std::size_t i = 0; i < needed.array_size("a list of instructions"); ++i) {
      if (const std::string one = needed.item(i).text(); !known.contains(one))
        refuse("was made on another machine, whose processor knows " + one + ", and this one's does not");
    }
  }

  void check_device(const JsonReader& machine) const {
    const bool for_gpu = machine.field("device").text() == "cuda";
    if (for_gpu != request_.device.is_gpu()) refuse(for_gpu ? "was made for a GPU" : "was made for a CPU");
    if (!for_gpu) return;
    const std::string capability = machine.field("capability").text();
    if (capability != request_.device.capability)
      refuse(fmt::format("was made for a GPU of compute capability {}, and this one's is {}", capability,
                         request_.device.capability));
  }

  void check_precision(const std::string& precision) const {
    const std::string wanted = compiled_precision(request_.configuration);
    if (precision != wanted)
      refuse(fmt::format("was made for precision.compute = \"{}\", and this run's is \"{}\"", precision, wanted));
  }

  void check_loss(const JsonReader& loss) const {
    const LossConfiguration& wanted = request_.configuration.loss;
    const std::string kind = loss.field("kind").text();
    if (kind != wanted.kind)
      refuse(fmt::format("was made for loss.kind = \"{}\", and this run's is \"{}\"", kind, wanted.kind));
    if (kind != "cross_entropy") return;
    const std::int64_t ignored = loss.field("ignore_index").integer(INT64_MIN, INT64_MAX);
    if (ignored != wanted.ignore_index)
      refuse(fmt::format("was made for loss.ignore_index = {}, and this run's is {}", ignored, wanted.ignore_index));
    const double smoothing = loss.field("label_smoothing").number_at_least(0.0);
    if (smoothing != wanted.label_smoothing)
      refuse(fmt::format("was made for loss.label_smoothing = {}, and this run's is {}", smoothing,
                         wanted.label_smoothing));
    check_classes(loss, wanted);
  }

  // Where the run leaves it to the shapes, they tell.
  void check_classes(const JsonReader& loss, const LossConfiguration& wanted) const {
    const std::string dim = loss.field("class_dim").text();
    if (k_class_dim(wanted) != "auto" && dim != k_class_dim(wanted))
      refuse(fmt::format("was made for loss.class_dim = \"{}\", and this run's is \"{}\"", dim, k_class_dim(wanted)));
    const JsonReader weights = loss.field("class_weights");
    std::vector<double> of_classes;
    for (std::size_t i = 0; i < weights.array_size("a list of weights"); ++i)
      of_classes.push_back(weights.item(i).number_at_least(0.0));
    if (of_classes != wanted.class_weights)
      refuse(fmt::format("was made for loss.class_weights = [{}], and this run's are [{}]", fmt::join(of_classes, ", "),
                         fmt::join(wanted.class_weights, ", ")));
    const std::string of_labels = loss.field("label_weights").text();
    const std::string due = label_weights_of(request_.configuration);
    if (of_labels != due)
      refuse(
          fmt::format("was made for labels whose weights are {}, and this run's are {} (data.weights, "
                      "data.on_broken, data.augment)",
                      of_labels, due));
  }

  CompiledPackage read(const JsonReader& training, const fs::path& package) const {
    CompiledPackage found;
    found.training = package;
    found.class_weights = request_.configuration.loss.class_weights;
    found.takes = signature_of(training);
    found.trained = names_in(training.field("gradients"));
    found.changes = names_in(training.field("changes"));
    if (found.trained.empty()) refuse("names no parameter that is trained");
    const JsonReader overwritten = training.field("overwritten");
    for (std::size_t i = 0; i < overwritten.array_size("a list of places"); ++i)
      found.overwritten.push_back(static_cast<std::size_t>(
          overwritten.item(i).integer(0, static_cast<std::int64_t>(found.trained.size()) - 1)));
    if (found.takes.inputs.size() <= CompiledPackage::k_before_sums + found.trained.size())
      refuse("names more parameters than it has inputs");
    const JsonReader constants = training.field("constants");
    for (const auto& [name, place] : constants.json().items())
      found.constants[name] = static_cast<std::size_t>(constants.field(name.c_str()).integer(0, k_most_constants));
    return found;
  }

  static std::vector<std::string> names_in(const JsonReader& list) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < list.array_size("a list of names"); ++i) names.push_back(list.item(i).text());
    return names;
  }

  void take_evaluation(const JsonReader& evaluation, CompiledPackage& found) const {
    if (evaluation.has("why_not")) {
      found.why_no_evaluation = evaluation.field("why_not").text();
      return;
    }
    found.evaluation = file_of(evaluation, "evaluation.pt2");
    found.evaluation_takes = signature_of(evaluation);
  }

  static CompiledSignature signature_of(const JsonReader& function) {
    CompiledSignature found;
    const JsonReader inputs = function.field("inputs");
    const JsonReader ranges = function.field("ranges");
    for (const auto& [symbol, range] : ranges.json().items()) {
      const JsonReader bounds = ranges.field(symbol.c_str());
      found.ranges[symbol] = {bounds.item(0).integer(0, k_most_size), bounds.item(1).integer(0, k_most_size)};
    }
    for (std::size_t i = 0; i < inputs.array_size("a list of inputs"); ++i) {
      CompiledInput input{inputs.item(i).field("type").text(), {}};
      const JsonReader sizes = inputs.item(i).field("sizes");
      for (std::size_t k = 0; k < sizes.array_size("a list of sizes"); ++k) {
        const JsonReader size = sizes.item(k);
        const bool varies = size.json().is_string();
        input.sizes.push_back({varies ? 0 : size.integer(0, k_most_size), varies ? size.text() : ""});
        if (varies && !found.ranges.contains(input.sizes.back().symbol)) size.fail("has no range");
      }
      found.inputs.push_back(std::move(input));
    }
    return found;
  }

  const CompiledRequest& request_;
  std::string called_;
  std::string text_;
  nlohmann::json json_;
};

}  // namespace

bool shares_statistics(const Configuration& configuration) {
  return configuration.batch_norm.mode != BatchNormMode::local;
}

bool has_variants(const Configuration& configuration) {
  return configuration.memory.recompute == Recompute::automatic && !shares_statistics(configuration);
}

bool validates(const Configuration& configuration) {
  return configuration.data.validation || configuration.data.sampling.validation_fraction > 0.0;
}

std::string why_not_compiled(const Configuration& configuration) {
  const PrecisionConfiguration& precision = configuration.precision;
  const LossConfiguration& loss = configuration.loss;
  const bool by_autocast = (precision.compute == Precision::bfloat16 || precision.compute == Precision::float16) &&
                           precision.parameters == Precision::float32;
  const bool plain = precision.compute == precision.parameters &&
                     (precision.compute == Precision::float32 || precision.compute == Precision::float64);
  if (!plain && !by_autocast)
    return "computes in float32, float64, and in 16 bits with float32 parameters alone so far: write "
           "precision.parameters = \"float32\"";
  if (loss.kind != "cross_entropy" && loss.kind != "mse" && loss.kind != "model")
    return "has no loss.kind = \"" + loss.kind +
           "\" so far: export the program with its loss, and write loss.kind = \"model\"";
  if (loss.kind == "mse" && label_weights_of(configuration) != "none")
    return "takes no data.weights of loss.kind = \"mse\" so far: export the program with its loss, and write loss.kind "
           "= \"model\"";
  return "";
}

std::string label_weights_of(const Configuration& configuration) {
  if (is_mixing(configuration.data.augment)) return "mixed";
  const DatasetConfiguration& data = configuration.data.train;
  // What is skipped weighs nothing.
  return data.weights.empty() && data.on_broken == OnBroken::stop ? "none" : "given";
}

std::string compiled_precision(const Configuration& configuration) {
  switch (configuration.precision.compute) {
    case Precision::float64: return "float64";
    case Precision::bfloat16: return "bfloat16";
    case Precision::float16: return "float16";
    default: return "float32";
  }
}

std::string program_digest(const Configuration& configuration) {
  return sha1_of(configuration.model.path);
}

std::string compiled_key(const CompiledRequest& request) {
  utsname here{};
  uname(&here);
  const Configuration& configuration = request.configuration;
  const std::vector<std::string> loss = loss_options(configuration.loss, label_weights_of(configuration));
  const std::string gpu = request.device.is_gpu() ? ", gpu " + request.device.capability : "";
  const std::string text = fmt::format(
      "format {}, onebatch {} {}, torch {}, program {}, {}, {}, cpu {} {}{}{}{}{}{}", k_compiled_format, k_version,
      ONEBATCH_COMPILERS, request.torch_version, digest_for(request), compiled_precision(configuration),
      fmt::join(loss, " "), here.machine, fmt::join(instructions_here(), " "), gpu,
      is_deterministic(configuration) ? ", deterministic" : "", has_variants(configuration) ? ", recompute" : "",
      shares_statistics(configuration) ? ", shared batch norm" : "", validates(configuration) ? ", evaluation" : "");
  return c10::sha1(text).str();
}

CompiledPackage check_compiled(const CompiledRequest& request) {
  return Checking(request).run();
}

}  // namespace onebatch
