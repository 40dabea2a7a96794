// Preloaded beside the stand-in: LibTorch takes its own kernels for convolutions and attention, since the stand-in
// answers nothing of cuDNN's.
#include <ATen/Context.h>

namespace {
const bool switched_off = [] {
  at::globalContext().setUserEnabledCuDNN(false);
  at::globalContext().setSDPUseCuDNN(false);
  return true;
}();
}  // namespace
