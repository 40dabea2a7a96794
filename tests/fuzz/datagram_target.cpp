// What comes in over the side channel, and the addresses that ranks tell each other.
#include "comm/datagram.hpp"
#include "tests/fuzz/fuzz_target.hpp"

namespace onebatch::fuzz {
namespace {

constexpr std::string_view k_key = "key:";

void run(std::string_view input) {
  if (const auto datagram = comm::Datagram::parse(input, k_key))
    check(datagram->to_bytes(k_key) == input, "a datagram is all of its bytes");
  const auto address = comm::parse_address(std::string(input));
  if (!address) return;
  const auto again = comm::parse_address(comm::address_text(*address));
  check(again && again->sin_port == address->sin_port && again->sin_addr.s_addr == address->sin_addr.s_addr,
        "an address that is written is read alike");
}

const Registered k_registered("datagram", run);

}  // namespace
}  // namespace onebatch::fuzz
