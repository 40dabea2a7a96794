#include "comm/siphash.hpp"

#include <bit>
#include <cstring>

namespace onebatch::comm {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie in memory");

constexpr std::size_t k_word = sizeof(std::uint64_t);

struct State {
  std::array<std::uint64_t, 4> v;

  void rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v[0] += v[1];
      v[2] += v[3];
      v[1] = std::rotl(v[1], 13) ^ v[0];
      v[3] = std::rotl(v[3], 16) ^ v[2];
      v[0] = std::rotl(v[0], 32) + v[3];
      v[2] += v[1];
      v[1] = std::rotl(v[1], 17) ^ v[2];
      v[3] = std::rotl(v[3], 21) ^ v[0];
      v[2] = std::rotl(v[2], 32);
    }
  }

  void absorb(std::uint64_t word) {
    v[3] ^= word;
    rounds(2);
    v[0] ^= word;
  }
};

}  // namespace

std::uint64_t siphash(const SipKey& key, std::string_view bytes) {
  State state{{key[0] ^ 0x736f6d6570736575U, key[1] ^ 0x646f72616e646f6dU, key[0] ^ 0x6c7967656e657261U,
               key[1] ^ 0x7465646279746573U}};
  const std::uint64_t length = bytes.size();
  for (; bytes.size() >= k_word; bytes.remove_prefix(k_word)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), k_word);
    state.absorb(word);
  }
  std::uint64_t last = length << 56;
  std::memcpy(&last, bytes.data(), bytes.size());  // at most seven bytes: the length's stays
  state.absorb(last);
  state.v[2] ^= 0xff;
  state.rounds(4);
  return state.v[0] ^ state.v[1] ^ state.v[2] ^ state.v[3];
}

}  // namespace onebatch::comm
