// What the side channel's datagrams and addresses say, as text: parsed apart from the sockets that they come from.
#pragma once

#include "comm/siphash.hpp"

#include <netinet/in.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace onebatch::comm {

enum class DatagramKind : char { question = '?', answer = '!' };

/// A signature of all that follows it, a kind, a number that an answer shares with its question, and a text. Numbers
/// are hexadecimal digits.
struct Datagram {
  DatagramKind kind = DatagramKind::question;
  std::uint32_t number = 0;
  std::string_view text;  // of the bytes that were parsed

  [[nodiscard]] std::string to_bytes(const SipKey& key) const;
  /// None where the bytes are no datagram that was signed with this key.
  static std::optional<Datagram> parse(std::string_view bytes, const SipKey& key);
};

/// "10.0.0.7:40123"; none where it is no such text.
std::optional<sockaddr_in> parse_address(const std::string& text);
std::string address_text(const sockaddr_in& address);

}  // namespace onebatch::comm
