#include "trainer/models/trainable_module.hpp"

#include "trainer/base/error.hpp"
#include "trainer/models/keyed_randomness.hpp"

#include <fmt/format.h>
#include <torch/nn/modules/batchnorm.h>

namespace onebatch {
namespace {

bool is_batch_norm(const torch::nn::Module& module) {
  return module.as<torch::nn::BatchNorm1d>() != nullptr || module.as<torch::nn::BatchNorm2d>() != nullptr ||
         module.as<torch::nn::BatchNorm3d>() != nullptr;
}

class ModuleModel final : public Model {
 public:
  ModuleModel(std::shared_ptr<TrainableModule> module, bool freeze_batch_norm)
      : module_(std::move(module)), freeze_(freeze_batch_norm) {
    set_phase(Phase::training);
  }

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs, const ForwardContext& context) override {
    if (inputs.size() != 1)
      throw UserError(
          fmt::format("the model takes one input, data.inputs names {}: write one, or model.kind = \"torchscript\" for "
                      "a model of several",
                      inputs.size()));
    const RandomnessScope scope(context);
    return {module_->forward(inputs.front(), context)};
  }
  std::vector<NamedTensor> parameters() const override { return named_tensors(module_->named_parameters()); }
  std::vector<NamedTensor> buffers() const override { return named_tensors(module_->named_buffers()); }

  void set_phase(Phase phase) override {
    module_->train(phase == Phase::training);
    if (!freeze_) return;
    for (const auto& part : module_->modules()) {
      if (is_batch_norm(*part)) part->eval();
    }
  }

  // Module::to would make floats of integer buffers (num_batches_tracked) too.
  void move_to(c10::Device device, at::ScalarType type, at::ScalarType batch_norm_type) override {
    for (const auto& part : module_->modules()) {
      const auto move = [&](at::Tensor& tensor) {
        const at::ScalarType floating = is_batch_norm(*part) ? batch_norm_type : type;
        tensor.set_data(tensor.to(device, tensor.is_floating_point() ? floating : tensor.scalar_type()));
      };
      for (auto& parameter : part->parameters(/*recurse=*/false)) move(parameter);
      for (auto& buffer : part->buffers(/*recurse=*/false)) move(buffer);
    }
  }

  std::vector<std::string> batch_norm_layers() const override {
    std::vector<std::string> names;
    for (const auto& item : module_->named_modules("", false)) {
      if (!freeze_ && is_batch_norm(*item.value())) names.push_back(item.key());
    }
    return names;
  }

  std::vector<std::string> running_statistics() const override {
    std::vector<std::string> names;
    for (const auto& item : module_->named_modules("", false)) {
      if (!is_batch_norm(*item.value())) continue;
      for (const auto& buffer : item.value()->named_buffers(/*recurse=*/false)) {
        if (is_running_statistic(buffer.key())) names.push_back(item.key() + "." + buffer.key());
      }
    }
    return names;
  }

 private:
  std::shared_ptr<TrainableModule> module_;
  bool freeze_;
  std::shared_ptr<void> keyed_operators_ = hold_keyed_operators();
};

}  // namespace

std::unique_ptr<Model> wrap_module(std::shared_ptr<TrainableModule> module, bool freeze_batch_norm) {
  return std::make_unique<ModuleModel>(std::move(module), freeze_batch_norm);
}

}  // namespace onebatch
