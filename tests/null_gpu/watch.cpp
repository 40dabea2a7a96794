#include "watch.hpp"

#include "counts.hpp"
#include "streams.hpp"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace null_gpu {
namespace {

struct Touch {
  std::uint64_t operation = 0;
  std::string by;
};

// Of bytes that have always been touched together.
struct Piece {
  const char* end;
  std::pair<const Stream*, Touch> write{nullptr, {}};  // the last
  std::map<const Stream*, Touch> reads;                // the last of each stream since then
};

struct All {
  std::map<const Stream*, std::uint64_t> asked;  // operations of each stream
  std::map<const Stream*, Ended> waited;
  Ended host;
  std::map<const char*, Piece> pieces;
};

All& all() {
  static All* const made = new All();
  return *made;
}

void merge(Ended& into, const Ended& from) {
  for (const auto& [stream, operations] : from) into[stream] = std::max(into[stream], operations);
}

void split_at(const char* address) {
  auto& pieces = all().pieces;
  auto after = pieces.upper_bound(address);
  if (after == pieces.begin()) return;
  const auto piece = std::prev(after);
  if (piece->first == address || piece->second.end <= address) return;
  Piece second = piece->second;
  piece->second.end = address;
  pieces.emplace_hint(after, address, std::move(second));
}

// The pieces of these bytes, with none missing between them.
std::vector<Piece*> pieces_of(const char* begin, const char* end) {
  split_at(begin);
  split_at(end);
  auto& pieces = all().pieces;
  std::vector<Piece*> found;
  const char* reached = begin;
  while (reached < end) {
    auto next = pieces.lower_bound(reached);
    if (next == pieces.end() || next->first > reached) {
      const char* until = next == pieces.end() ? end : std::min(end, next->first);
      next = pieces.emplace_hint(next, reached, Piece{until, {nullptr, {}}, {}});
    }
    found.push_back(&next->second);
    reached = next->second.end;
  }
  return found;
}

class Check {
 public:
  Check(const Stream& stream, const Access& access) : stream_(stream), access_(access), ended_(all().waited[&stream]) {}

  void against(const Stream* other, const Touch& touch, const char* did) const {
    if (other == nullptr || other == &stream_) return;
    const auto known = ended_.find(other);
    if (known != ended_.end() && known->second >= touch.operation) return;
    report(access_.by + (access_.writes ? " writes" : " reads") + " what " + touch.by + " " + did +
           " on another stream, and nothing makes it wait for that");
  }

 private:
  const Stream& stream_;
  const Access& access_;
  const Ended& ended_;
};

void note(Piece& piece, const Stream& stream, const Access& access, std::uint64_t operation) {
  const Check check(stream, access);
  check.against(piece.write.first, piece.write.second, "writes");
  if (!access.writes) {
    piece.reads[&stream] = {operation, access.by};
    return;
  }
  for (const auto& [reader, touch] : piece.reads) check.against(reader, touch, "reads");
  piece.reads.clear();
  piece.write = {&stream, {operation, access.by}};
}

}  // namespace

void touch(Stream& stream, Access access) {
  if (access.bytes == 0) return;
  const std::scoped_lock lock(mutex());
  if (stream.capture != nullptr) {
    stream.capture->graph.touched.push_back(std::move(access));
    return;
  }
  merge(all().waited[&stream], all().host);
  const std::uint64_t operation = ++all().asked[&stream];
  for (Piece* piece : pieces_of(access.begin, access.begin + access.bytes)) note(*piece, stream, access, operation);
}

Ended ended_with(const Stream& stream) {
  const std::scoped_lock lock(mutex());
  Ended ended = all().waited[&stream];
  merge(ended, all().host);
  ended[&stream] = all().asked[&stream];
  return ended;
}

void stream_waits(Stream& stream, const Ended& ended) {
  const std::scoped_lock lock(mutex());
  merge(all().waited[&stream], ended);
}

void host_waits(const Ended& ended) {
  const std::scoped_lock lock(mutex());
  merge(all().host, ended);
}

void host_waits_for(const Stream& stream) {
  host_waits(ended_with(stream));
}

void forget(const char* begin, std::size_t bytes) {
  const std::scoped_lock lock(mutex());
  split_at(begin);
  split_at(begin + bytes);
  auto& pieces = all().pieces;
  pieces.erase(pieces.lower_bound(begin), pieces.lower_bound(begin + bytes));
}

}  // namespace null_gpu

extern "C" void null_gpu_touch(cudaStream_t stream, const void* begin, std::size_t bytes, bool writes, const char* by) {
  null_gpu::touch(null_gpu::stream_of(stream), {static_cast<const char*>(begin), bytes, writes, by});
}
