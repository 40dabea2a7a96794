// PyTorch's BatchNorm modules refuse one value per channel before any operator sees it. Where micro-batches and ranks
// share statistics, such a value has others beside it, and only their whole may be refused.
#pragma once

namespace torch::jit {
struct Module;
}

namespace onebatch {

/// While one lives, on this thread, BatchNorm modules take one value per channel.
class SingleValues {
 public:
  SingleValues();
  ~SingleValues();
  SingleValues(const SingleValues&) = delete;
  SingleValues& operator=(const SingleValues&) = delete;

 private:
  bool outer_;
};

/// Whether a SingleValues lives on this thread.
bool takes_single_values();

/// Makes a script's own check ask takes_single_values() first. To be called before the module runs.
void ask_before_refusing_single_values(const torch::jit::Module& module);

}  // namespace onebatch
