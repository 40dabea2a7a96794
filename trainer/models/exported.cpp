#include "trainer/models/exported.hpp"

#include "trainer/base/error.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/models/compiled_program.hpp"
#include "trainer/models/exported_compiler.hpp"
#include "trainer/models/exported_masks.hpp"
#include "trainer/models/exported_signature.hpp"
#include "trainer/models/keyed_randomness.hpp"
#include "trainer/models/model_kind.hpp"
#include "trainer/models/run_type.hpp"
#include "trainer/models/single_values.hpp"
#include "trainer/settings/key_types.hpp"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

namespace onebatch {
namespace {

constexpr const char* k_how_to_save =
    "torch.export.save(torch.export.export(model.train(), (example,), dynamic_shapes=({0: torch.export.Dim(\"batch\", "
    "min=1, max=4096)},)), \"model.pt2\")";

// The output that is the model's.
const Option<ModelConfiguration, std::string> k_output{"output", ""};
// The folder of its native code, or one of two words.
constexpr const char* k_never = "never";
constexpr const char* k_auto = "auto";
const Option<ModelConfiguration, std::string> k_compiled{"compiled", k_never};

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

class ExportedModel final : public Model, public MayBeCompiled {
 public:
  ExportedModel(ExportedArchive archive, const ExportedRequest& request)
      : file_(request.file),
        digest_(archive.digest),
        inputs_called_(request.inputs_called +
                       (request.returns == ProgramReturns::loss_and_weight ? ", the target last" : "")),
        state_(archive, file_),
        inputs_(JsonReader(archive.program, file_ + ": its program"), file_),
        outputs_(outputs_of(JsonReader(archive.program, file_ + ": its program"))) {
    mode_.program_type = mode_.type = state_.type();
    RunLiterals literals(state_, request.freeze_batch_norm ? BatchNormUse::frozen : BatchNormUse::as_written, mode_);
    const JsonReader graph = JsonReader(archive.program, file_ + ": its program").field("graph_module").field("graph");
    GraphCompiler compiler(state_, literals, ProgramDraws(inputs_.batch_symbols(), mode_), mode_);
    block_ = compiler.compile(graph);
    masks_.emplace(block_, mode_);
    layer_calls_ = compiler.layer_calls();
    batch_norms_ = literals.batch_norms();
    note_batch_norm_tensors();
    note_own_types();
    check_whole();
    if (request.sample_shape) inputs_.check_sample(*request.sample_shape);
    choose_outputs(request);
    set_phase(Phase::training);
  }

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& given, const ForwardContext& context) override {
    inputs_.check(given, inputs_called_);
    if (compiled != nullptr && compiled->evaluates() && evaluates_as_compiled(given)) {
      if (auto outputs = compiled->evaluate(given)) return *std::move(outputs);
    }
    const std::vector<at::Tensor> inputs = inputs_.in_own_types(given);
    const RandomnessScope scope(context);
    const std::vector<c10::IValue> returned = masks_->block_for(inputs).run({inputs.begin(), inputs.end()});
    for (const BufferUpdate& update : outputs_.updates) {
      const at::NoGradGuard no_grad;
      state_.buffer(update.buffer).copy_(returned[update.index].toTensor());
    }
    std::vector<at::Tensor> outputs;
    for (const std::size_t index : returned_) outputs.push_back(returned[index].toTensor());
    return outputs;
  }

  void check_inputs(const std::vector<at::Tensor>& given) const override { inputs_.check(given, inputs_called_); }

  std::vector<NamedTensor> parameters() const override { return state_.parameters(); }
  std::vector<NamedTensor> buffers() const override { return state_.buffers(); }
  std::vector<NamedTensor> state_dict() const override { return state_.state_dict(); }
  std::optional<std::vector<at::Tensor>> literals() const override { return state_.constants(); }
  std::string program_digest() const override { return digest_; }

  std::optional<std::vector<LayerCall>> layer_calls() const override { return layer_calls_; }

  void set_phase(Phase phase) override {
    mode_.phase = phase;
    follow_mode();
  }

  void move_to(c10::Device device, at::ScalarType type, at::ScalarType batch_norm_type) override {
    const auto move = [&](const at::Tensor& tensor, at::ScalarType to) {
      const bool of_batch_norm = batch_norm_tensors_.contains(tensor.unsafeGetTensorImpl());
      tensor.unsafeGetTensorImpl()->set_allow_tensor_metadata_change(true);
      at::Tensor(tensor).set_data(
          tensor.detach().to(device, of_batch_norm && c10::isFloatingType(to) ? batch_norm_type : to));
    };
    const auto own = [&](const at::Tensor& tensor) { return own_types_.at(tensor.unsafeGetTensorImpl()); };
    for (const auto& [name, tensor] : parameters()) move(tensor, c10::isFloatingType(own(tensor)) ? type : own(tensor));
    for (const auto& [name, tensor] : buffers()) move(tensor, run_type(own(tensor), mode_.program_type, type));
    for (const at::Tensor& constant : state_.constants())
      move(constant, run_type(own(constant), mode_.program_type, type));
    mode_.device = device;
    mode_.type = type;
    follow_mode();
  }

  std::vector<std::string> batch_norm_layers() const override {
    std::vector<std::string> names;
    for (const BatchNormCall& call : batch_norms_) {
      if (call.of_the_batch && std::ranges::find(names, call.layer) == names.end()) names.push_back(call.layer);
    }
    return names;
  }

  std::vector<std::string> running_statistics() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : buffers()) {
      if (running_statistics_.contains(tensor.unsafeGetTensorImpl())) names.push_back(name);
    }
    return names;
  }

 private:
  // A BatchNorm of one value per channel is refused, which the program does and its native code does not.
  [[nodiscard]] bool evaluates_as_compiled(const std::vector<at::Tensor>& given) const {
    if (mode_.phase != Phase::evaluation || at::GradMode::is_enabled()) return false;
    const auto is_of_the_batch = [](const BatchNormCall& call) { return call.of_the_batch && call.statistics.empty(); };
    return given.front().size(0) > 1 || std::ranges::none_of(batch_norms_, is_of_the_batch);
  }

  void follow_mode() {
    follow(block_, mode_);
    masks_->follow_mode();
  }

  void note_batch_norm_tensors() {
    std::set<std::string> affine;
    std::set<std::string> statistics;
    for (const BatchNormCall& call : batch_norms_) {
      affine.insert(call.affine.begin(), call.affine.end());
      statistics.insert(call.statistics.begin(), call.statistics.end());
    }
    for (const auto& [name, tensor] : parameters()) {
      if (affine.contains(name)) batch_norm_tensors_.insert(tensor.unsafeGetTensorImpl());
    }
    for (const auto& [name, tensor] : buffers()) {
      if (statistics.contains(name)) running_statistics_.insert(tensor.unsafeGetTensorImpl());
    }
    batch_norm_tensors_.insert(running_statistics_.begin(), running_statistics_.end());
  }

  void note_own_types() {
    for (const auto& group : {parameters(), buffers()}) {
      for (const NamedTensor& one : group) own_types_[one.tensor.unsafeGetTensorImpl()] = one.tensor.scalar_type();
    }
    for (const at::Tensor& one : state_.constants()) own_types_[one.unsafeGetTensorImpl()] = one.scalar_type();
  }

  void check_whole() const {
    for (const BufferUpdate& update : outputs_.updates) {
      if (!state_.buffer(update.buffer).defined())
        throw UserError(file_ + ": gives back the buffer \"" + update.buffer + "\", which it has not");
      if (update.index >= block_.outputs.size()) throw UserError(file_ + ": gives back more than its graph returns");
    }
    for (const ProgramOutput& output : outputs_.outputs) {
      if (output.index >= block_.outputs.size())
        throw UserError(file_ + ": says that it returns more than its graph does");
    }
    if (block_.inputs.size() != inputs_.all().size())
      throw UserError(fmt::format("{}: its graph takes {} tensors of the data, and its signature says {}", file_,
                                  block_.inputs.size(), inputs_.all().size()));
    if (std::ranges::none_of(parameters(), [](const NamedTensor& one) { return one.tensor.requires_grad(); }))
      throw UserError(file_ +
                      ": no parameter of the program requires a gradient: call requires_grad_() on those to "
                      "train before exporting it");
  }

  void choose_outputs(const ExportedRequest& request) {
    if (request.returns == ProgramReturns::one_output) {
      returned_ = {chosen_output(outputs_, request.output, file_)};
      return;
    }
    for (const ProgramOutput& output : outputs_.outputs) {
      if (output.is_tensor) returned_.push_back(output.index);
    }
    if (returned_.empty()) throw UserError(file_ + ": the program returns no tensor");
    if (request.returns == ProgramReturns::every_tensor) return;
    if (!request.output.empty() || returned_.size() != 2)
      throw UserError(
          fmt::format("{}: the program returns {} tensor(s){}: for loss.kind = \"model\" its forward returns "
                      "two, the loss's sum and its weight, and model.output is left out",
                      file_, returned_.size(), request.output.empty() ? "" : ", and model.output names one"));
  }

  std::string file_;
  std::string digest_;
  std::string inputs_called_;
  ExportedState state_;
  ProgramInputs inputs_;
  ProgramOutputs outputs_;
  RunMode mode_;  // that what is compiled looks at
  Block block_;
  std::optional<AttentionMasks> masks_;  // of the block
  std::vector<BatchNormCall> batch_norms_;
  std::vector<LayerCall> layer_calls_;
  std::vector<std::size_t> returned_;  // of the graph's outputs
  std::set<const c10::TensorImpl*> batch_norm_tensors_;
  std::set<const c10::TensorImpl*> running_statistics_;
  std::map<const c10::TensorImpl*, at::ScalarType> own_types_;  // that the program was exported with
  std::shared_ptr<void> keyed_operators_ = hold_keyed_operators();
};

}  // namespace

std::unique_ptr<Model> load_exported(const ExportedRequest& request) {
  const std::string called = request.file_called.empty() ? request.file : request.file_called;
  if (!std::filesystem::is_regular_file(request.file))
    throw UserError(called + " is no file: write the path of a program saved by " + k_how_to_save);
  try {
    return std::make_unique<ExportedModel>(read_exported_archive(request.file), request);
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {
    if (is_out_of_memory(error)) throw;
    throw UserError(called + " cannot be read as a program of torch.export (" + first_line(error) +
                    "): save it in Python by " + k_how_to_save + ", or copy it anew");
  }
}

std::string compiled_folder(const ModelConfiguration& model) {
  const bool names_one = model.kind == "exported" && k_compiled(model) != k_never && k_compiled(model) != k_auto;
  return names_one ? k_compiled(model) : "";
}

bool compiles_by_itself(const ModelConfiguration& model) {
  return model.kind == "exported" && k_compiled(model) == k_auto;
}

void set_compiled_folder(ModelConfiguration& model, const std::string& folder) {
  k_compiled(model) = folder.empty() ? k_never : folder;
}

bool names_output(const ModelConfiguration& model) {
  return !k_output(model).empty();
}

ModelKind exported_kind() {
  ModelKind kind;
  kind.name = "exported";
  kind.shares = {"path"};
  kind.keys = {
      text_key({"output", Changes::result | Changes::probe,
                "exported: of several outputs the one that the loss takes, by its name or its place (`\"0\"`); "
                "`\"\"`: `logits` where there is one, else the first"},
               k_output),
      text_key({"compiled", Changes::result | Changes::probe,
                "exported: a folder that `onebatch compile` has written, native code that then trains and "
                "validates; `\"auto\"`: the run makes one where it can, and takes it where it is faster; `\"never\"`: "
                "none. See [compiled programs](compiled.md)"},
               k_compiled)};
  kind.check = [](const ModelConfiguration& model, const CheckRequest& request) {
    if (model.path.empty())
      request.complain(
          "path", std::string("is needed for model.kind = \"exported\": a file saved in Python by ") + k_how_to_save);
    if (k_compiled(model).empty())
      request.complain("compiled", "is the folder that `onebatch compile` has written, \"auto\" or \"never\"");
    if (!compiled_folder(model).empty() && names_output(model))
      request.complain("output", "does not go with model.compiled so far: leave one of them out");
  };
  kind.make = [](const ModelRequest& request) {
    const bool all = request.returned == Returned::everything && k_output(request.configuration).empty();
    const auto trained = request.returns_loss ? ProgramReturns::loss_and_weight : ProgramReturns::one_output;
    return load_exported({.file = request.configuration.path,
                          .output = k_output(request.configuration),
                          .sample_shape = request.sample_shape,
                          .freeze_batch_norm = request.freeze_batch_norm,
                          .returns = all ? ProgramReturns::every_tensor : trained,
                          .file_called = "model.path = \"" + request.configuration.path + "\""});
  };
  return kind;
}

}  // namespace onebatch
