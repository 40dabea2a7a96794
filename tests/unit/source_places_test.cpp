#include "trainer/models/source_places.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace onebatch {
namespace {

constexpr const char* k_protocol = "\x80\x02";

std::string text(const std::string& words) {
  return std::string("X") + static_cast<char>(words.size()) + std::string(3, '\0') + words;
}

std::string number(std::int32_t value) {
  std::string bytes = "J";
  for (int shift = 0; shift < 32; shift += 8)
    bytes += static_cast<char>((static_cast<std::uint32_t>(value) >> shift) & 0xff);
  return bytes;
}

std::string integers(const std::vector<std::int32_t>& values) {
  std::string bytes = "ctorch.jit._pickle\nbuild_intlist\n(](";
  for (const std::int32_t value : values) bytes += number(value);
  return bytes + "etR";
}

struct Place {
  std::vector<std::int32_t> pieces = {0, 1};
  std::int32_t file = 2;
  std::int32_t begin = 0;
  std::int32_t end = 8;
};

// As LibTorch writes it: a table of three texts, and one place in "def a: b".
std::string with_table(const Place& place) {
  return k_protocol + text("FORMAT_WITH_STRING_TABLE") + "(" + text("def ") + text("a: b") + text("a.py") + "t" + "(" +
         number(7) + integers(place.pieces) + number(place.file) + number(1) + "\x87" + number(place.begin) +
         number(place.end) + "\x87" + number(0) + "\x87" + "t" + "\x87.";
}

// As it was before there was a table.
std::string without_table(std::int32_t end) {
  return k_protocol + std::string("((") + number(7) + text("def a: b") + "N" + number(1) + "\x87" + number(0) +
         number(end) + "\x87tt.";
}

void check(const std::string& pickle) {
  check_source_places(read_pickle(pickle).value);
}

TEST(SourcePlacesTest, what_libtorch_writes_is_taken) {
  EXPECT_NO_THROW(check(with_table({})));
  EXPECT_NO_THROW(check(with_table({.pieces = {}, .begin = 0, .end = 1})));  // no source
  EXPECT_NO_THROW(check(without_table(8)));
}

TEST(SourcePlacesTest, texts_that_are_not_there_are_refused) {
  EXPECT_THROW(check(with_table({.pieces = {0, 3}})), std::runtime_error);
  EXPECT_THROW(check(with_table({.pieces = {-1}})), std::runtime_error);
  EXPECT_THROW(check(with_table({.file = 3})), std::runtime_error);
  EXPECT_THROW(check(with_table({.file = -1})), std::runtime_error);
}

TEST(SourcePlacesTest, places_outside_of_their_text_are_refused) {
  EXPECT_THROW(check(with_table({.end = 10})), std::runtime_error);
  EXPECT_THROW(check(with_table({.begin = -1})), std::runtime_error);
  EXPECT_THROW(check(with_table({.begin = 5, .end = 4})), std::runtime_error);
  EXPECT_THROW(check(with_table({.begin = 9, .end = 9})), std::runtime_error);
  EXPECT_THROW(check(without_table(10)), std::runtime_error);
}

TEST(SourcePlacesTest, other_forms_are_refused) {
  EXPECT_THROW(check(k_protocol + text("FORMAT_WITH_STRING_TABLE") + "."), std::runtime_error);
  EXPECT_THROW(check(k_protocol + text("FORMAT_WITH_STRING_TABLE") + "(t\x86."), std::runtime_error);
  EXPECT_THROW(check(k_protocol + std::string("((") + number(7) + "tt."), std::runtime_error);
  EXPECT_THROW(check(k_protocol + std::string("((NNtt.")), std::runtime_error);
}

TEST(SourcePlacesTest, what_nests_too_deep_or_in_itself_is_refused) {
  EXPECT_NO_THROW(read_pickle(k_protocol + std::string(")") + std::string(400, '\x85') + "."));
  EXPECT_THROW(read_pickle(k_protocol + std::string(")") + std::string(100000, '\x85') + "."), std::runtime_error);
  EXPECT_THROW(read_pickle(k_protocol + std::string("]q\1(h\1e.", 8)), std::runtime_error);
}

}  // namespace
}  // namespace onebatch
