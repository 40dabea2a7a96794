#include "tests/fuzz/mutation.hpp"

#include "trainer/base/mix_bits.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace onebatch::fuzz {
namespace {

class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t number) : key_(mix_bits(seed) ^ number) {}
  /// 0 … below − 1; 0 where `below` is 0.
  std::size_t below(std::size_t below) { return below == 0 ? 0 : mix_bits(key_ + ++drawn_) % below; }

 private:
  std::uint64_t key_;
  std::uint64_t drawn_ = 0;
};

struct Part {
  std::size_t begin;
  std::size_t length;
};

// Short ones as likely as long ones.
Part draw_part(const std::string& bytes, Draws& draws) {
  const std::size_t begin = draws.below(bytes.size());
  const std::size_t most = std::min(bytes.size() - begin, std::size_t{1} << draws.below(12));
  return {begin, most == 0 ? 0 : 1 + draws.below(most)};
}

void flip_bit(std::string& bytes, Draws& draws) {
  char& byte = bytes[draws.below(bytes.size())];
  byte = static_cast<char>(byte ^ (1 << draws.below(8)));
}

void write_byte(std::string& bytes, Draws& draws) {
  constexpr std::array<char, 8> k_values = {'\0', '\1', '\x7f', '\x80', '\xff', '0', '9', ' '};
  bytes[draws.below(bytes.size())] = k_values[draws.below(k_values.size())];
}

// Sizes and counts become none, one too many, or enormous, in either order of bytes.
void write_number(std::string& bytes, Draws& draws) {
  constexpr std::array<std::uint64_t, 8> k_values = {
      0, 1, 0xffff, 0x7fffffff, 0xffffffff, 0x80000000, 0x7fffffffffffffff, 0xffffffffffffffff};
  std::uint64_t value = k_values[draws.below(k_values.size())];
  if (draws.below(2) == 1) value = __builtin_bswap64(value);
  const Part part = draw_part(bytes, draws);
  std::memcpy(bytes.data() + part.begin, &value, std::min(sizeof(value), bytes.size() - part.begin));
}

void cut_out(std::string& bytes, Draws& draws) {
  const Part part = draw_part(bytes, draws);
  bytes.erase(part.begin, part.length);
}

void cut_off(std::string& bytes, Draws& draws) {
  bytes.resize(draws.below(bytes.size()));
}

void double_part(std::string& bytes, Draws& draws) {
  const Part part = draw_part(bytes, draws);
  bytes.insert(draws.below(bytes.size()), bytes.substr(part.begin, part.length));
}

void zero_part(std::string& bytes, Draws& draws) {
  const Part part = draw_part(bytes, draws);
  std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(part.begin), part.length, '\0');
}

using Change = void (*)(std::string&, Draws&);
constexpr std::array<Change, 7> k_changes = {flip_bit, write_byte,  write_number, cut_out,
                                             cut_off,  double_part, zero_part};

void put_in(std::string& bytes, const std::string& other, Draws& draws) {
  const Part part = draw_part(other, draws);
  bytes.insert(draws.below(bytes.size()), other.substr(part.begin, part.length));
}

std::size_t big_endian(const std::string& bytes, std::size_t at) {
  std::size_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

// A PNG's chunks: a length, a name, the content, and CRC-32 of name and content.
void repair_png(std::string& bytes) {
  constexpr std::size_t k_around = 12;
  for (std::size_t at = 8; at + k_around <= bytes.size();) {
    const std::size_t length = big_endian(bytes, at);
    if (length > bytes.size() - at - k_around) return;
    const auto* named = reinterpret_cast<const Bytef*>(bytes.data()) + at + 4;
    const uLong crc = ::crc32(0, named, static_cast<uInt>(length + 4));
    for (std::size_t i = 0; i < 4; ++i) bytes[at + 8 + length + i] = static_cast<char>(crc >> (24 - 8 * i));
    at += k_around + length;
  }
}

// Every block of a tar file that has "ustar" where a header has it: the sum of its bytes, spaces for the sum itself.
void repair_tar(std::string& bytes) {
  constexpr std::size_t k_block_bytes = 512;
  for (std::size_t at = 0; at + k_block_bytes <= bytes.size(); at += k_block_bytes) {
    if (bytes.compare(at + 257, 5, "ustar") != 0) continue;
    bytes.replace(at + 148, 8, 8, ' ');
    unsigned sum = 0;
    for (std::size_t i = 0; i < k_block_bytes; ++i) sum += static_cast<unsigned char>(bytes[at + i]);
    bytes.replace(at + 148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  }
}

}  // namespace

std::string mutated(const std::vector<std::string>& inputs, std::uint64_t seed, std::uint64_t number) {
  Draws draws(seed, number);
  std::string bytes = inputs.at(draws.below(inputs.size()));
  const std::size_t changes = 1 + draws.below(4);
  for (std::size_t i = 0; i < changes && !bytes.empty(); ++i) {
    const std::size_t which = draws.below(k_changes.size() + 1);
    if (which == k_changes.size()) put_in(bytes, inputs[draws.below(inputs.size())], draws);
    if (which < k_changes.size()) k_changes[which](bytes, draws);
  }
  if (number % 2 == 0) return bytes;
  if (bytes.starts_with("\x89PNG")) repair_png(bytes);
  repair_tar(bytes);
  return bytes;
}

}  // namespace onebatch::fuzz
