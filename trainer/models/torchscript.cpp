// Modules saved from Python by torch.jit.script or torch.jit.trace, as models.
#include "trainer/error.hpp"
#include "trainer/models/keyed_randomness.hpp"
#include "trainer/models/trainable_module.hpp"

#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include <algorithm>
#include <filesystem>

namespace onebatch {
namespace {

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

bool is_batch_norm(const torch::jit::Module& module) {
  const auto name = module.type()->name();
  return name && name->name().find("BatchNorm") != std::string::npos;
}

// TorchScript's profiling executor differentiates and rewrites dropout and batch_norm itself, where no operator's kernel sees them.
void keep_operators_visible() {
  torch::jit::getProfilingMode() = false;
  torch::jit::setGraphExecutorOptimize(false);
}

class TorchScriptModel final : public Model {
 public:
  TorchScriptModel(torch::jit::Module module, const TorchScriptRequest& request)
      : module_(std::move(module)), file_(request.file), freeze_(request.freeze_batch_norm), returns_loss_(request.returns_loss) {
    keep_operators_visible();
    set_phase(Phase::training);
  }

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs, const ForwardContext& context) override {
    torch::jit::setGraphExecutorOptimize(false);  // of this thread
    const RandomnessScope scope(context);
    check_takes(inputs.size());
    const c10::IValue outputs = module_.forward({inputs.begin(), inputs.end()});
    if (outputs.isTensor()) return {outputs.toTensor()};
    if (returns_loss_ && outputs.isTuple() && outputs.toTupleRef().elements().size() == 2) {
      const auto& pair = outputs.toTupleRef().elements();
      if (pair[0].isTensor() && pair[1].isTensor()) return {pair[0].toTensor(), pair[1].toTensor()};
    }
    throw UserError(file_ + ": the model returns " + outputs.type()->annotation_str() + ", not " +
                    (returns_loss_ ? "two tensors: for loss.kind = \"model\" its forward returns the loss's sum and its weight"
                                   : "a tensor: wrap it in a module whose forward returns the outputs alone"));
  }

  std::vector<NamedTensor> parameters() const override { return named(module_.named_parameters()); }
  std::vector<NamedTensor> buffers() const override { return named(module_.named_buffers()); }
  bool has_literals() const override { return true; }

  void set_phase(Phase phase) override {
    module_.train(phase == Phase::training);
    if (!freeze_) return;
    for (auto part : module_.modules()) {
      if (is_batch_norm(part)) part.eval();
    }
  }

  void move_to(c10::Device device, at::ScalarType type, at::ScalarType batch_norm_type) override {
    for (const torch::jit::Module& part : module_.modules()) {
      const auto move = [&](const at::Tensor& tensor) {
        const at::ScalarType floating = is_batch_norm(part) ? batch_norm_type : type;
        tensor.unsafeGetTensorImpl()->set_allow_tensor_metadata_change(true);
        at::Tensor(tensor).set_data(tensor.to(device, tensor.is_floating_point() ? floating : tensor.scalar_type()));
      };
      for (const at::Tensor& parameter : part.parameters(/*recurse=*/false)) move(parameter);
      for (const at::Tensor& buffer : part.buffers(/*recurse=*/false)) move(buffer);
    }
  }

  std::vector<std::string> batch_norm_layers() const override {
    std::vector<std::string> names;
    for (const auto& part : module_.named_modules()) {
      if (!freeze_ && is_batch_norm(part.value)) names.push_back(part.name);
    }
    return names;
  }

  std::vector<std::string> running_statistics() const override {
    std::vector<std::string> names;
    for (const auto& part : module_.named_modules()) {
      if (!is_batch_norm(part.value)) continue;
      for (const auto& buffer : part.value.named_buffers(/*recurse=*/false)) {
        if (is_running_statistic(buffer.name)) names.push_back(part.name.empty() ? buffer.name : part.name + "." + buffer.name);
      }
    }
    return names;
  }

 private:
  void check_takes(std::size_t given) const {
    const auto& schema = module_.get_method("forward").function().getSchema();
    const std::size_t takes = schema.arguments().size() - 1;  // but for itself
    const auto needs = static_cast<std::size_t>(std::count_if(schema.arguments().begin() + 1, schema.arguments().end(),
                                                              [](const c10::Argument& argument) { return !argument.default_value(); }));
    if (given >= needs && given <= takes) return;
    throw UserError(file_ + ": the model's forward takes " + std::to_string(takes) + " tensor(s), but is given " + std::to_string(given) +
                    (returns_loss_ ? " (data.inputs, and the target last)" : " (data.inputs)") +
                    ": name the tensors that it takes in data.inputs, in its order");
  }

  template <typename List>
  static std::vector<NamedTensor> named(const List& list) {
    std::vector<NamedTensor> tensors;
    for (const auto& item : list) tensors.push_back({item.name, item.value});
    return tensors;
  }

  mutable torch::jit::Module module_;
  std::string file_;
  bool freeze_;
  bool returns_loss_;
  std::shared_ptr<void> keyed_operators_ = hold_keyed_operators();
};

torch::jit::Module load(const std::string& file) {
  if (!std::filesystem::is_regular_file(file))
    throw UserError("model.path = \"" + file + "\" is no file: write the path of a module saved by torch.jit.script(model).save(path)");
  try {
    return torch::jit::load(file, c10::Device(c10::kCPU));
  } catch (const c10::Error& error) {
    throw UserError("model.path = \"" + file + "\" cannot be read as TorchScript (" + first_line(error) +
                    "): save it in Python by torch.jit.script(model).save(path)");
  }
}

}  // namespace

std::unique_ptr<Model> load_torchscript(const TorchScriptRequest& request) {
  const std::string& file = request.file;
  torch::jit::Module module = load(file);
  if (!module.find_method("forward")) throw UserError(file + ": the module has no forward method");
  if (!module.hasattr("training") || module.parameters().size() == 0) {
    throw UserError(
        file +
        ": the module was saved for inference only (torch.jit.freeze or optimize_for_inference made its parameters constants): save "
        "torch.jit.script(model) of the model in training");
  }
  bool trains = false;
  for (const at::Tensor& parameter : module.parameters()) trains = trains || parameter.requires_grad();
  if (!trains)
    throw UserError(file + ": no parameter of the module requires a gradient: call requires_grad_() on those to train before saving it");
  return std::make_unique<TorchScriptModel>(std::move(module), request);
}

}  // namespace onebatch
