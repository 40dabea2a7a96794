// Copies and fills. What comes from a device is zeros, but for what small blocks remember.
#include "counts.hpp"
#include "device.hpp"
#include "memory.hpp"
#include "streams.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>
#include <list>
#include <mutex>
#include <vector>

using namespace null_gpu;

namespace {

constexpr int k_not_there_yet = 0xFF;  // as a number of any floating type: no number

// Host memory that copies from a device are still to write.
class Coming {
 public:
  struct Range {
    const char* begin;
    std::size_t bytes;
  };
  using Place = std::list<Range>::iterator;

  Place add(const void* to, std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    return ranges_.insert(ranges_.end(), {static_cast<const char*>(to), bytes});
  }
  void remove(Place range) {
    const std::scoped_lock lock(mutex_);
    ranges_.erase(range);
  }
  bool has(const void* from, std::size_t bytes) {
    const auto* const begin = static_cast<const char*>(from);
    const std::scoped_lock lock(mutex_);
    for (const Range& range : ranges_) {
      if (range.begin < begin + bytes && begin < range.begin + range.bytes) return true;
    }
    return false;
  }

 private:
  std::mutex mutex_;
  std::list<Range> ranges_;
};

Coming& coming() {
  static auto* const ranges = new Coming;  // streams run until the process has ended
  return *ranges;
}

// The source is looked at when the copy runs, which on a real device is when it is read.
void from_pinned(Stream& stream, void* to, const void* from, std::size_t bytes) {
  // What is there now is not what will be copied. Asked first: it may come while this looks.
  const bool is_coming = coming().has(from, bytes);
  const XXH64_hash_t before = XXH3_64bits(from, bytes);
  enqueue(stream, WorkKind::other, [=] {
    if (is_coming && coming().has(from, bytes)) {
      report("a copy to the device reads pinned memory before another stream's copy to the host has written it");
    } else if (!is_coming && XXH3_64bits(from, bytes) != before) {
      ++counts().overwritten_sources;
      report("pinned memory changed before its copy to the device had run: who reuses it must wait for an event");
    }
    if (char* kept = remembered(to, bytes)) std::memcpy(kept, from, bytes);
    return true;
  });
}

void from_pageable(Stream& stream, void* to, const void* from, std::size_t bytes) {
  if (remembered(to, bytes) == nullptr) return enqueue(stream, WorkKind::other);
  const auto* begin = static_cast<const char*>(from);
  enqueue(stream, WorkKind::other, [to, content = std::vector<char>(begin, begin + bytes)] {
    if (char* kept = remembered(to, content.size())) std::memcpy(kept, content.data(), content.size());
    return true;
  });
}

void to_host(Stream& stream, void* to, const void* from, std::size_t bytes) {
  std::memset(to, k_not_there_yet, bytes);
  const Coming::Place range = coming().add(to, bytes);
  enqueue(stream, WorkKind::other, [=] {
    coming().remove(range);
    if (const char* kept = remembered(from, bytes)) {
      std::memcpy(to, kept, bytes);
    } else {
      std::memset(to, 0, bytes);
    }
    return true;
  });
}

enum class Return { when_done, at_once };

cudaError_t stop(Stream& stream) {
  count_host_stop();
  if (breaks_capture(stream)) return fail(cudaErrorStreamCaptureUnsupported);
  synchronize(stream);
  return cudaSuccess;
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, Stream& stream, Return when) {
  const bool to_device = place_of(to).has_value();
  const bool from_device = place_of(from).has_value();
  if (from_device) touch(stream, {static_cast<const char*>(from), bytes, false, "a copy"});
  if (to_device) touch(stream, {static_cast<const char*>(to), bytes, true, "a copy"});
  if (to_device && from_device) {
    ++counts().on_device;
    enqueue(stream, WorkKind::kernel);
    return cudaSuccess;
  }
  if (!to_device && !from_device) {
    std::memcpy(to, from, bytes);
    return cudaSuccess;
  }
  const bool pinned = is_pinned(to_device ? from : to);
  ++(to_device ? counts().to_device : counts().to_host);
  if (!to_device) {
    to_host(stream, to, from, bytes);
  } else if (pinned) {
    from_pinned(stream, to, from, bytes);
  } else {
    from_pageable(stream, to, from, bytes);
  }
  return when == Return::at_once && pinned ? cudaSuccess : stop(stream);
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  return copy(to, from, bytes, stream_of(nullptr), Return::when_done);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return copy(to, from, bytes, stream_of(stream), Return::at_once);
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind, cudaStream_t stream) {
  for (std::size_t row = 0; row < height; ++row) {
    const cudaError_t error =
        copy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width,
             stream_of(stream), Return::at_once);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpyPeerAsync(void*, int, const void*, int, std::size_t, cudaStream_t stream) {
  ++counts().on_device;
  enqueue(stream_of(stream), WorkKind::kernel);
  return cudaSuccess;
}

cudaError_t cudaMemcpyToSymbol(const void*, const void*, std::size_t, std::size_t, cudaMemcpyKind) {
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* address, int value, std::size_t bytes, cudaStream_t stream) {
  ++counts().memsets;
  if (place_of(address)) touch(stream_of(stream), {static_cast<const char*>(address), bytes, true, "a fill"});
  enqueue(stream_of(stream), WorkKind::kernel, [=] {
    if (place_of(address)) {
      if (char* kept = remembered(address, bytes)) std::memset(kept, value, bytes);
    } else {
      std::memset(address, value, bytes);
    }
    return true;
  });
  return cudaSuccess;
}

cudaError_t cudaMemset(void* address, int value, std::size_t bytes) {
  return cudaMemsetAsync(address, value, bytes, nullptr);
}

}  // extern "C"
