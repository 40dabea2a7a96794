// What LibTorch calls of streams and events.
#include "counts.hpp"
#include "device.hpp"
#include "settings.hpp"
#include "streams.hpp"

#include <string>
#include <thread>
#include <utility>

using namespace null_gpu;

namespace {

constexpr auto k_pause = std::chrono::microseconds(20);

// Kept as long as anything on a stream asks for it.
std::shared_ptr<Event>& event_of(cudaEvent_t handle) {
  return *reinterpret_cast<std::shared_ptr<Event>*>(handle);
}

cudaError_t host_has_seen(const Event& event) {
  if (event.last != nullptr) host_waits(event.last->ended);
  return cudaSuccess;
}

cudaError_t waits() {
  count_host_stop();
  return breaks_capture() ? fail(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

// An event of a capture that is under way never comes.
bool is_captured(const Event& event) {
  return event.capture != nullptr && event.capture == current_capture();
}

// The stream that waits for all others by itself can take part in no capture.
bool is_legacy(cudaStream_t handle) {
  return handle == nullptr || handle == cudaStreamLegacy;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  const std::scoped_lock lock(mutex());
  *stream = reinterpret_cast<cudaStream_t>(new_stream(current_device()));
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, 0, 0);
}

// What is on it still runs; it is kept for that.
cudaError_t cudaStreamDestroy(cudaStream_t) {
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  count_host_stop();
  if (breaks_capture(stream_of(stream))) return fail(cudaErrorStreamCaptureUnsupported);
  synchronize(stream_of(stream));
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t error = waits(); error != cudaSuccess) return error;
  synchronize_device(current_device());
  return cudaSuccess;
}

// The first question finds work that has not begun; each moves it on.
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  if (breaks_capture(stream_of(handle))) return fail(cudaErrorStreamCaptureUnsupported);
  const std::scoped_lock lock(mutex());
  Stream& stream = stream_of(handle);
  if (stream.queue.empty()) {
    host_waits_for(stream);
    return cudaSuccess;
  }
  advance(stream);
  return fail(cudaErrorNotReady);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned) {
  const std::scoped_lock lock(mutex());
  Stream& stream = stream_of(handle);
  const Event& event = *event_of(event_handle);
  if (is_captured(event)) {
    if (is_legacy(handle)) {
      event.capture->invalid = true;
      return fail(cudaErrorStreamCaptureImplicit);
    }
    stream.capture = event.capture;
    return cudaSuccess;
  }
  if (handle == nullptr && stream.device != event.device)
    report("the default stream of device " + std::to_string(stream.device) + " waits for an event of device " +
           std::to_string(event.device) + ": the calling thread has not set its device");
  if (settings().drop_waits) return cudaSuccess;
  if (event.last != nullptr) stream_waits(stream, event.last->ended);
  if (!event.pending()) return cudaSuccess;
  if (stream.capture != nullptr) return fail(cudaErrorStreamCaptureIsolation);
  enqueue(stream, WorkKind::other, [record = event.last] {
    if (!record->reached) advance(*record->stream);
    return record->reached;
  });
  return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t call, void* data, unsigned) {
  enqueue(stream_of(handle), WorkKind::other, [=] {
    call(handle, cudaSuccess, data);
    return true;
  });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned) {
  ++counts().events;
  auto event = std::make_shared<Event>();
  event->device = current_device();
  *handle = reinterpret_cast<cudaEvent_t>(new std::shared_ptr<Event>(std::move(event)));
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::scoped_lock lock(mutex());
  delete &event_of(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  const std::scoped_lock lock(mutex());
  Stream& stream = stream_of(stream_handle);
  Event& event = *event_of(handle);
  if (stream.device != event.device) {
    report("an event of device " + std::to_string(event.device) + " was recorded on a stream of device " +
           std::to_string(stream.device));
    return fail(cudaErrorInvalidResourceHandle);
  }
  if (stream.capture != nullptr) {
    event.capture = stream.capture;
    return cudaSuccess;
  }
  event.capture = nullptr;
  event.last = std::make_shared<Record>();
  event.last->stream = &stream;
  event.last->ended = ended_with(stream);
  enqueue(stream, WorkKind::other, [record = event.last] {
    record->reached = true;
    record->at = Clock::now();
    return true;
  });
  event.last->number = stream.given;
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  const std::scoped_lock lock(mutex());
  const Event& event = *event_of(handle);
  if (is_captured(event)) {
    event.capture->invalid = true;
    return fail(cudaErrorCapturedEvent);
  }
  if (!event.pending()) return host_has_seen(event);
  advance(*event.last->stream);
  return fail(cudaErrorNotReady);
}

// The device goes on with what was put behind the event: a wait, but no stop.
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  if (breaks_capture()) return fail(cudaErrorStreamCaptureUnsupported);
  {
    const std::scoped_lock lock(mutex());
    const Event& event = *event_of(handle);
    if (event.last != nullptr && event.last->stream->given > event.last->number)
      ++counts().waits_behind;
    else
      count_host_stop();
    if (is_captured(event)) {
      event.capture->invalid = true;
      return fail(cudaErrorCapturedEvent);
    }
  }
  while (true) {
    {
      const std::scoped_lock lock(mutex());
      const Event& event = *event_of(handle);
      if (event.pending()) advance(*event.last->stream);
      if (!event.pending()) return host_has_seen(event);
    }
    std::this_thread::sleep_for(k_pause);
  }
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin_handle, cudaEvent_t end_handle) {
  const std::scoped_lock lock(mutex());
  const Event& begin = *event_of(begin_handle);
  const Event& end = *event_of(end_handle);
  if (begin.last == nullptr || end.last == nullptr) return fail(cudaErrorInvalidResourceHandle);
  if (begin.pending() || end.pending()) return fail(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(end.last->at - begin.last->at).count();
  return cudaSuccess;
}

}  // extern "C"
