#include "trainer/device/native_failure.hpp"

#include <utility>

namespace onebatch {
namespace {

thread_local NativeFailure* current = nullptr;

}  // namespace

NativeFailure::NativeFailure() : before_(std::exchange(current, this)) {}

NativeFailure::~NativeFailure() {
  current = before_;
}

void NativeFailure::keep(std::exception_ptr error) {
  if (current != nullptr && !current->error_) current->error_ = std::move(error);
}

}  // namespace onebatch
