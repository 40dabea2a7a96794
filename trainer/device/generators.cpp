#include "trainer/device/generators.hpp"

#include <ATen/Context.h>

#include <mutex>

namespace onebatch {
namespace {

const at::Generator& generator_of(c10::Device device) {
  return at::globalContext().defaultGenerator(device);
}

at::Tensor state_of(at::Generator generator) {
  const std::scoped_lock lock(generator.mutex());
  return generator.get_state();
}

void set_state(at::Generator generator, const at::Tensor& state) {
  const std::scoped_lock lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

at::Tensor host_generator_state() {
  return state_of(generator_of(at::kCPU));
}

std::vector<NamedTensor> generator_states(c10::Device device) {
  std::vector<NamedTensor> states = {{"cpu", host_generator_state()}};
  if (device.is_cuda()) states.push_back({"cuda", state_of(generator_of(device))});
  return states;
}

void set_generator_states(c10::Device device, const std::vector<NamedTensor>& states) {
  set_state(generator_of(at::kCPU), states.at(0).tensor);
  if (device.is_cuda()) set_state(generator_of(device), states.at(1).tensor);
}

}  // namespace onebatch
