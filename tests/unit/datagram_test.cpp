#include "comm/datagram.hpp"

#include <gtest/gtest.h>

namespace onebatch::comm {
namespace {

constexpr SipKey k_key = {0x0706050403020100U, 0x0f0e0d0c0b0a0908U};
constexpr SipKey k_other_key = {0x0706050403020100U, 0x0f0e0d0c0b0a0909U};

// The algorithm's authors' own table (vectors.h): the bytes 0, 1, 2, … under the key 00 01 … 0f.
TEST(SipHashTest, signatures_are_the_published_ones) {
  const std::array<std::pair<std::size_t, std::uint64_t>, 11> published = {{{0, 0x726fdb47dd0e0e31U},
                                                                            {1, 0x74f839c593dc67fdU},
                                                                            {2, 0x0d6c8009d9a94f5aU},
                                                                            {3, 0x85676696d7fb7e2dU},
                                                                            {4, 0xcf2794e0277187b7U},
                                                                            {5, 0x18765564cd99a68dU},
                                                                            {6, 0xcbc9466e58fee3ceU},
                                                                            {7, 0xab0200f58b01d137U},
                                                                            {8, 0x93f5f5799a932462U},
                                                                            {15, 0xa129ca6149be45e5U},
                                                                            {63, 0x958a324ceb064572U}}};
  std::string bytes;
  for (char byte = 0; byte < 64; ++byte) bytes += byte;
  for (const auto& [length, signature] : published)
    EXPECT_EQ(siphash(k_key, std::string_view(bytes).substr(0, length)), signature) << length;
}

TEST(DatagramTest, what_is_written_is_read) {
  const std::string bytes = Datagram{DatagramKind::answer, 0x2a, "all is well"}.to_bytes(k_key);
  EXPECT_EQ(bytes.substr(16), "!0000002aall is well");
  const auto read = Datagram::parse(bytes, k_key);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->kind, DatagramKind::answer);
  EXPECT_EQ(read->number, 0x2aU);
  EXPECT_EQ(read->text, "all is well");
}

TEST(DatagramTest, an_altered_one_is_dropped_whatever_byte_it_is) {
  const std::string bytes = Datagram{DatagramKind::question, 1, "well"}.to_bytes(k_key);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string altered = bytes;
    altered[i] = altered[i] == '1' ? '2' : '1';
    EXPECT_FALSE(Datagram::parse(altered, k_key).has_value()) << altered;
  }
  EXPECT_FALSE(Datagram::parse(bytes + " ", k_key).has_value());
  EXPECT_FALSE(Datagram::parse(bytes, k_other_key).has_value());
}

TEST(DatagramTest, the_key_is_not_in_it) {
  const std::string bytes = Datagram{DatagramKind::question, 1, ""}.to_bytes(k_key);
  for (const char* part : {"07060504", "00010203", "0f0e0d0c", "08090a0b"})
    EXPECT_EQ(bytes.find(part), std::string::npos) << bytes;
}

// Signed, so that it is what follows that is judged.
std::string signed_text(const std::string& said) {
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(siphash(k_key, said)));
  return digits.data() + said;
}

TEST(DatagramTest, what_is_no_datagram_is_dropped) {
  for (const char* wrong : {"", "?", "?0000001", "x00000001", "?0000000G", "?+0000001"})
    EXPECT_FALSE(Datagram::parse(signed_text(wrong), k_key).has_value()) << wrong;
  EXPECT_FALSE(Datagram::parse("", k_key).has_value());
  EXPECT_TRUE(Datagram::parse(signed_text("?00000001"), k_key).has_value());
}

TEST(DatagramTest, an_address_has_a_port_that_there_is) {
  EXPECT_EQ(address_text(parse_address("10.0.0.7:40123").value()), "10.0.0.7:40123");
  EXPECT_EQ(address_text(parse_address("10.0.0.7:0").value()), "10.0.0.7:0");
  for (const char* wrong : {"", "10.0.0.7", "10.0.0.7:", "10.0.0.7:65536", "10.0.0.7:-1", "10.0.0.7:+1", "10.0.0.7:1 ",
                            "10.0.0:1", "host:1"})
    EXPECT_FALSE(parse_address(wrong).has_value()) << wrong;
}

}  // namespace
}  // namespace onebatch::comm
