// Streams whose work runs later: each has a queue, moved on by those who wait for it, and after a while by itself.
#pragma once

#include "watch.hpp"

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace null_gpu {

using Clock = std::chrono::steady_clock;

/// Does a piece of work and returns true, or false where it cannot be done yet: then it is asked again.
using Work = std::function<bool()>;

enum class WorkKind { kernel, other };

struct Operation {
  WorkKind kind;
  Work work;  // empty: nothing to do
  Clock::time_point since;
};

/// What was recorded between the begin and the end of a capture.
struct Graph {
  std::vector<Operation> operations;
  std::vector<Access> touched;
  long kernels = 0;
};

struct Capture {
  Graph graph;
  bool invalid = false;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  unsigned long long id = 0;
  std::thread::id thread;  // that began it
  int device = 0;
};

struct Stream {
  int device = 0;
  std::deque<Operation> queue;
  long given = 0;       // operations, ever
  bool moving = false;  // its first operation is being done, by this thread: another may ask for it to be moved on
  std::shared_ptr<Capture> capture;  // the one that it takes part in; null: none
};

/// One record of an event on a stream.
struct Record {
  Stream* stream = nullptr;
  bool reached = false;
  long number = 0;  // of the stream's operations, with it
  Clock::time_point at;
  Ended ended;  // with it
};

struct Event {
  int device = 0;
  std::shared_ptr<Record> last;  // null: never recorded, which is as good as reached
  std::shared_ptr<Capture> capture;

  [[nodiscard]] bool pending() const { return last != nullptr && !last->reached; }
};

/// Guards all that is here. Held while work runs, which may take it again.
std::recursive_mutex& mutex();

Stream* new_stream(int device);
std::vector<Stream*> streams();
/// The default streams are one stream of the calling thread's device.
Stream& stream_of(cudaStream_t handle);
/// Puts work at the stream's end, or into its capture. Blocks where very much is waiting, as a real device does.
void enqueue(Stream& stream, WorkKind kind, Work work = {});
/// Runs what can be run. Returns whether nothing is left.
bool advance(Stream& stream, Clock::time_point until = Clock::time_point::max());
/// Blocks until nothing is left on the stream, or on all of the device.
void synchronize(Stream& stream);
void synchronize_device(int device);

/// A capture that a call of this thread that waits or allocates would break is broken by it. Returns whether there is
/// one: one that other threads began is not where it is in the mode of its own thread.
bool breaks_capture();
/// The same of a call that looks at a stream: that of one which takes part in a capture breaks it in every mode.
bool breaks_capture(Stream& stream);
/// The capture under way in this process, by whichever thread; null: none.
std::shared_ptr<Capture> current_capture();

}  // namespace null_gpu
