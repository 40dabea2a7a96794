#include "trainer/device/failed_backward.hpp"

#include "trainer/device/out_of_memory.hpp"

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

namespace onebatch {
namespace {

// The queue pops the highest sequence number first: this one comes after everything that was left.
class LastNode final : public torch::autograd::Node {
 public:
  LastNode() : Node(/*sequence_nr=*/0) {}

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& /*gradients*/) override { return {}; }
};

}  // namespace

void release_failed_backward(c10::Device device) {
  const at::Tensor gradient = at::zeros({1}, at::TensorOptions().device(device));
  const auto node = std::make_shared<LastNode>();
  node->add_input_metadata(gradient);
  torch::autograd::Engine::get_default_engine().execute({torch::autograd::Edge(node, 0)}, {gradient},
                                                        /*keep_graph=*/false,
                                                        /*create_graph=*/false,
                                                        /*accumulate_grad=*/true);
}

void recover_from_out_of_memory(ComputeDevice& device) {
  release_failed_backward(device.device());
  device.empty_cache();
}

bool fits(ComputeDevice& device, const std::function<void()>& work) {
  try {
    work();
    return true;
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
  }
  recover_from_out_of_memory(device);
  return false;
}

}  // namespace onebatch
