#include "trainer/io/contents.hpp"

#include <algorithm>
#include <vector>

namespace onebatch {
namespace {

// Checkpoints hold digests: with other numbers here all of them are of other data.
constexpr std::uint64_t k_whole_bytes = std::uint64_t{64} << 20;
constexpr std::uint64_t k_block_bytes = std::uint64_t{64} << 10;

// Of all regions one after another, from `begin` on as many bytes as `to` has.
void read(std::span<const FileRegion> regions, std::uint64_t begin, std::span<std::byte> to) {
  for (const FileRegion& region : regions) {
    if (to.empty()) return;
    if (begin >= region.bytes) {
      begin -= region.bytes;
      continue;
    }
    const std::uint64_t count = std::min<std::uint64_t>(to.size(), region.bytes - begin);
    region.file->read(region.begin + begin, to.first(count));
    to = to.subspan(count);
    begin = 0;
  }
}

}  // namespace

void add_contents(ChecksumStream& stream, std::span<const FileRegion> regions) {
  std::uint64_t all = 0;
  for (const FileRegion& region : regions) all += region.bytes;
  stream.update(std::as_bytes(std::span(&all, 1)));
  std::vector<std::byte> block(k_block_bytes);
  const auto add = [&](std::uint64_t begin) {
    const auto some = std::span(block).first(std::min(k_block_bytes, all - begin));
    read(regions, begin, some);
    stream.update(some);
  };
  if (all <= k_whole_bytes) {
    for (std::uint64_t begin = 0; begin < all; begin += k_block_bytes) add(begin);
    return;
  }
  const std::uint64_t places = std::clamp<std::uint64_t>(regions.size(), 64, k_whole_bytes / k_block_bytes);
  for (std::uint64_t place = 0; place < places; ++place)
    add(place + 1 == places ? all - k_block_bytes : (all - k_block_bytes) / (places - 1) * place);
}

}  // namespace onebatch
