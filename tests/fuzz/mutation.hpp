// Damage to a file, drawn by a seed: what a bad disk, a broken transfer or a wrong program makes of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace onebatch::fuzz {

/// One of the inputs with one to four changes: bits, bytes or whole numbers written over, a part cut out, doubled or
/// zeroed, the end cut off, bytes of another input put in. The same for the same `seed` and `number`.
///
/// In every second file the checksums that the format has (PNG's chunks, tar's headers) are made right again: what
/// comes after them would be tried by none else.
std::string mutated(const std::vector<std::string>& inputs, std::uint64_t seed, std::uint64_t number);

}  // namespace onebatch::fuzz
