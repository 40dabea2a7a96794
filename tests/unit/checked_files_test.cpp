#include "trainer/models/checked_files.hpp"

#include "tests/unit/scratch_folder.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace onebatch {
namespace {

using testing::ScratchFolder;
using testing::write_bytes;

TEST(CheckedFilesTest, a_file_is_checked_once_until_it_changes) {
  const ScratchFolder folder;
  const std::string file = folder / "model.pt";
  int checks = 0;
  const auto check = [&] { check_once(file, [&] { ++checks; }); };
  write_bytes(file, "one");
  check();
  check();
  EXPECT_EQ(checks, 1);
  write_bytes(file, "longer");
  check();
  EXPECT_EQ(checks, 2);
  write_bytes(folder / "other", "longer");
  std::filesystem::rename(folder / "other", file);
  check();
  EXPECT_EQ(checks, 3);
}

TEST(CheckedFilesTest, what_was_refused_or_is_not_there_is_checked_again) {
  const ScratchFolder folder;
  const std::string file = folder / "model.pt";
  int checks = 0;
  check_once(file, [&] { ++checks; });
  check_once(file, [&] { ++checks; });
  EXPECT_EQ(checks, 2);
  write_bytes(file, "one");
  EXPECT_THROW(check_once(file, [] { throw std::runtime_error("damaged"); }), std::runtime_error);
  check_once(file, [&] { ++checks; });
  EXPECT_EQ(checks, 3);
}

}  // namespace
}  // namespace onebatch
