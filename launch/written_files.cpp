#include "launch/written_files.hpp"

#include "trainer/base/error.hpp"

namespace onebatch::launch {

namespace fs = std::filesystem;

void check_can_be_written(const std::string& option, const fs::path& file) {
  const std::string said = option + " " + file.string();
  std::error_code error;
  if (file.filename().empty() || fs::is_directory(file, error))
    throw UserError(said + " is a folder: write the name of a file in it");
  const fs::path folder = file.parent_path();
  if (!folder.empty() && !fs::is_directory(folder, error))
    throw UserError(said + ": there is no folder " + folder.string() + ": make it first");
}

}  // namespace onebatch::launch
