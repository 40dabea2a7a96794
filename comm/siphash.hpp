// SipHash-2-4 (Aumasson and Bernstein, 2012): a short signature that nobody without the key can make.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace onebatch::comm {

/// Two 64-bit words, as the paper's k0 and k1.
using SipKey = std::array<std::uint64_t, 2>;

std::uint64_t siphash(const SipKey& key, std::string_view bytes);

}  // namespace onebatch::comm
