#include "trainer/models/trainable_module.hpp"

#include "trainer/base/error.hpp"
#include "trainer/models/keyed_randomness.hpp"
#include "trainer/models/module_kind.hpp"

#include <fmt/format.h>
#include <torch/nn/modules/batchnorm.h>

#include <algorithm>
#include <set>

namespace onebatch {
namespace {

bool is_batch_norm(const torch::nn::Module& module) {
  return module.as<torch::nn::BatchNorm1d>() != nullptr || module.as<torch::nn::BatchNorm2d>() != nullptr ||
         module.as<torch::nn::BatchNorm3d>() != nullptr;
}

using Forward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&, const ForwardContext&)>;

class ModuleModel final : public Model {
 public:
  ModuleModel(std::shared_ptr<torch::nn::Module> module, Forward forward, const ModelRequest& request)
      : module_(std::move(module)), forward_(std::move(forward)), freeze_(request.freeze_batch_norm) {
    set_phase(Phase::training);
  }

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs, const ForwardContext& context) override {
    const RandomnessScope scope(context);
    return forward_(inputs, context);
  }
  std::vector<NamedTensor> parameters() const override { return each_once(named_tensors(module_->named_parameters())); }
  std::vector<NamedTensor> buffers() const override { return each_once(named_tensors(module_->named_buffers())); }
  std::vector<NamedTensor> state_dict() const override {
    std::vector<NamedTensor> all = named_tensors(module_->named_parameters());
    for (NamedTensor& buffer : named_tensors(module_->named_buffers())) all.push_back(std::move(buffer));
    return all;
  }

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
    if (freeze_) return names;
    for (const auto& item : batch_norms()) names.push_back(item.key());
    return names;
  }

  std::vector<std::string> running_statistics() const override {
    std::vector<std::string> names;
    for (const auto& item : batch_norms()) {
      for (const auto& buffer : item.value()->named_buffers(/*recurse=*/false)) {
        if (is_running_statistic(buffer.key())) names.push_back(within(item.key(), buffer.key()));
      }
    }
    return names;
  }

 private:
  using Named = torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>::Item;

  static std::string within(const std::string& layer, const std::string& name) {
    return layer.empty() ? name : layer + "." + name;
  }

  // Each once, by its first name; the model itself may be one.
  std::vector<Named> batch_norms() const {
    std::vector<Named> found;
    std::set<const torch::nn::Module*> seen;
    for (const auto& item : module_->named_modules()) {
      if (is_batch_norm(*item.value()) && seen.insert(item.value().get()).second) found.push_back(item);
    }
    return found;
  }

  std::shared_ptr<torch::nn::Module> module_;
  Forward forward_;
  bool freeze_;
  std::shared_ptr<void> keyed_operators_ = hold_keyed_operators();
};

Forward forward_of(std::shared_ptr<TrainableModule> module) {
  return [module = std::move(module)](const std::vector<at::Tensor>& inputs, const ForwardContext& context) {
    if (inputs.size() != 1)
      throw UserError(
          fmt::format("the model takes one input, data.inputs names {}: write one, or model.kind = \"torchscript\" for "
                      "a model of several",
                      inputs.size()));
    return std::vector<at::Tensor>{module->forward(inputs.front(), context)};
  };
}

enum class Returns { outputs, loss };

Forward forward_of(CallableModule made, Returns wanted, std::string named) {
  return [made = std::move(made), wanted, named = std::move(named)](const std::vector<at::Tensor>& inputs,
                                                                    const ForwardContext&) {
    std::optional<std::vector<at::Tensor>> returned = made.forward(inputs);
    if (!returned)
      throw UserError(
          fmt::format("{}: the model's forward is given {} tensor(s), and takes another number: name what "
                      "it takes in data.inputs, in its order{}",
                      named, inputs.size(), wanted == Returns::loss ? " (the target comes last)" : ""));
    const std::size_t expected = wanted == Returns::loss ? 2 : 1;
    if (returned->size() != expected)
      throw UserError(fmt::format("{}: the model's forward returns {} tensors, not {}", named, returned->size(),
                                  wanted == Returns::loss
                                      ? "two: for loss.kind = \"model\" the loss's sum and its weight"
                                      : "one: return the outputs alone"));
    return *std::move(returned);
  };
}

void check_trainable(const CallableModule& made, const std::string& named) {
  if (made.module == nullptr) throw UserError(named + ": its factory returns no module, but a null pointer");
  for (const auto& tensors : {made.module->named_parameters(), made.module->named_buffers()}) {
    for (const auto& item : tensors) {
      if (!item.value().device().is_cpu())
        throw UserError(named + ": " + item.key() + " is on " + item.value().device().str() +
                        ": make the module on the CPU, onebatch moves it to each rank's device");
    }
  }
  if (std::ranges::none_of(made.module->parameters(), [](const at::Tensor& one) { return one.requires_grad(); }))
    throw UserError(named +
                    ": no parameter of the module requires a gradient: register those to train by register_module or "
                    "register_parameter");
}

}  // namespace

std::vector<NamedTensor> each_once(std::vector<NamedTensor> tensors) {
  std::set<const c10::TensorImpl*> seen;
  std::erase_if(tensors, [&](const NamedTensor& one) { return !seen.insert(one.tensor.unsafeGetTensorImpl()).second; });
  return tensors;
}

std::unique_ptr<Model> wrap_module(std::shared_ptr<TrainableModule> module, const ModelRequest& request) {
  Forward forward = forward_of(module);
  return std::make_unique<ModuleModel>(std::move(module), std::move(forward), request);
}

std::unique_ptr<Model> wrap_module(CallableModule made, const ModelRequest& request, const std::string& named) {
  check_trainable(made, named);
  auto module = made.module;
  return std::make_unique<ModuleModel>(
      std::move(module), forward_of(std::move(made), request.returns_loss ? Returns::loss : Returns::outputs, named),
      request);
}

ModelKind module_kind(std::string name, std::function<CallableModule(const ModelRequest&)> make) {
  ModelKind kind;
  kind.make = [make = std::move(make), named = "model.kind = \"" + name + "\""](const ModelRequest& request) {
    return wrap_module(make(request), request, named);
  };
  kind.name = std::move(name);
  return kind;
}

}  // namespace onebatch
