// What streams read and write, and what each is known to have waited for: two that touch the same bytes, one of them
// writing, with nothing between them, are reported. Looked at in the order in which the host asks, so how long work
// takes decides nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace null_gpu {

struct Stream;

/// How many operations of each stream are known to have ended.
using Ended = std::map<const Stream*, std::uint64_t>;

struct Access {
  const char* begin;
  std::size_t bytes;
  bool writes;
  std::string by;  // operator or call
};

/// The stream's next operation does this. In a capture: each launch of its graph does.
void touch(Stream& stream, Access access);
/// All that was asked of the stream until now, and what that waited for.
Ended ended_with(const Stream& stream);
void stream_waits(Stream& stream, const Ended& ended);
/// Whatever is asked of any stream from here on comes after it.
void host_waits(const Ended& ended);
void host_waits_for(const Stream& stream);
/// Memory that is given back: who gets it next owes nothing to who had it.
void forget(const char* begin, std::size_t bytes);

}  // namespace null_gpu
