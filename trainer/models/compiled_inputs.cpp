#include "trainer/models/compiled_inputs.hpp"

#include "trainer/base/shape_text.hpp"
#include "trainer/models/whole_numbers.hpp"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <cstdint>
#include <map>

namespace onebatch {
namespace {

bool fits(const CompiledSignature& takes, const CompiledInput& due, const at::Tensor& tensor,
          std::map<std::string, std::int64_t>& bound) {
  if (tensor.sizes().size() != due.sizes.size()) return false;
  for (std::size_t k = 0; k < due.sizes.size(); ++k) {
    const auto& [fixed, symbol] = due.sizes[k];
    const std::int64_t size = tensor.sizes()[k];
    if (symbol.empty() && size != fixed) return false;
    if (symbol.empty()) continue;
    const auto& range = takes.ranges.at(symbol);
    if (size < range[0] || size > range[1] || bound.emplace(symbol, size).first->second != size) return false;
  }
  return true;
}

// Where a size is beyond what the code was made for.
std::string bounds_text(const CompiledSignature& takes, const CompiledInput& due, const at::Tensor& tensor) {
  for (std::size_t k = 0; k < due.sizes.size() && tensor.sizes().size() == due.sizes.size(); ++k) {
    const auto& symbol = due.sizes[k].symbol;
    if (symbol.empty()) continue;
    const auto& range = takes.ranges.at(symbol);
    const std::int64_t size = tensor.sizes()[k];
    if (size < range[0] || size > range[1])
      return fmt::format(", of which the code takes {} to {} in the place of {}", range[0], range[1], size);
  }
  return "";
}

}  // namespace

bool is_aligned(const at::Tensor& tensor) {
  constexpr std::uintptr_t k_alignment = 16;
  return !tensor.is_cuda() || reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % k_alignment == 0;
}

std::string misfit(const CompiledSignature& takes, std::vector<at::Tensor>& given, Unchecked unchecked) {
  constexpr const char* k_anew = ": compile the program anew, or leave model.compiled out";
  if (given.size() != takes.inputs.size())
    return fmt::format("it takes {} tensors, and the run gives it {}{}", takes.inputs.size(), given.size(), k_anew);
  std::map<std::string, std::int64_t> bound;
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (i >= unchecked.begin && i < unchecked.end) continue;
    const std::size_t number = i < unchecked.end ? i : i - unchecked.end;  // as the model has them
    const CompiledInput& due = takes.inputs[i];
    at::Tensor& tensor = given[i];
    if (const auto whole = whole_type_named(due.type)) {
      if (const std::string why = beyond_type(tensor, *whole); !why.empty())
        return fmt::format("its input {} {}: change the data, or export the program with inputs as it is", number, why);
      tensor = in_whole_type(tensor, *whole);
    }
    if (c10::getDtypeNames(tensor.scalar_type()).first != due.type)
      return fmt::format("its input {} is of type {}, and the run's of {}{}", number, due.type,
                         c10::toString(tensor.scalar_type()), k_anew);
    if (tensor.device() != given.front().device())
      return fmt::format("its input {} lies on {}, and the code runs on {}{}", number, tensor.device().str(),
                         given.front().device().str(), k_anew);
    if (!fits(takes, due, tensor, bound))
      return fmt::format("its input {} does not take the shape {}{}{}", number, shape_text(tensor.sizes()),
                         bounds_text(takes, due, tensor), k_anew);
  }
  return "";
}

at::Tensor as_read(const at::Tensor& input) {
  const at::Tensor whole = input.contiguous();
  return is_aligned(whole) ? whole : whole.clone();
}

}  // namespace onebatch
