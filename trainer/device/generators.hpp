// The random generators that a forward may draw from where it does not draw by sample: the host's, and its GPU's.
#pragma once

#include "trainer/io/named_tensors.hpp"

namespace onebatch {

/// The state of the host's generator, as bytes.
at::Tensor host_generator_state();

/// "cpu", and "cuda" where `device` is a GPU: states as bytes in host memory.
std::vector<NamedTensor> generator_states(c10::Device device);
/// Puts back what generator_states() of the device has given.
void set_generator_states(c10::Device device, const std::vector<NamedTensor>& states);

/// What forwards on the host draw while one lives is drawn again afterwards.
class SavedGenerators {
 public:
  SavedGenerators() = default;
  ~SavedGenerators() { set_generator_states(c10::kCPU, states_); }
  SavedGenerators(const SavedGenerators&) = delete;
  SavedGenerators& operator=(const SavedGenerators&) = delete;

 private:
  std::vector<NamedTensor> states_ = generator_states(c10::kCPU);
};

}  // namespace onebatch
