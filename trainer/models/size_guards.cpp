#include "trainer/models/size_guards.hpp"

#include <array>
#include <charconv>

namespace onebatch {
namespace {

using Number = std::optional<std::int64_t>;

constexpr std::size_t k_longest = 500;  // characters, and so the deepest parentheses

class GuardReader {
 public:
  GuardReader(std::string_view text, const SizeOf& size_of) : left_(text), size_of_(size_of) {}

  std::optional<bool> comparison() {
    const Number a = sum();
    static constexpr std::array k_signs = {"==", "!=", "<=", ">=", "<", ">"};
    for (const std::string_view sign : k_signs) {
      if (!take(sign)) continue;
      const Number b = sum();
      if (!a || !b || !left_.empty()) return std::nullopt;
      if (sign == "==") return *a == *b;
      if (sign == "!=") return *a != *b;
      if (sign == "<=") return *a <= *b;
      if (sign == ">=") return *a >= *b;
      return sign == "<" ? *a < *b : *a > *b;
    }
    return std::nullopt;
  }

 private:
  bool take(std::string_view text) {
    while (left_.starts_with(' ')) left_.remove_prefix(1);
    if (!left_.starts_with(text)) return false;
    left_.remove_prefix(text.size());
    while (left_.starts_with(' ')) left_.remove_prefix(1);
    return true;
  }

  Number sum() {
    Number value = product();
    for (;;) {
      const bool plus = take("+");
      if (!plus && !take("-")) return value;
      const Number other = product();
      std::int64_t made = 0;
      if (!value || !other) return std::nullopt;
      if (plus ? __builtin_add_overflow(*value, *other, &made) : __builtin_sub_overflow(*value, *other, &made))
        return std::nullopt;
      value = made;
    }
  }

  Number product() {
    Number value = atom();
    for (;;) {
      const bool quotient = take("//");
      const bool remainder = !quotient && take("%");
      if (!quotient && !remainder && !take("*")) return value;
      const Number other = atom();
      if (!value || !other) return std::nullopt;
      if (quotient || remainder) {
        value = divided(*value, *other, quotient);
      } else {
        std::int64_t made = 0;
        if (__builtin_mul_overflow(*value, *other, &made)) return std::nullopt;
        value = made;
      }
    }
  }

  // Rounded down, as Python does.
  static Number divided(std::int64_t a, std::int64_t b, bool quotient) {
    if (b <= 0) return std::nullopt;
    const std::int64_t down = a / b - (a % b < 0 ? 1 : 0);
    return quotient ? down : a - down * b;
  }

  Number atom() {
    if (take("(")) {
      const Number value = sum();
      return take(")") ? value : std::nullopt;
    }
    if (take("L['")) {
      const std::string_view name = left_.substr(0, left_.find('\''));
      left_.remove_prefix(name.size());
      if (!take("'].size()[")) return std::nullopt;
      const Number dimension = whole_number();
      return dimension && take("]") ? size_of_(name, *dimension) : std::nullopt;
    }
    return whole_number();
  }

  Number whole_number() {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(left_.data(), left_.data() + left_.size(), value);
    if (error != std::errc()) return std::nullopt;
    left_.remove_prefix(static_cast<std::size_t>(end - left_.data()));
    return value;
  }

  std::string_view left_;
  const SizeOf& size_of_;
};

}  // namespace

std::optional<bool> guard_holds(std::string_view guard, const SizeOf& size_of) {
  if (guard.size() > k_longest) return std::nullopt;
  return GuardReader(guard, size_of).comparison();
}

bool guard_decides(std::string_view guard) {
  return guard.find("!=") == std::string_view::npos || guard.find('%') != std::string_view::npos;
}

}  // namespace onebatch
