#include "trainer/models/exported_symbols.hpp"

#include "trainer/base/error.hpp"

#include <ATen/core/Tensor.h>

#include <cmath>
#include <map>

namespace onebatch {
namespace {

using c10::IValue;
using Arguments = at::ArrayRef<IValue>;
using Function = IValue (*)(Arguments);

struct Entry {
  std::size_t arguments;
  Function function;
};

double real(const IValue& value) {
  return value.toScalar().toDouble();
}

bool is_whole(Arguments given) {
  for (const IValue& value : given) {
    if (value.isDouble()) return false;
  }
  return true;
}

std::int64_t whole(const IValue& value) {
  return value.isBool() ? static_cast<std::int64_t>(value.toBool()) : value.toInt();
}

[[noreturn]] void fail(const std::string& what) {
  throw UserError("a size that the exported program computes " + what);
}

template <typename Whole, typename Real>
IValue arithmetic(Arguments given, const Whole& of_whole, const Real& of_real) {
  if (!is_whole(given)) return of_real(real(given[0]), real(given[1]));
  std::int64_t result = 0;
  if (of_whole(whole(given[0]), whole(given[1]), &result)) fail("is too large for a number of 64 bits");
  return result;
}

IValue add(Arguments given) {
  return arithmetic(
      given, [](std::int64_t a, std::int64_t b, std::int64_t* r) { return __builtin_add_overflow(a, b, r); },
      [](double a, double b) { return a + b; });
}
IValue subtract(Arguments given) {
  return arithmetic(
      given, [](std::int64_t a, std::int64_t b, std::int64_t* r) { return __builtin_sub_overflow(a, b, r); },
      [](double a, double b) { return a - b; });
}
IValue multiply(Arguments given) {
  return arithmetic(
      given, [](std::int64_t a, std::int64_t b, std::int64_t* r) { return __builtin_mul_overflow(a, b, r); },
      [](double a, double b) { return a * b; });
}

// As Python rounds: towards minus infinity.
bool divide_whole(std::int64_t a, std::int64_t b, std::int64_t* result) {
  if (b == 0) fail("divides by zero");
  if (a == INT64_MIN && b == -1) return true;
  *result = a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
  return false;
}

bool remainder_whole(std::int64_t a, std::int64_t b, std::int64_t* result) {
  if (b == 0) fail("divides by zero");
  *result = b == -1 ? 0 : a % b;
  if (*result != 0 && (*result < 0) != (b < 0)) *result += b;
  return false;
}

IValue floor_divide(Arguments given) {
  return arithmetic(given, divide_whole, [](double a, double b) { return std::floor(a / b); });
}
IValue modulo(Arguments given) {
  return arithmetic(given, remainder_whole, [](double a, double b) { return a - b * std::floor(a / b); });
}
IValue divide(Arguments given) {
  if (real(given[1]) == 0.0) fail("divides by zero");
  return real(given[0]) / real(given[1]);
}
IValue power(Arguments given) {
  return arithmetic(
      given,
      [](std::int64_t a, std::int64_t b, std::int64_t* result) {
        constexpr std::int64_t k_most = 63;
        if (b < 0 || (b > k_most && a != 0 && a != 1)) return true;
        *result = 1;
        bool overflows = false;
        for (std::int64_t i = 0; i < std::min(b, k_most); ++i) overflows |= __builtin_mul_overflow(*result, a, result);
        return overflows;
      },
      [](double a, double b) { return std::pow(a, b); });
}

template <typename Compare>
IValue compared(Arguments given) {
  if (is_whole(given)) return Compare()(whole(given[0]), whole(given[1]));
  return Compare()(real(given[0]), real(given[1]));
}

IValue negative(Arguments given) {
  return is_whole(given) ? subtract({IValue(std::int64_t{0}), given[0]}) : IValue(-real(given[0]));
}

IValue to_whole(double value) {
  constexpr double k_beyond = 9.2e18;
  if (!(std::abs(value) < k_beyond)) fail("is too large for a number of 64 bits");
  return static_cast<std::int64_t>(value);
}

IValue larger(Arguments given) {
  return compared<std::greater<>>(given).toBool() ? given[0] : given[1];
}
IValue smaller(Arguments given) {
  return compared<std::greater<>>(given).toBool() ? given[1] : given[0];
}

IValue shifted_left(Arguments given) {
  return multiply({given[0], power({IValue(std::int64_t{2}), given[1]})});
}
IValue shifted_right(Arguments given) {
  return floor_divide({given[0], power({IValue(std::int64_t{2}), given[1]})});
}

IValue size_of(Arguments given) {
  return given[0].toTensor().size(given[1].toInt());
}
IValue stride_of(Arguments given) {
  return given[0].toTensor().stride(given[1].toInt());
}

const std::map<std::string, Entry>& table() {
  static const std::map<std::string, Entry> entries = {
      {"_operator.add", {2, add}},
      {"_operator.sub", {2, subtract}},
      {"_operator.mul", {2, multiply}},
      {"_operator.floordiv", {2, floor_divide}},
      {"_operator.mod", {2, modulo}},
      {"_operator.truediv", {2, divide}},
      {"_operator.pow", {2, power}},
      {"_operator.lshift", {2, shifted_left}},
      {"_operator.rshift", {2, shifted_right}},
      {"_operator.neg", {1, negative}},
      {"_operator.pos", {1, [](Arguments given) { return given[0]; }}},
      {"_operator.eq", {2, compared<std::equal_to<>>}},
      {"_operator.ne", {2, compared<std::not_equal_to<>>}},
      {"_operator.le", {2, compared<std::less_equal<>>}},
      {"_operator.lt", {2, compared<std::less<>>}},
      {"_operator.ge", {2, compared<std::greater_equal<>>}},
      {"_operator.gt", {2, compared<std::greater<>>}},
      {"_operator.and_", {2, [](Arguments given) { return IValue(given[0].toBool() && given[1].toBool()); }}},
      {"_operator.or_", {2, [](Arguments given) { return IValue(given[0].toBool() || given[1].toBool()); }}},
      {"math.trunc", {1, [](Arguments given) { return to_whole(std::trunc(real(given[0]))); }}},
      {"math.floor", {1, [](Arguments given) { return to_whole(std::floor(real(given[0]))); }}},
      {"math.ceil", {1, [](Arguments given) { return to_whole(std::ceil(real(given[0]))); }}},
      {"math.sqrt", {1, [](Arguments given) { return IValue(std::sqrt(real(given[0]))); }}},
      {"torch.sym_int", {1, [](Arguments given) { return to_whole(std::trunc(real(given[0]))); }}},
      {"torch.sym_float", {1, [](Arguments given) { return IValue(real(given[0])); }}},
      {"torch.sym_not", {1, [](Arguments given) { return IValue(!given[0].toBool()); }}},
      {"torch.sym_sqrt", {1, [](Arguments given) { return IValue(std::sqrt(real(given[0]))); }}},
      {"torch._sym_sqrt", {1, [](Arguments given) { return IValue(std::sqrt(real(given[0]))); }}},
      {"torch.sym_max", {2, larger}},
      {"torch.sym_min", {2, smaller}},
      {"torch.sym_ite", {3, [](Arguments given) { return given[0].toBool() ? given[1] : given[2]; }}},
      {"torch.ops.aten.sym_size.int", {2, size_of}},
      {"torch.ops.aten.sym_stride.int", {2, stride_of}},
      {"torch.ops.aten.sym_numel.default", {1, [](Arguments given) { return IValue(given[0].toTensor().numel()); }}}};
  return entries;
}

}  // namespace

std::optional<SymbolOperator> symbol_operator(const std::string& target) {
  const auto found = table().find(target);
  if (found == table().end()) return std::nullopt;
  const Function function = found->second.function;
  return SymbolOperator{found->second.arguments, [function](torch::jit::Stack& stack) {
                          IValue result = function(stack);
                          stack.clear();
                          stack.push_back(std::move(result));
                        }};
}

}  // namespace onebatch
