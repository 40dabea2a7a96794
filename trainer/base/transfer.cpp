#include "trainer/base/transfer.hpp"

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <stdexcept>

namespace onebatch {
namespace {

std::atomic<bool> forbidden{false};
std::atomic<bool> asked{false};

}  // namespace

NoUploads::NoUploads() {
  if (forbidden.exchange(true)) throw std::logic_error("uploads are refused already");
  asked = false;
}

NoUploads::~NoUploads() {
  forbidden = false;
}

bool NoUploads::refused() const {
  return asked;
}

at::Tensor upload(const at::Tensor& host, c10::Device device) {
  if (!host.is_cpu() || device.is_cpu()) return host.to(device);
  if (forbidden) {
    asked = true;
    throw std::runtime_error("a copy from host memory in what is being recorded");
  }
  return host.pin_memory().to(device, /*non_blocking=*/true);
}

std::vector<double> read_numbers(const at::Tensor& numbers) {
  if (numbers.scalar_type() != at::kDouble) throw std::invalid_argument("numbers are read in float64");
  const at::Tensor host = numbers.detach().to(at::kCPU, /*non_blocking=*/true).contiguous();
  if (!numbers.is_cpu()) c10::impl::VirtualGuardImpl(numbers.device().type()).getStream(numbers.device()).synchronize();
  const double* const first = host.const_data_ptr<double>();
  return {first, first + host.numel()};
}

}  // namespace onebatch
