#include "trainer/models/exported_check.hpp"

#include "trainer/base/error.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/io/durable_file.hpp"
#include "trainer/io/tensor_file.hpp"
#include "trainer/models/exported.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace onebatch {
namespace {

// By name, floating-point ones in float64.
std::vector<at::Tensor> read_inputs(const std::filesystem::path& file) {
  std::vector<NamedTensor> read;
  for (const SafetensorsEntry& entry : read_safetensors_header(file).entries) {
    const auto type = type_of_dtype(entry.dtype);
    if (!type) throw UserError(file.string() + ": the tensor " + entry.name + " is of the type " + entry.dtype);
    read.push_back({entry.name, at::empty(entry.shape, c10::isFloatingType(*type) ? at::kDouble : *type)});
  }
  std::ranges::sort(read, {}, &NamedTensor::name);
  load_tensors(file, read, Extra::refused);
  std::vector<at::Tensor> inputs;
  for (const NamedTensor& one : read) inputs.push_back(one.tensor);
  return inputs;
}

at::Tensor loss_of(const std::vector<at::Tensor>& outputs, CheckedLoss wanted) {
  if (wanted == CheckedLoss::programs_own) return outputs.front();
  at::Tensor loss;
  for (const at::Tensor& output : outputs) {
    if (!output.is_floating_point() || !output.requires_grad()) continue;
    const at::Tensor exact = output.to(at::kDouble);
    const at::Tensor squares = exact.mul(exact).sum();
    loss = loss.defined() ? loss.add(squares) : squares;
  }
  return loss;
}

void take_gradient(const std::vector<at::Tensor>& outputs, const ProgramCheck& check) {
  const at::Tensor loss = loss_of(outputs, check.loss);
  if (!loss.defined() || !loss.requires_grad()) return;
  if (loss.numel() != 1)
    throw UserError(
        fmt::format("{}: --loss takes the first of its two outputs as the loss's sum, and that has {} "
                    "numbers: leave --loss out",
                    check.program, loss.numel()));
  loss.backward();
}

std::vector<NamedTensor> found_by(const Model& model, const std::vector<at::Tensor>& outputs,
                                  const std::string& program) {
  std::vector<NamedTensor> found;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    if (tensor.is_complex())
      throw UserError(program + ": its " + name + " is complex, which no safetensors file holds: return its parts");
    found.push_back({name, tensor.detach().to(c10::Device(c10::kCPU), at::kDouble)});
  };
  for (std::size_t i = 0; i < outputs.size(); ++i) add(fmt::format("output.{}", i), outputs[i]);
  std::set<const c10::TensorImpl*> parameters;
  for (const NamedTensor& one : model.parameters()) parameters.insert(one.tensor.unsafeGetTensorImpl());
  for (const auto& [name, tensor] : model.state_dict()) {
    if (!parameters.contains(tensor.unsafeGetTensorImpl())) {
      add("buffer." + name, tensor);
    } else if (tensor.grad().defined()) {
      add("gradient." + name, tensor.grad());
    }
  }
  return found;
}

}  // namespace

void check_exported(const ProgramCheck& check) {
  const bool own_loss = check.loss == CheckedLoss::programs_own;
  const auto model =
      load_exported({.file = check.program,
                     .returns = own_loss ? ProgramReturns::loss_and_weight : ProgramReturns::every_tensor,
                     .inputs_called = check.inputs.string()});
  DeviceRequest request;
  request.choice = check.device;
  const auto device = bind_device(request);
  model->move_to(device->device(), at::kDouble, at::kDouble);
  model->set_phase(check.phase == CheckedPhase::training ? Phase::training : Phase::evaluation);
  std::vector<at::Tensor> inputs = read_inputs(check.inputs);
  for (at::Tensor& input : inputs) input = input.to(device->device());
  std::vector<std::int64_t> samples;
  if (!inputs.empty() && inputs.front().dim() > 0) samples.resize(static_cast<std::size_t>(inputs.front().size(0)));
  std::iota(samples.begin(), samples.end(), 0);
  const std::vector<at::Tensor> outputs = model->run(inputs, {.samples = samples});
  take_gradient(outputs, check);
  const auto found = found_by(*model, outputs, check.program);
  write_atomically(check.save, [&](const std::filesystem::path& file) { return save_tensors(file, found); });
}

}  // namespace onebatch
