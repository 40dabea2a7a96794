// Modules saved from Python by torch.jit.script or torch.jit.trace, as models.
#include "trainer/error.hpp"
#include "trainer/models/keyed_randomness.hpp"
#include "trainer/models/trainable_module.hpp"

#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

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
  TorchScriptModel(torch::jit::Module module, std::string file, bool freeze_batch_norm)
      : module_(std::move(module)), file_(std::move(file)), freeze_(freeze_batch_norm) {
    keep_operators_visible();
    set_phase(Phase::training);
  }

  at::Tensor forward(const at::Tensor& inputs, const ForwardContext& context) override {
    torch::jit::setGraphExecutorOptimize(false);  // of this thread
    const RandomnessScope scope(context);
    const c10::IValue outputs = module_.forward({inputs});
    if (outputs.isTensor()) return outputs.toTensor();
    throw UserError(file_ + ": the model returns " + outputs.type()->annotation_str() +
                    ", not a tensor: wrap it in a module whose forward returns the outputs alone");
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

  void move_to(c10::Device device, at::ScalarType type) override {
    const auto move = [&](const at::Tensor& tensor) {
      tensor.unsafeGetTensorImpl()->set_allow_tensor_metadata_change(true);
      at::Tensor(tensor).set_data(tensor.to(device, tensor.is_floating_point() ? type : tensor.scalar_type()));
    };
    for (const at::Tensor& parameter : module_.parameters()) move(parameter);
    for (const at::Tensor& buffer : module_.buffers()) move(buffer);
  }

  std::vector<std::string> batch_norm_layers() const override {
    std::vector<std::string> names;
    for (const auto& part : module_.named_modules()) {
      if (!freeze_ && is_batch_norm(part.value)) names.push_back(part.name);
    }
    return names;
  }

 private:
  template <typename List>
  static std::vector<NamedTensor> named(const List& list) {
    std::vector<NamedTensor> tensors;
    for (const auto& item : list) tensors.push_back({item.name, item.value});
    return tensors;
  }

  mutable torch::jit::Module module_;
  std::string file_;
  bool freeze_;
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

std::unique_ptr<Model> load_torchscript(const std::string& file, bool freeze_batch_norm) {
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
  return std::make_unique<TorchScriptModel>(std::move(module), file, freeze_batch_norm);
}

}  // namespace onebatch
