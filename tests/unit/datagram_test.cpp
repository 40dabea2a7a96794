#include "comm/datagram.hpp"

#include <gtest/gtest.h>

namespace onebatch::comm {
namespace {

TEST(DatagramTest, what_is_written_is_read) {
  const std::string bytes = Datagram{DatagramKind::answer, 0x2a, "all is well"}.to_bytes("key:");
  EXPECT_EQ(bytes, "key:!0000002aall is well");
  const auto read = Datagram::parse(bytes, "key:");
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->kind, DatagramKind::answer);
  EXPECT_EQ(read->number, 0x2aU);
  EXPECT_EQ(read->text, "all is well");
}

TEST(DatagramTest, what_is_no_datagram_is_dropped) {
  for (const char* wrong : {"", "key:", "key:?0000001", "key:x00000001", "key:?0000000G", "key:?+0000001", "lie:?00000001"})
    EXPECT_FALSE(Datagram::parse(wrong, "key:").has_value()) << wrong;
  EXPECT_TRUE(Datagram::parse("key:?00000001", "key:").has_value());
}

TEST(DatagramTest, an_address_has_a_port_that_there_is) {
  EXPECT_EQ(address_text(parse_address("10.0.0.7:40123").value()), "10.0.0.7:40123");
  EXPECT_EQ(address_text(parse_address("10.0.0.7:0").value()), "10.0.0.7:0");
  for (const char* wrong :
       {"", "10.0.0.7", "10.0.0.7:", "10.0.0.7:65536", "10.0.0.7:-1", "10.0.0.7:+1", "10.0.0.7:1 ", "10.0.0:1", "host:1"})
    EXPECT_FALSE(parse_address(wrong).has_value()) << wrong;
}

}  // namespace
}  // namespace onebatch::comm
