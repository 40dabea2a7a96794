// What comes in over the side channel, and the addresses that ranks tell each other.
#include "comm/datagram.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <array>
#include <cstdio>

namespace onebatch::fuzz {
namespace {

constexpr comm::SipKey k_key = {0x0706050403020100U, 0x0f0e0d0c0b0a0908U};

void check_datagram(std::string_view bytes) {
  if (const auto datagram = comm::Datagram::parse(bytes, k_key))
    check(datagram->to_bytes(k_key) == bytes, "a datagram is all of its bytes");
}

void run(std::string_view input) {
  check_datagram(input);
  // What is made up has no signature: with one it gets further.
  std::array<char, 17> signature{};
  std::snprintf(signature.data(), signature.size(), "%016llx",
                static_cast<unsigned long long>(comm::siphash(k_key, input)));
  check_datagram(signature.data() + std::string(input));
  const auto address = comm::parse_address(std::string(input));
  if (!address) return;
  const auto again = comm::parse_address(comm::address_text(*address));
  check(again && again->sin_port == address->sin_port && again->sin_addr.s_addr == address->sin_addr.s_addr,
        "an address that is written is read alike");
}

const Registered k_registered("datagram", run);

}  // namespace
}  // namespace onebatch::fuzz
