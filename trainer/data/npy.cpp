#include "trainer/data/npy.hpp"

#include "trainer/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

namespace onebatch {
namespace {

struct Type {
  std::string_view numpy;
  const char* dtype;
  std::uint64_t bytes;
};
// Those of one byte have no order of bytes: NumPy writes |, others < or any.
constexpr std::array<Type, 9> k_types = {{{"|u1", "U8", 1},
                                          {"|i1", "I8", 1},
                                          {"|b1", "BOOL", 1},
                                          {"<i2", "I16", 2},
                                          {"<i4", "I32", 4},
                                          {"<i8", "I64", 8},
                                          {"<f2", "F16", 2},
                                          {"<f4", "F32", 4},
                                          {"<f8", "F64", 8}}};

[[noreturn]] void fail(const std::string& what) {
  throw UserError("is no .npy file that can be read: " + what);
}

// What stands after "'key': ", up to `end`.
std::string_view value_of(std::string_view dictionary, const std::string& key, std::string_view ends) {
  const std::string quoted = "'" + key + "': ";
  const std::size_t found = dictionary.find(quoted);
  if (found == std::string_view::npos) fail("its header has no " + key);
  const std::string_view rest = dictionary.substr(found + quoted.size());
  const std::size_t end = rest.find_first_of(ends);
  if (end == std::string_view::npos) fail("its header ends within " + key);
  return rest.substr(0, end);
}

bool is_named(const Type& type, std::string_view name) {
  if (type.bytes > 1 || name.empty()) return name == type.numpy;
  return std::string_view("|<>=").find(name[0]) != std::string_view::npos && name.substr(1) == type.numpy.substr(1);
}

const Type& type_of(std::string_view quoted) {
  const std::string_view name = quoted.size() > 2 ? quoted.substr(1, quoted.size() - 2) : std::string_view();
  const auto found = std::ranges::find_if(k_types, [&](const Type& type) { return is_named(type, name); });
  if (found == k_types.end())
    fail(fmt::format("its numbers are {}: write uint8, int8, int16, int32, int64, bool, float16, float32 or float64",
                     quoted.substr(0, 20)));
  return *found;
}

// "(3, 4": what stands before the closing bracket.
std::vector<std::int64_t> shape_of(std::string_view text) {
  if (text.empty() || text[0] != '(') fail("its shape is no tuple");
  std::vector<std::int64_t> shape;
  for (text.remove_prefix(1); !text.empty();) {
    if (text[0] == ' ' || text[0] == ',') {
      text.remove_prefix(1);
      continue;
    }
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc() || size < 0) fail("its shape holds what is no size");
    shape.push_back(size);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  }
  return shape;
}

void check_bytes(const NpyHeader& header, std::uint64_t element_bytes, std::uint64_t there) {
  std::uint64_t bytes = element_bytes;
  for (const std::int64_t size : header.shape) {
    const auto factor = static_cast<std::uint64_t>(size);
    if (factor != 0 && bytes > there / factor)
      fail(fmt::format("its shape has more elements than its {} bytes", there));
    bytes *= factor;
  }
  if (bytes != there) fail(fmt::format("its shape has {} bytes, and {} follow its header", bytes, there));
}

}  // namespace

NpyHeader read_npy_header(std::span<const std::byte> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  constexpr std::size_t k_before = 12;
  if (!text.starts_with("\x93NUMPY") || text.size() < k_before) fail("it does not begin as one");
  const std::size_t length_bytes = text[6] == 1 ? 2 : 4;
  std::size_t length = 0;
  for (std::size_t i = length_bytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(text[8 + i]);
  if (text[6] < 1 || text[6] > 3) fail("its version is none of 1 to 3");
  if (length > text.size() - 8 - length_bytes) fail("it ends within its header");
  const std::string_view dictionary = text.substr(8 + length_bytes, length);
  const Type& type = type_of(value_of(dictionary, "descr", ","));
  if (value_of(dictionary, "fortran_order", ",}") != "False")
    fail("it is in Fortran's order: write numpy.ascontiguousarray");
  NpyHeader header{type.dtype, shape_of(value_of(dictionary, "shape", ")")), 8 + length_bytes + length};
  check_bytes(header, type.bytes, text.size() - header.begin);
  return header;
}

}  // namespace onebatch
