#include "trainer/probe/probe_identity.hpp"

#include "tests/unit/scratch_folder.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

TEST(ProbeIdentityTest, another_file_under_the_same_name_is_another) {
  const testing::ScratchFolder folder;
  const fs::path path = folder.path() / "model.pt";
  write(path, "one");
  const auto written = fs::last_write_time(path);
  const std::string before = identity_of_file(path);
  EXPECT_FALSE(before.empty());
  EXPECT_EQ(identity_of_file(path), before);
  fs::last_write_time(path, written + std::chrono::milliseconds(1));
  EXPECT_NE(identity_of_file(path), before) << "of the same size";
  write(path, "three");
  fs::last_write_time(path, written);
  EXPECT_NE(identity_of_file(path), before) << "of the same time";
}

TEST(ProbeIdentityTest, where_there_is_no_file_it_says_nothing) {
  EXPECT_EQ(identity_of_file(""), "");
  EXPECT_EQ(identity_of_file("/nowhere/model.pt"), "");
}

}  // namespace
}  // namespace onebatch
