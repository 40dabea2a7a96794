#include "trainer/models/layer_calls.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace onebatch {
namespace {

template <std::size_t N>
bool is_one_of(const std::string& name, const std::array<std::string_view, N>& names) {
  return std::ranges::find(names, std::string_view(name)) != names.end();
}

}  // namespace

HandsOn hands_on(const std::string& name) {
  constexpr std::array<std::string_view, 6> k_as_they_are = {"aten::to",    "aten::_to_copy",   "aten::detach",
                                                             "aten::alias", "aten::contiguous", "aten::clone"};
  constexpr std::array<std::string_view, 4> k_transposing = {"aten::t", "aten::numpy_T", "aten::t_copy", "aten::mT"};
  if (is_one_of(name, k_as_they_are)) return HandsOn::as_it_is;
  if (is_one_of(name, k_transposing)) return HandsOn::transposed;
  return name == "aten::transpose" || name == "aten::permute" ? HandsOn::by_arguments : HandsOn::no;
}

bool swaps_dimensions(const std::vector<std::int64_t>& dimensions) {
  if (dimensions.size() != 2) return false;
  const auto forward = [](std::int64_t dimension) { return dimension < 0 ? dimension + 2 : dimension; };
  return forward(dimensions[0]) + forward(dimensions[1]) == 1;
}

}  // namespace onebatch
