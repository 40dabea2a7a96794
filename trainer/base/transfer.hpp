// Between host and device, with as little waiting as there can be.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <optional>
#include <vector>

namespace onebatch {

/// What is copied beside the computation, on a stream of its own each: none waits for another's copies.
enum class Copies { of_steps, of_checkpoints };
/// The same one each time. LibTorch's pool gives its 32 streams in turn: who asked it for each copy would come to have
/// that on which others copy, or record.
c10::Stream copying_stream(c10::Device device, Copies which);

/// `host` on a device; itself where it lies there. A GPU copies it from pinned memory when its stream comes to it: the
/// host goes on.
at::Tensor upload(const at::Tensor& host, c10::Device device);

/// upload() of a tensor in pinned_like() memory that nobody writes to any more: without a copy of its own, on a
/// stream of its own, so that it does not wait behind kernels; the current stream waits for it.
at::Tensor upload_pinned(const at::Tensor& pinned, c10::Device device);

/// upload() into a tensor that is there.
void upload_into(const at::Tensor& place, const at::Tensor& host);

/// A copy between a GPU and pinned_like() memory beside the kernels: on a stream of its own, once the current stream
/// has come to where it was asked for. All such copies of a device run in the order in which they were asked for.
class CopyBeside {
 public:
  CopyBeside(at::Tensor to, at::Tensor from);
  CopyBeside(const CopyBeside&) = delete;
  CopyBeside& operator=(const CopyBeside&) = delete;
  /// Both tensors' memory goes back in the order of the stream that asked, which waits for the copy.
  ~CopyBeside();

  /// What was copied to; the stream that asked waits for it.
  at::Tensor take();

 private:
  void wait();

  at::Tensor to_, from_;
  std::optional<c10::Stream> asked_by_;  // until it has waited
  std::optional<c10::Event> done_;
};

/// While one lives upload() to a GPU is refused, on all threads: a graph that records a copy from host memory would
/// repeat it when other numbers lie there.
class NoUploads {
 public:
  NoUploads();
  ~NoUploads();
  NoUploads(const NoUploads&) = delete;
  NoUploads& operator=(const NoUploads&) = delete;

  /// Whether one was asked for.
  [[nodiscard]] bool refused() const;
};

/// Memory of the host that a GPU copies from and to by itself, of a tensor's type and sizes, and its strides where
/// those are dense. Throws DoesNotFitError where the host has none left.
at::Tensor pinned_like(const at::Tensor& tensor);

/// The elements of a float64 tensor, when the device's current stream has come that far: one wait for all of them.
std::vector<double> read_numbers(const at::Tensor& numbers);

}  // namespace onebatch
