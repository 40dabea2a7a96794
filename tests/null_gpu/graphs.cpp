// Captures of streams, and graphs made of them.
#include "counts.hpp"
#include "device.hpp"
#include "streams.hpp"

#include <thread>
#include <utility>

namespace null_gpu {
namespace {

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

std::shared_ptr<Capture>& capturing() {
  static auto* const capture = new std::shared_ptr<Capture>();
  return *capture;
}

}  // namespace

std::shared_ptr<Capture> current_capture() {
  const std::scoped_lock lock(mutex());
  return capturing();
}

bool breaks_capture() {
  const std::scoped_lock lock(mutex());
  const std::shared_ptr<Capture>& capture = capturing();
  if (capture == nullptr || thread_mode == cudaStreamCaptureModeRelaxed ||
      capture->mode == cudaStreamCaptureModeRelaxed)
    return false;
  const bool of_another_thread = capture->thread != std::this_thread::get_id();
  if (of_another_thread &&
      (capture->mode == cudaStreamCaptureModeThreadLocal || thread_mode == cudaStreamCaptureModeThreadLocal))
    return false;
  capture->invalid = true;
  return true;
}

bool breaks_capture(Stream& stream) {
  const std::scoped_lock lock(mutex());
  if (stream.capture == nullptr) return breaks_capture();
  stream.capture->invalid = true;
  return true;
}

}  // namespace null_gpu

using namespace null_gpu;

extern "C" {

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const std::scoped_lock lock(mutex());
  const std::shared_ptr<Capture>& capture = stream_of(stream).capture;
  *status = capture == nullptr
                ? cudaStreamCaptureStatusNone
                : (capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive);
  return cudaSuccess;
}

// Edges are told of since CUDA 13.
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** nodes,
#if CUDART_VERSION >= 13000
                                     const cudaGraphEdgeData** edges,
#endif
                                     std::size_t* count) {
  const std::scoped_lock lock(mutex());
  cudaStreamIsCapturing(stream, status);
  const std::shared_ptr<Capture>& capture = stream_of(stream).capture;
  if (id != nullptr) *id = capture == nullptr ? 0 : capture->id;
  if (graph != nullptr) *graph = nullptr;
  if (nodes != nullptr) *nodes = nullptr;
#if CUDART_VERSION >= 13000
  if (edges != nullptr) *edges = nullptr;
#endif
  if (count != nullptr) *count = 0;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const std::scoped_lock lock(mutex());
  if (handle == nullptr || handle == cudaStreamLegacy) return fail(cudaErrorStreamCaptureImplicit);
  if (capturing() != nullptr) return fail(cudaErrorIllegalState);
  static unsigned long long captures = 0;
  capturing() = std::make_shared<Capture>();
  capturing()->mode = mode;
  capturing()->id = ++captures;
  capturing()->thread = std::this_thread::get_id();
  capturing()->device = stream_of(handle).device;
  stream_of(handle).capture = capturing();
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  const std::scoped_lock lock(mutex());
  *graph = nullptr;
  if (stream_of(handle).capture == nullptr) return fail(cudaErrorIllegalState);
  if (stream_of(handle).capture->mode != cudaStreamCaptureModeRelaxed &&
      stream_of(handle).capture->thread != std::this_thread::get_id())
    return fail(cudaErrorStreamCaptureWrongThread);
  const std::shared_ptr<Capture> capture = std::exchange(capturing(), nullptr);
  for (Stream* stream : streams()) {
    if (stream->capture == capture) stream->capture = nullptr;
  }
  if (capture->invalid) return fail(cudaErrorStreamCaptureInvalidated);
  ++counts().captures;
  *graph = reinterpret_cast<cudaGraph_t>(new Graph(std::move(capture->graph)));
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, std::size_t* count) {
  *count = reinterpret_cast<Graph*>(graph)->operations.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = reinterpret_cast<cudaGraphExec_t>(
      new std::shared_ptr<Graph>(std::make_shared<Graph>(*reinterpret_cast<Graph*>(graph))));
  return cudaSuccess;
}

// Of older LibTorch.
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(executable, graph, flags);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
  const std::shared_ptr<Graph> graph = *reinterpret_cast<std::shared_ptr<Graph>*>(executable);
  ++counts().graph_launches;
  counts().replayed_kernels += graph->kernels;
  for (const Access& access : graph->touched) touch(stream_of(handle), access);
  // One after the other: what is not done yet is asked again from where it stopped.
  enqueue(stream_of(handle), WorkKind::other, [graph, next = std::size_t{0}]() mutable {
    for (; next < graph->operations.size(); ++next) {
      const Work& work = graph->operations[next].work;
      if (work && !work()) return false;
    }
    return true;
  });
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<Graph*>(graph);
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete reinterpret_cast<std::shared_ptr<Graph>*>(executable);
  return cudaSuccess;
}

}  // extern "C"
