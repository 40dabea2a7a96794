#include "comm/visible_text.hpp"

#include "comm/local_communicator.hpp"

#include <gmock/gmock.h>

namespace onebatch::comm {
namespace {

TEST(VisibleTextTest, printable_text_stays) {
  EXPECT_EQ(visible_text(""), "");
  EXPECT_EQ(visible_text("rank 1: 3 µs …\nünïcödé 漢字 😀\n"), "rank 1: 3 µs …\nünïcödé 漢字 😀\n");
}

TEST(VisibleTextTest, control_characters_are_shown) {
  EXPECT_EQ(visible_text("a\x1b[2Jb\r\tc\x7f"), "a\\x1b[2Jb\\x0d\\x09c\\x7f");
  EXPECT_EQ(visible_text(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(visible_text("\xc2\x9b"
                         "31m\xc2\x80\xc2\xa0"),
            "\\xc2\\x9b31m\\xc2\\x80\xc2\xa0")
      << "C1 in UTF-8; a space that does not break is none";
}

TEST(VisibleTextTest, what_is_no_utf8_is_shown) {
  EXPECT_EQ(visible_text("\x9b"
                         "2J"),
            "\\x9b2J")
      << "a control character in Latin-1";
  EXPECT_EQ(visible_text("\xc0\x9b"), "\\xc0\\x9b") << "longer than it need be";
  EXPECT_EQ(visible_text("\xe0\x80\x9b"), "\\xe0\\x80\\x9b");
  EXPECT_EQ(visible_text("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a pair";
  EXPECT_EQ(visible_text("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "above the last";
  EXPECT_EQ(visible_text("\xef\xbf\xbe\xef\xbf\xbd"), "\\xef\\xbf\\xbe\xef\xbf\xbd")
      << "no character, and the replacement character";
  EXPECT_EQ(visible_text("\xe6\xbc"), "\\xe6\\xbc") << "cut off";
}

TEST(VisibleTextTest, every_byte_alone_is_printable_or_shown) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    const bool stays = byte == '\n' || (byte >= 0x20 && byte < 0x7f);
    EXPECT_EQ(visible_text(text).size(), stays ? 1U : 4U) << byte;
  }
}

TEST(VisibleTextTest, failures_are_shown_so) {
  ::testing::internal::CaptureStderr();
  say_failure(2, "cannot read \x1b]0;x\a");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::EndsWith("cannot read \\x1b]0;x\\x07\n"));
}

}  // namespace
}  // namespace onebatch::comm
