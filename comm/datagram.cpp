#include "comm/datagram.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <array>
#include <charconv>

namespace onebatch::comm {
namespace {

constexpr std::size_t k_signature_digits = 16;
constexpr std::size_t k_number_digits = 8;

template <typename Number>
bool read_hex(std::string_view digits, Number& number) {
  if (digits.find_first_not_of("0123456789abcdef") != std::string_view::npos) return false;
  return std::from_chars(digits.data(), digits.data() + digits.size(), number, 16).ec == std::errc();
}

}  // namespace

std::string Datagram::to_bytes(const SipKey& key) const {
  const std::string said = fmt::format("{}{:0{}x}{}", static_cast<char>(kind), number, k_number_digits, text);
  return fmt::format("{:0{}x}{}", siphash(key, said), k_signature_digits, said);
}

std::optional<Datagram> Datagram::parse(std::string_view bytes, const SipKey& key) {
  if (bytes.size() < k_signature_digits + 1 + k_number_digits) return std::nullopt;
  std::uint64_t signature = 0;
  const bool has_signature = read_hex(bytes.substr(0, k_signature_digits), signature);
  bytes.remove_prefix(k_signature_digits);
  if (!has_signature || signature != siphash(key, bytes)) return std::nullopt;
  Datagram datagram{static_cast<DatagramKind>(bytes.front()), 0, bytes.substr(1 + k_number_digits)};
  if (datagram.kind != DatagramKind::question && datagram.kind != DatagramKind::answer) return std::nullopt;
  return read_hex(bytes.substr(1, k_number_digits), datagram.number) ? std::optional(datagram) : std::nullopt;
}

std::optional<sockaddr_in> parse_address(const std::string& text) {
  const std::size_t colon = text.find(':');
  sockaddr_in target{};
  target.sin_family = AF_INET;
  if (colon == std::string::npos || inet_pton(AF_INET, text.substr(0, colon).c_str(), &target.sin_addr) != 1)
    return std::nullopt;
  std::uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + colon + 1, end, port);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  target.sin_port = htons(port);
  return target;
}

std::string address_text(const sockaddr_in& address) {
  std::array<char, INET_ADDRSTRLEN> host{};
  if (inet_ntop(AF_INET, &address.sin_addr, host.data(), host.size()) == nullptr) return {};
  return fmt::format("{}:{}", host.data(), ntohs(address.sin_port));
}

}  // namespace onebatch::comm
