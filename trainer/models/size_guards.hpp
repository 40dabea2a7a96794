// Conditions on the inputs' sizes, as torch.export writes them: a forward that decides by a size is traced along the
// example's way alone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace onebatch {

/// The size of an input's dimension; none where there is no such input or dimension.
using SizeOf = std::function<std::optional<std::int64_t>(std::string_view input, std::int64_t dimension)>;

/// Whether a guard such as "(L['x'].size()[1] % 2) == 0" holds, by Python's arithmetic. None where it is more than a
/// comparison of whole numbers and sizes, or its numbers have more than 64 bits.
std::optional<bool> guard_holds(std::string_view guard, const SizeOf& size_of);

/// Whether a guard tells ways of the forward apart. What is only unequal, but for remainders, is of layouts and of
/// sizes of 1, which no operator here is chosen by.
bool guard_decides(std::string_view guard);

}  // namespace onebatch
