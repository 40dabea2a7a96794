#include "trainer/models/whole_numbers.hpp"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

namespace onebatch {
namespace {

struct WholeType {
  at::ScalarType type;
  std::int64_t least;
  std::int64_t most;
};

template <typename T>
constexpr WholeType whole_type(at::ScalarType type) {
  return {type, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};
}

constexpr std::array k_types = {whole_type<bool>(at::kBool),
                                whole_type<std::uint8_t>(at::kByte),
                                whole_type<std::int8_t>(at::kChar),
                                whole_type<std::int16_t>(at::kShort),
                                whole_type<std::uint16_t>(at::kUInt16),
                                whole_type<std::int32_t>(at::kInt),
                                whole_type<std::uint32_t>(at::kUInt32),
                                whole_type<std::int64_t>(at::kLong)};

const WholeType* known(at::ScalarType type) {
  const auto* const found = std::ranges::find(k_types, type, &WholeType::type);
  return found == k_types.end() ? nullptr : &*found;
}

}  // namespace

at::Tensor in_whole_type(const at::Tensor& tensor, at::ScalarType type) {
  return known(type) != nullptr && known(tensor.scalar_type()) != nullptr ? tensor.to(type) : tensor;
}

std::string beyond_type(const at::Tensor& tensor, at::ScalarType type) {
  const WholeType* const given = known(tensor.scalar_type());
  const WholeType* const due = known(type);
  if (given == nullptr || due == nullptr || !tensor.is_cpu()) return "";
  if (given->least >= due->least && given->most <= due->most) return "";
  // A loop of its own: the trial that looks at a model's operators would take a reduction for the model's.
  const at::Tensor numbers = tensor.to(at::kLong).contiguous();
  const auto* const begin = numbers.const_data_ptr<std::int64_t>();
  const auto* const end = begin + numbers.numel();
  const auto* const wrong =
      std::find_if(begin, end, [&](std::int64_t number) { return number < due->least || number > due->most; });
  if (wrong == end) return "";
  return fmt::format("is {}, which holds {} to {}, and is given {}", c10::toString(type), due->least, due->most,
                     *wrong);
}

std::optional<at::ScalarType> whole_type_named(const std::string& name) {
  for (const WholeType& one : k_types) {
    if (c10::getDtypeNames(one.type).first == name) return one.type;
  }
  return std::nullopt;
}

}  // namespace onebatch
