#include "streams.hpp"

#include "counts.hpp"
#include "device.hpp"
#include "settings.hpp"

#include <pthread.h>

#include <csignal>
#include <map>
#include <set>
#include <thread>
#include <utility>

namespace null_gpu {
namespace {

constexpr std::size_t k_most_waiting = 4096;
constexpr auto k_pause = std::chrono::microseconds(20);
constexpr auto k_driver_pause = std::chrono::microseconds(500);

struct All {
  std::recursive_mutex mutex;
  std::set<Stream*> streams;
  std::map<int, Stream*> default_streams;  // by device
  bool driven = false;
};

All& all() {
  static All* const made = new All();
  return *made;
}

Clock::duration lag() {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(settings().lag_seconds));
}

// Without it a rank that waits elsewhere would keep its peers from meeting it. Signals are the program's.
void drive() {
  sigset_t every;
  sigfillset(&every);
  pthread_sigmask(SIG_BLOCK, &every, nullptr);
  while (true) {
    std::this_thread::sleep_for(k_driver_pause);
    const std::scoped_lock lock(all().mutex);
    for (Stream* stream : all().streams) advance(*stream, Clock::now() - lag());
  }
}

}  // namespace

std::recursive_mutex& mutex() {
  return all().mutex;
}

Stream* new_stream(int device) {
  const std::scoped_lock lock(all().mutex);
  auto* stream = new Stream();
  stream->device = device;
  all().streams.insert(stream);
  if (!all().driven) {
    all().driven = true;
    std::thread(drive).detach();
  }
  return stream;
}

Stream& stream_of(cudaStream_t handle) {
  if (handle != nullptr && handle != cudaStreamLegacy && handle != cudaStreamPerThread)
    return *reinterpret_cast<Stream*>(handle);
  const std::scoped_lock lock(all().mutex);
  Stream*& stream = all().default_streams[current_device()];
  if (stream == nullptr) stream = new_stream(current_device());
  return *stream;
}

void enqueue(Stream& stream, WorkKind kind, Work work) {
  {
    const std::scoped_lock lock(all().mutex);
    Operation operation = {kind, std::move(work), Clock::now()};
    if (stream.capture != nullptr) {
      stream.capture->graph.kernels += kind == WorkKind::kernel ? 1 : 0;
      stream.capture->graph.operations.push_back(std::move(operation));
      return;
    }
    stream.queue.push_back(std::move(operation));
    ++stream.given;
    if (stream.queue.size() <= k_most_waiting || advance(stream)) return;
  }
  while (true) {
    std::this_thread::sleep_for(k_pause);
    const std::scoped_lock lock(all().mutex);
    advance(stream);
    if (stream.queue.size() <= k_most_waiting) return;
  }
}

bool advance(Stream& stream, Clock::time_point until) {
  if (std::exchange(stream.moving, true)) return false;
  while (!stream.queue.empty() && stream.queue.front().since <= until) {
    const Operation& first = stream.queue.front();
    if (first.work && !first.work()) break;
    stream.queue.pop_front();
  }
  stream.moving = false;
  return stream.queue.empty();
}

void synchronize(Stream& stream) {
  while (true) {
    {
      const std::scoped_lock lock(all().mutex);
      if (advance(stream)) return host_waits_for(stream);
    }
    std::this_thread::sleep_for(k_pause);
  }
}

void synchronize_device(int device) {
  for (Stream* stream : streams()) {
    if (stream->device == device) synchronize(*stream);
  }
}

std::vector<Stream*> streams() {
  const std::scoped_lock lock(all().mutex);
  return {all().streams.begin(), all().streams.end()};
}

}  // namespace null_gpu
