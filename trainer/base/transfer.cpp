#include "trainer/base/transfer.hpp"

#include "trainer/base/error.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <atomic>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace onebatch {
namespace {

std::atomic<bool> forbidden{false};
std::atomic<bool> asked{false};

// For a GPU to take.
at::Tensor pinned_copy_of(const at::Tensor& host) {
  if (forbidden) {
    asked = true;
    throw std::runtime_error("a copy from host memory in what is being recorded");
  }
  return pinned_like(host).copy_(host);
}

c10::Stream stream_of(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

c10::Stream copying_stream(c10::Device device, Copies which) {
  static std::mutex mutex;
  static std::map<std::pair<c10::DeviceIndex, Copies>, c10::Stream> streams;
  const std::scoped_lock lock(mutex);
  const auto key = std::pair(device.index(), which);
  auto found = streams.find(key);
  if (found == streams.end()) {
    const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
    found = streams.emplace(key, stream).first;
  }
  return found->second;
}

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
  return pinned_copy_of(host).to(device, /*non_blocking=*/true);
}

// What is copied there is allocated there: memory that the computing stream has just given back would have to be waited
// for. The allocator has it back when both streams have done with it.
at::Tensor upload_pinned(const at::Tensor& pinned, c10::Device device) {
  const c10::Stream computes = stream_of(device);
  const c10::Stream copies = copying_stream(device, Copies::of_steps);
  at::Tensor there;
  {
    const c10::StreamGuard on_it(copies);
    there = pinned.to(device, /*non_blocking=*/true);
  }
  c10::Event arrived(device.type());
  arrived.record(copies);
  arrived.block(computes);
  there.record_stream(computes);
  return there;
}

CopyBeside::CopyBeside(at::Tensor to, at::Tensor from) : to_(std::move(to)), from_(std::move(from)) {
  const c10::Device device = to_.is_cpu() ? from_.device() : to_.device();
  if (device.is_cpu()) {
    to_.copy_(from_);
    return;
  }
  const c10::Stream computes = stream_of(device);
  const c10::Stream copies = copying_stream(device, Copies::of_steps);
  c10::Event asked(device.type());
  asked.record(computes);
  asked.block(copies);
  const c10::StreamGuard on_it(copies);
  to_.copy_(from_, /*non_blocking=*/true);
  done_.emplace(device.type()).record(copies);
  asked_by_ = computes;
}

void CopyBeside::wait() {
  if (asked_by_) done_->block(*asked_by_);
  asked_by_.reset();
}

// A wait that is refused means that the device is lost, which whoever computes on it is told.
CopyBeside::~CopyBeside() {
  try {
    wait();
  } catch (const std::exception&) {
  }
}

at::Tensor CopyBeside::take() {
  wait();
  return to_;
}

void upload_into(const at::Tensor& place, const at::Tensor& host) {
  place.copy_(place.is_cpu() ? host : pinned_copy_of(host), /*non_blocking=*/true);
}

// Channels last stays channels last: the model may take a view that needs it.
at::Tensor pinned_like(const at::Tensor& tensor) {
  const at::TensorOptions options = tensor.options().device(c10::kCPU).requires_grad(false).pinned_memory(true);
  try {
    if (tensor.is_non_overlapping_and_dense()) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
    return at::empty(tensor.sizes(), options);
  } catch (const c10::Error& error) {  // whose words are those of a device that is full, or of one that is lost
    if (std::string_view(error.what()).find("out of memory") == std::string_view::npos) throw;
    throw DoesNotFitError(fmt::format(
        "the host, not its GPU, has no memory left: {} bytes that a GPU can copy from or to were refused; give the job "
        "more host memory, or write memory.offload = \"never\" where exact BatchNorm keeps its share there",
        tensor.nbytes()));
  }
}

std::vector<double> read_numbers(const at::Tensor& numbers) {
  if (numbers.scalar_type() != at::kDouble) throw std::invalid_argument("numbers are read in float64");
  const at::Tensor host = numbers.detach().to(at::kCPU, /*non_blocking=*/true).contiguous();
  if (!numbers.is_cpu()) stream_of(numbers.device()).synchronize();
  const double* const first = host.const_data_ptr<double>();
  return {first, first + host.numel()};
}

}  // namespace onebatch
