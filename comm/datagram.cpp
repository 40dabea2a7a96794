#include "comm/datagram.hpp"

#include <arpa/inet.h>

#include <array>
#include <charconv>
#include <cstdio>

namespace onebatch::comm {
namespace {

constexpr std::size_t k_number_digits = 8;

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

std::string Datagram::to_bytes(std::string_view key) const {
  std::array<char, k_number_digits + 1> digits{};
  std::snprintf(digits.data(), digits.size(), "%08x", number);
  std::string bytes(key);
  bytes += static_cast<char>(kind);
  return bytes.append(digits.data()).append(text);
}

std::optional<Datagram> Datagram::parse(std::string_view bytes, std::string_view key) {
  if (bytes.size() < key.size() + 1 + k_number_digits || !bytes.starts_with(key)) return std::nullopt;
  bytes.remove_prefix(key.size());
  const auto kind = static_cast<DatagramKind>(bytes.front());
  const std::string_view digits = bytes.substr(1, k_number_digits);
  if ((kind != DatagramKind::question && kind != DatagramKind::answer) || !is_hex(digits)) return std::nullopt;
  Datagram datagram{kind, 0, bytes.substr(1 + k_number_digits)};
  std::from_chars(digits.data(), digits.data() + digits.size(), datagram.number, 16);
  return datagram;
}

std::optional<sockaddr_in> parse_address(const std::string& text) {
  const std::size_t colon = text.find(':');
  sockaddr_in target{};
  target.sin_family = AF_INET;
  if (colon == std::string::npos || inet_pton(AF_INET, text.substr(0, colon).c_str(), &target.sin_addr) != 1) return std::nullopt;
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
  return std::string(host.data()) + ":" + std::to_string(ntohs(address.sin_port));
}

}  // namespace onebatch::comm
