#include "trainer/models/run_type.hpp"

namespace onebatch {
namespace {

// LibTorch promotes no type of 8 bits.
bool yields(at::ScalarType own, at::ScalarType other) {
  return c10::elementSize(own) > 1 && c10::elementSize(other) > 1 && c10::promoteTypes(own, other) == other;
}

}  // namespace

at::ScalarType run_type(at::ScalarType own, at::ScalarType program, at::ScalarType run) {
  if (!c10::isFloatingType(own)) return own;
  return own == program || yields(own, program) || yields(own, run) ? run : own;
}

}  // namespace onebatch
