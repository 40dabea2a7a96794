// What the side channel's datagrams and addresses say, as text: parsed apart from the sockets that they come from.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace onebatch::comm {

enum class DatagramKind : char { question = '?', answer = '!' };

/// The run's key, a kind, a number of eight hexadecimal digits that an answer shares with its question, and a text.
struct Datagram {
  DatagramKind kind = DatagramKind::question;
  std::uint32_t number = 0;
  std::string_view text;  // of the bytes that were parsed

  [[nodiscard]] std::string to_bytes(std::string_view key) const;
  /// None where the bytes are no datagram with this key.
  static std::optional<Datagram> parse(std::string_view bytes, std::string_view key);
};

/// "10.0.0.7:40123"; none where it is no such text.
std::optional<sockaddr_in> parse_address(const std::string& text);
std::string address_text(const sockaddr_in& address);

}  // namespace onebatch::comm
