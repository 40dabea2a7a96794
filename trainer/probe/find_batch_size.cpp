#include "trainer/probe/find_batch_size.hpp"

#include "trainer/base/error.hpp"
#include "trainer/models/trainable_module.hpp"
#include "trainer/probe/size_probe.hpp"
#include "trainer/replica/replica_state.hpp"

#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>

namespace onebatch {
namespace {

class RandomSamples final : public Dataset {
 public:
  explicit RandomSamples(const BatchSizeRequest& request) : request_(request) {}

  std::int64_t size() const override { return request_.dataset_size; }
  std::vector<std::int64_t> sample_shape() const override { return request_.input_shape; }
  std::int64_t num_classes() const override { return 1; }
  Batch gather(std::span<const std::int64_t> indices, at::ScalarType type) const override {
    const auto draw = [&](std::vector<std::int64_t> shape) {
      shape.insert(shape.begin(), static_cast<std::int64_t>(indices.size()));
      return at::rand(shape, at::TensorOptions().dtype(type));
    };
    return {{draw(request_.input_shape)}, draw(request_.output_shape), {}};
  }

 private:
  const BatchSizeRequest& request_;
};

// Parameters that are trained, as a model; they stay the user's. Its loss is the mean squared error as a user's loop
// has it: outputs and at::mse_loss's result, which holds on to memory of their size, live until the backward is done.
class UsersModel final : public Model {
 public:
  explicit UsersModel(const BatchSizeRequest& request) : request_(request) {}

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs, const ForwardContext& /*context*/) override {
    const at::Tensor& targets = inputs.at(1);
    const at::Tensor outputs = request_.forward(inputs.front());
    return {at::mse_loss(outputs, targets), at::ones({}, targets.options()), outputs};
  }
  std::vector<NamedTensor> parameters() const override {
    auto named = each_once(named_tensors(request_.module.named_parameters()));
    std::erase_if(named, [](const NamedTensor& parameter) { return !parameter.tensor.requires_grad(); });
    return named;
  }
  std::vector<NamedTensor> buffers() const override {
    return each_once(named_tensors(request_.module.named_buffers()));
  }
  void set_phase(Phase phase) override { request_.module.train(phase == Phase::training); }
  void move_to(c10::Device /*device*/, at::ScalarType /*type*/, at::ScalarType /*batch_norm_type*/) override {}
  std::vector<std::string> batch_norm_layers() const override { return {}; }
  std::vector<std::string> running_statistics() const override { return {}; }

 private:
  const BatchSizeRequest& request_;
};

// The user's module on the device while this lives.
class Borrowed {
 public:
  Borrowed(torch::nn::Module& module, c10::Device device) : module_(module) {
    const auto borrow = [&](at::Tensor tensor) {
      const auto is_it = [&](const Saved& one) { return one.tensor.is_same(tensor); };
      if (std::ranges::any_of(saved_, is_it)) return;  // under another name
      saved_.push_back({tensor, tensor.detach(), tensor.grad()});
      if (tensor.device() != device) tensor.set_data(tensor.to(device));
    };
    for (const at::Tensor& parameter : module.parameters()) borrow(parameter);
    for (const at::Tensor& buffer : module.buffers()) borrow(buffer);
    for (const auto& part : module.modules()) training_.push_back(part->is_training());
    module.train();
  }
  ~Borrowed() {
    for (auto& [tensor, data, gradient] : saved_) {
      tensor.mutable_grad() = at::Tensor();
      tensor.set_data(data);
      tensor.mutable_grad() = gradient;
    }
    // A part's children follow it, and train() reaches them too: the last word on each is its own.
    const auto parts = module_.modules();
    for (std::size_t i = 0; i < parts.size(); ++i) parts[i]->train(training_[i]);
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

 private:
  struct Saved {
    at::Tensor tensor, data, gradient;
  };
  torch::nn::Module& module_;
  std::vector<Saved> saved_;
  std::vector<bool> training_;
};

Configuration configuration_of(const BatchSizeRequest& request) {
  Configuration configuration;
  configuration.loss.kind = "model";
  configuration.optimizer.kind = "adam";
  for (const at::Tensor& parameter : request.module.parameters()) {
    if (parameter.scalar_type() == at::kDouble)
      configuration.precision.parameters = configuration.precision.compute = Precision::float64;
  }
  return configuration;
}

void check(const BatchSizeRequest& request) {
  if (request.dataset_size < 1)
    throw UserError(fmt::format("dataset_size = {}: write 1 or more", request.dataset_size));
  if (request.max_batch_size.value_or(1) < 1)
    throw UserError(fmt::format("max_batch_size = {}: write 1 or more", *request.max_batch_size));
  if (request.num_iterations < 1)
    throw UserError(fmt::format("num_iterations = {}: write 1 or more", request.num_iterations));
  const auto parameters = request.module.parameters();
  if (std::none_of(parameters.begin(), parameters.end(), [](const at::Tensor& p) { return p.requires_grad(); }))
    throw UserError("the module has no parameter that is trained: nothing would be kept for a backward pass");
}

}  // namespace

SearchResult search_batch_size(const BatchSizeRequest& request, ComputeDevice& device) {
  check(request);
  const RandomSamples data(request);
  const c10::OptionalDeviceGuard guard(device.device());
  SearchResult found;
  std::string too_large;
  try {
    const Borrowed borrowed(request.module, device.device());
    Replica replica(configuration_of(request), data, device, std::make_unique<UsersModel>(request), nullptr);
    const MicroBatchRunner runner(replica);
    const ReplicaSnapshot before(replica);
    SizeProbe probe(runner, data, request.num_iterations);
    SearchOptions options = probe.search_options();
    options.mode = request.mode;
    options.init_size = request.init_size;
    options.max_size = std::min(request.dataset_size, request.max_batch_size.value_or(request.dataset_size));
    try {
      found = search_largest_micro_batch(options, [&](std::int64_t size) { return probe.run_trial(size); });
    } catch (...) {
      before.restore(replica);
      throw;
    }
    before.restore(replica);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    too_large = "parameters, gradients and Adam's state alone are too large for " + device.name();
  }
  device.empty_cache();
  if (found.largest_micro_batch == 0)
    throw DoesNotFitError(too_large.empty()
                              ? fmt::format("not even {} sample(s) fit on {}", found.min_micro_batch, device.name())
                              : too_large);
  return found;
}

SearchResult search_batch_size(const BatchSizeRequest& request, c10::Device device) {
  DeviceRequest wanted;
  wanted.choice = device.is_cuda() ? DeviceChoice::cuda : DeviceChoice::cpu;
  if (device.is_cuda() && device.has_index()) {  // as many ranks as there are GPUs up to it: the last has that one
    wanted.rank = device.index();
    wanted.gpus_of_ranks.assign(static_cast<std::size_t>(device.index()) + 1, visible_gpus());
  }
  const c10::OptionalDeviceGuard guard(device);  // the caller's current device is another, perhaps
  const auto bound = bind_device(wanted);
  return search_batch_size(request, *bound);
}

}  // namespace onebatch
