#include "trainer/io/folder.hpp"

#include "scratch_folder.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <string>
#include <vector>

namespace onebatch {
namespace {

using ::testing::ElementsAre;
using testing::ScratchFolder;
using ::testing::UnorderedElementsAre;

TEST(FolderTest, what_lies_in_it_is_listed_by_name_and_what_cannot_be_read_is_named) {
  const ScratchFolder folder;
  for (const char* name : {"b", "a-b/2", "a/1", "a/.hidden"}) {
    std::filesystem::create_directories((folder / name).parent_path());
    std::ofstream(folder / name) << name;
  }
  std::filesystem::create_directory_symlink(folder / "a", folder / "link");
  std::vector<std::string> names;
  for (const auto& entry : entries_of(folder / "")) names.push_back(entry.path().filename().string());
  EXPECT_THAT(names, ElementsAre("a", "a-b", "b", "link"));
  names.clear();
  for_each_file_below(folder / "", [&](const std::filesystem::directory_entry& file) {
    names.push_back(std::filesystem::relative(file.path().parent_path(), folder / "").string() + " " +
                    file.path().filename().string());
  });
  EXPECT_THAT(names, UnorderedElementsAre(". b", "a .hidden", "a 1", "a-b 2", "a .hidden", "a 1"))
      << "by the link, too";
  try {
    static_cast<void>(entries_of(folder / "b"));
    FAIL() << "a file is no folder";
  } catch (const std::filesystem::filesystem_error& error) {
    EXPECT_EQ(error.path1(), folder / "b");
  }
}

}  // namespace
}  // namespace onebatch
