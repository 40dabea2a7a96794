#include "trainer/models/compiled_program.hpp"

#include "trainer/base/error.hpp"
#include "trainer/device/matrix_products.hpp"
#include "trainer/device/memory_budget.hpp"
#include "trainer/device/native_failure.hpp"
#include "trainer/device/native_words.hpp"
#include "trainer/device/out_of_memory.hpp"
#include "trainer/models/compiled_inputs.hpp"
#include "trainer/models/final_sums.hpp"
#include "trainer/models/sample_dropout.hpp"
#include "trainer/models/unpacked_code.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/version.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <unordered_set>

namespace onebatch {
namespace {

using torch::inductor::AOTIModelPackageLoader;

constexpr std::string_view k_of_the_program = "program.";  // what names in the package begin with
constexpr std::string_view k_class_weights = "class_weights";

std::map<std::string, at::Tensor> tensors_of(const Model& model, const CompiledPackage& package) {
  std::map<std::string, at::Tensor> named;
  for (const auto& group : {model.state_dict(), model.buffers(), model.parameters()}) {
    for (const NamedTensor& one : group) named.emplace(one.name, one.tensor);
  }
  const auto literals = model.literals().value_or(std::vector<at::Tensor>());
  for (const auto& [name, place] : package.constants) {
    if (place < literals.size()) named.emplace(name, literals[place]);
  }
  return named;
}

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

bool is_as_large(const CompiledInput& due, const at::Tensor& tensor) {
  std::vector<std::int64_t> sizes;
  for (const CompiledInput::Size& size : due.sizes) sizes.push_back(size.symbol.empty() ? size.fixed : -1);
  return tensor.sizes() == at::IntArrayRef(sizes) && c10::getDtypeNames(tensor.scalar_type()).first == due.type;
}

// Of one variant, which reads the model's own tensors where they lie.
class Code {
 public:
  Code(std::filesystem::path file, c10::Device device) : file_(std::move(file)), device_(device), loader_(loaded(1)) {}

  [[nodiscard]] std::vector<std::string> names() { return loader_->get_constant_fqns(); }

  // Which of several is free the package asks the device, and where one is not done leaves an error behind for whoever
  // looks for the last one: none is under way.
  void let_run_at_once(std::size_t number) {
    if (number > at_once_) {
      loader_ = loaded(std::bit_ceil(number));
      at_once_ = std::bit_ceil(number);
      places_.assign(read_.size(), nullptr);
      point_at_tensors();
    }
    if (device_.is_cuda() && at_once_ > 1) c10::impl::VirtualGuardImpl(device_.type()).getStream(device_).synchronize();
  }

  void read(std::map<std::string, at::Tensor> tensors) {
    read_ = std::move(tensors);
    point_at_tensors();
  }

  // A tensor may have been given other memory since.
  void follow_tensors() {
    std::size_t place = 0;
    for (const auto& [name, tensor] : read_) {
      if (places_[place++] != tensor.const_data_ptr()) return point_at_tensors();
    }
  }

  // A package says of whatever its code throws that the call has failed, and no more.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) {
    const at::NoGradGuard no_grad;
    const c10::impl::ExcludeDispatchKeyGuard as_compiled(c10::autocast_dispatch_keyset);  // its casts are in it
    const bool on_gpu = inputs.front().is_cuda();
    const std::int64_t refusals = on_gpu ? num_cuda_refusals() : MemoryBudget::num_refusals();
    NativeWords words;
    const NativeFailure failure;
    const auto is_refused = [&] { return (on_gpu ? num_cuda_refusals() : MemoryBudget::num_refusals()) != refusals; };
    try {
      std::vector<at::Tensor> made = loader_->run(inputs);
      if (!failure.was_met()) return made;
    } catch (const std::exception&) {
      if (!failure.was_met() && !is_refused()) throw;
    }
    words.drop();
    if (!is_refused()) failure.rethrow();
    throw c10::OutOfMemoryError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                                on_gpu ? "CUDA out of memory in compiled code" : MemoryBudget::last_refusal());
  }

 private:
  // As one thread on one stream a GPU's code waits for nothing and may be recorded in a CUDA graph.
  [[nodiscard]] std::unique_ptr<AOTIModelPackageLoader> loaded(std::size_t at_once) const {
    const auto before = folders_of_code();
    auto loader = std::make_unique<AOTIModelPackageLoader>(file_.string(), "model", device_.is_cuda() && at_once == 1,
                                                           at_once, device_.index());
    if (device_.is_cpu()) remove_new_folders_of_code(before);  // a GPU's kernels are read when they are first wanted
    return loader;
  }

  // By their order when it was compiled.
  void point_at_tensors() {
    std::unordered_map<std::string, at::Tensor> live;
    std::vector<const void*> places;
    for (const auto& [name, tensor] : read_) {
      if (!tensor.is_contiguous() || !is_aligned(tensor))
        throw UserError(file_.string() + " cannot read \"" + name +
                        "\", which does not lie in the ordinary order: leave model.compiled out");
      // The package keeps what it is told of to the end: of the numbers it is to be no owner.
      live.emplace(name, at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.options().requires_grad(false)));
      places.push_back(tensor.const_data_ptr());
    }
#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR > 207
    loader_->load_constants(live, /*use_inactive=*/false, /*check_full_update=*/true, /*user_managed=*/true);
    places_ = std::move(places);
#else
    throw std::logic_error(
        "a compiled program was loaded with LibTorch " TORCH_VERSION);  // why_not_here() has refused it
#endif
  }

  std::filesystem::path file_;
  c10::Device device_;
  std::size_t at_once_ = 1;
  std::unique_ptr<AOTIModelPackageLoader> loader_;
  std::map<std::string, at::Tensor> read_;  // by the code's names, the model's own
  std::vector<const void*> places_;
};

}  // namespace

struct CompiledProgram::Parts {
  Parts(const CompiledPackage& package, const Model& model, c10::Device on)
      : described(package), device(on), keeping(package.training, on) {
    const auto named = tensors_of(model, package);
    const auto find = [&](const std::string& name) {
      const auto found = named.find(name);
      if (found == named.end())
        throw UserError(package.training.string() + " reads \"" + name +
                        "\", which the model has not: compile it anew");
      return found->second;
    };
    const auto let_read = [&](Code& code) {
      std::map<std::string, at::Tensor> read;
      for (const std::string& name : code.names()) {
        const bool is_the_programs = name.starts_with(k_of_the_program);
        if (!is_the_programs && name != k_class_weights)
          throw UserError(package.training.string() + " reads \"" + name +
                          "\", which a run has not: leave model.compiled out");
        read.emplace(name, is_the_programs ? find(name.substr(k_of_the_program.size())) : class_weights(model));
      }
      code.read(std::move(read));
    };
    let_read(keeping);
    if (!package.lean.empty()) let_read(recomputing.emplace(package.lean, on));
    try {  // which a run can do without
      if (!package.evaluation.empty()) let_read(evaluating.emplace(package.evaluation, on));
    } catch (const std::exception& error) {
      evaluating.reset();
      described.why_no_evaluation = first_line(error);
    }
    for (const std::string& name : package.trained) {
      const CompiledInput& sum = package.takes.inputs[CompiledPackage::k_before_sums + trained.size()];
      trained.push_back(find(name));
      if (!is_as_large(sum, trained.back()))
        throw UserError(package.training.string() + " has a sum of another size than the parameter \"" + name +
                        "\": compile the program anew");
    }
    for (const std::string& name : package.changes) changes.push_back({name, find(name)});
  }

  [[nodiscard]] at::Tensor class_weights(const Model& model) const {
    const std::vector<NamedTensor> all = model.parameters();
    const auto like = std::ranges::find_if(all, [](const NamedTensor& one) { return one.tensor.is_floating_point(); });
    return at::tensor(described.class_weights, at::kDouble).to(like->tensor.options().requires_grad(false));
  }

  CompiledPackage described;
  c10::Device device;
  Code keeping;
  std::optional<Code> recomputing;
  std::optional<Code> evaluating;
  bool recomputes = false;
  bool always_recomputes = false;
  std::vector<at::Tensor> trained;
  std::vector<NamedTensor> changes;
};

CompiledProgram::CompiledProgram(const CompiledPackage& package, const Model& model, c10::Device device)
    : parts_(std::make_unique<Parts>(package, model, device)) {}

CompiledProgram::~CompiledProgram() = default;

bool CompiledProgram::shares_statistics() const {
  return parts_->described.shares_statistics;
}

void CompiledProgram::let_run_at_once(std::size_t number) {
  parts_->keeping.let_run_at_once(number);  // there is no other, where statistics are shared
}

bool CompiledProgram::may_recompute() const {
  return parts_->recomputing || parts_->described.program_recomputes;
}

bool CompiledProgram::stands_back() const {
  return recomputes() && !parts_->recomputing;
}

bool CompiledProgram::recomputes() const {
  return parts_->recomputes;
}

void CompiledProgram::recompute(bool wished) {
  TORCH_INTERNAL_ASSERT(!wished || may_recompute());
  parts_->recomputes = wished || parts_->always_recomputes;
}

void CompiledProgram::never_recompute() {
  parts_->recomputing.reset();
  parts_->described.program_recomputes = false;
}

void CompiledProgram::always_recompute() {
  parts_->always_recomputes = true;
  recompute(true);
}

const std::vector<at::Tensor>& CompiledProgram::trained() const {
  return parts_->trained;
}

const std::vector<std::size_t>& CompiledProgram::overwritten() const {
  return parts_->described.overwritten;
}

const std::vector<NamedTensor>& CompiledProgram::changes() const {
  return parts_->changes;
}

CompiledProgram::Made CompiledProgram::run(const Given& given) const {
  const at::Tensor& key = key_on(parts_->device, given.context);
  std::vector<at::Tensor> inputs = {key.narrow(0, 1, key.size(0) - 1).clone(), key[0].clone(), given.factor};
  inputs.insert(inputs.end(), given.sums.begin(), given.sums.end());
  for (const at::Tensor& input : given.inputs) inputs.push_back(as_read(input));
  // The sums lie as their parameters do, and were checked with them.
  const std::size_t sums = CompiledPackage::k_before_sums;
  if (const std::string why = misfit(parts_->described.takes, inputs, {sums, sums + given.sums.size()}); !why.empty())
    throw UserError(parts_->described.training.string() + ": " + why);
  TORCH_INTERNAL_ASSERT(!stands_back());
  Code& code = parts_->recomputes ? *parts_->recomputing : parts_->keeping;
  code.follow_tensors();
  std::vector<bool> told(given.sums.size());
  const auto tell = [&](std::size_t place) {
    if (!told.at(place)) given.told(place);
    told[place] = true;
  };
  const FinalSums early(tell);
  std::unordered_set<const void*> unwritten;
  for (const std::size_t place : given.unwritten) unwritten.insert(given.sums.at(place).const_data_ptr());
  const UnwrittenSums first(std::move(unwritten));
  std::vector<at::Tensor> made;  // the loss with the factor; without it; its weight, where told
  try {
    made = code.run(inputs);
  } catch (...) {
    early.rethrow();
    throw;
  }
  if (!first.all_are_written()) throw std::logic_error("native code has left a sum as it was");
  early.rethrow();
  for (std::size_t place = 0; place < told.size(); ++place) tell(place);
  return {made[1], made.size() > 2 ? made[2] : at::Tensor()};
}

bool CompiledProgram::evaluates() const {
  return parts_->evaluating.has_value();
}

const std::string& CompiledProgram::why_it_does_not_evaluate() const {
  return parts_->described.why_no_evaluation;
}

std::optional<std::vector<at::Tensor>> CompiledProgram::evaluate(const std::vector<at::Tensor>& inputs) const {
  std::vector<at::Tensor> given;
  for (const at::Tensor& input : inputs) given.push_back(as_read(input));
  if (!misfit(parts_->described.evaluation_takes, given).empty()) return std::nullopt;
  parts_->evaluating->follow_tensors();
  return parts_->evaluating->run(given);
}

void CompiledProgram::never_evaluate() {
  parts_->evaluating.reset();
}

MayBeCompiled* compiled_of(Model& model) {
  auto* const owner = dynamic_cast<MayBeCompiled*>(&model);
  return owner != nullptr && owner->compiled != nullptr ? owner : nullptr;
}

bool runs_native_code(Model& model) {
  const MayBeCompiled* const owner = compiled_of(model);
  return owner != nullptr && !owner->compiled->stands_back();
}

void train_compiled(Model& model, std::unique_ptr<CompiledProgram> compiled) {
  auto* const owner = dynamic_cast<MayBeCompiled*>(&model);
  if (owner == nullptr) throw UserError("model.compiled: this model is not an exported program: leave it out");
  owner->compiled = std::move(compiled);
}

}  // namespace onebatch
