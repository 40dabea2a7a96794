#include "comm/communicator.hpp"

#include "comm/watchdog.hpp"

#include <cstdint>
#include <cstring>

namespace onebatch::comm {

std::size_t size_of(ScalarType type) {
  switch (type) {
    case ScalarType::uint8: return 1;
    case ScalarType::float16:
    case ScalarType::bfloat16: return 2;
    case ScalarType::int32:
    case ScalarType::float32: return 4;
    case ScalarType::int64:
    case ScalarType::float64: return 8;
  }
  return 0;
}

std::byte* Communicator::allocate(std::size_t bytes) {
  own_memory_ = AlignedMemory(bytes);
  return own_memory_.data();
}

void Communicator::set_activity(std::string_view text) {
  if (Watchdog* const guard = watchdog()) guard->set_activity(text);
}

void Communicator::note_progress() {
  if (Watchdog* const guard = watchdog()) guard->note_progress();
}

std::vector<std::string> all_gather_text(Communicator& communicator, std::string_view text) {
  auto longest = static_cast<std::int64_t>(text.size());
  communicator.all_reduce(&longest, 1, ScalarType::int64, ReduceOp::max);
  // Each rank sends its length and its text, padded to the longest.
  const std::size_t stride = sizeof(std::int64_t) + static_cast<std::size_t>(longest);
  std::vector<char> mine(stride, '\0');
  const auto length = static_cast<std::int64_t>(text.size());
  std::memcpy(mine.data(), &length, sizeof(length));
  if (!text.empty()) std::memcpy(mine.data() + sizeof(length), text.data(), text.size());
  std::vector<char> all(stride * static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(mine.data(), all.data(), stride);
  std::vector<std::string> texts;
  for (std::size_t begin = 0; begin < all.size(); begin += stride) {
    std::int64_t count = 0;
    std::memcpy(&count, all.data() + begin, sizeof(count));
    texts.emplace_back(all.data() + begin + sizeof(count), static_cast<std::size_t>(count));
  }
  return texts;
}

std::string broadcast_text(Communicator& communicator, std::string_view text, int root) {
  auto length = static_cast<std::int64_t>(text.size());
  communicator.broadcast(&length, sizeof(length), root);
  std::string received(static_cast<std::size_t>(length), '\0');
  if (communicator.rank() == root) received = text;
  if (length > 0) communicator.broadcast(received.data(), received.size(), root);
  return received;
}

}  // namespace onebatch::comm
