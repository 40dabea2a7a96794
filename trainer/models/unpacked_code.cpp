#include "trainer/models/unpacked_code.hpp"

#include <link.h>

#include <string>
#include <system_error>
#include <vector>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> loaded_libraries() {
  std::vector<fs::path> files;
  const auto note = [](dl_phdr_info* library, std::size_t /*bytes*/, void* found) {
    static_cast<std::vector<fs::path>*>(found)->emplace_back(library->dlpi_name);
    return 0;
  };
  ::dl_iterate_phdr(note, &files);
  return files;
}

// By mkdtemp() and what a package has in it: nothing else is removed, whatever is loaded meanwhile.
bool is_of_libtorch(const fs::path& file, const std::string& folder) {
  constexpr std::size_t k_drawn = 6;
  return folder.size() == k_drawn && file.string().find("/data/aotinductor/model/") != std::string::npos;
}

}  // namespace

std::set<fs::path> folders_of_code(const fs::path& parent) {
  std::set<fs::path> folders;
  for (const fs::path& file : loaded_libraries()) {
    const fs::path below = file.lexically_relative(parent);
    if (!below.empty() && is_of_libtorch(file, *below.begin())) folders.insert(parent / *below.begin());
  }
  return folders;
}

void remove_new_folders_of_code(const std::set<fs::path>& before, const fs::path& parent) {
  for (const fs::path& folder : folders_of_code(parent)) {
    std::error_code ignored;  // it stays to the end, then
    if (!before.contains(folder)) fs::remove_all(folder, ignored);
  }
}

}  // namespace onebatch
