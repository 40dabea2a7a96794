#include "trainer/models/exported_schema.hpp"

#include <array>
#include <climits>

namespace onebatch {
namespace {

template <typename T, std::size_t N>
T numbered(const std::array<T, N>& known, const JsonReader& number) {
  const auto index = static_cast<std::size_t>(number.integer(0, INT_MAX));
  if (index == 0 || index > known.size()) number.fail("is a number that the schema of programs does not have");
  return known.at(index - 1);
}

}  // namespace

at::ScalarType scalar_type_in(const JsonReader& number) {
  static constexpr std::array k_types = {
      at::kByte,   at::kChar,        at::kShort,        at::kInt,           at::kLong, at::kHalf,    at::kFloat,
      at::kDouble, at::kComplexHalf, at::kComplexFloat, at::kComplexDouble, at::kBool, at::kBFloat16};
  return numbered(k_types, number);
}

at::MemoryFormat memory_format_in(const JsonReader& number) {
  using Format = at::MemoryFormat;
  static constexpr std::array k_formats = {Format::Contiguous, Format::ChannelsLast, Format::ChannelsLast3d,
                                           Format::Preserve};
  return numbered(k_formats, number);
}

at::Layout layout_in(const JsonReader& number) {
  constexpr std::int64_t k_strided = 7;
  if (number.integer(0, INT_MAX) != k_strided) number.fail("is a layout other than strided, which is not known");
  return at::kStrided;
}

Tagged tagged(const JsonReader& argument) {
  if (!argument.json().is_object() || argument.json().size() != 1) argument.fail("must be an object of one field");
  const std::string tag = argument.json().begin().key();
  return {tag, JsonReader(argument.json().begin().value(), argument.place())};
}

}  // namespace onebatch
