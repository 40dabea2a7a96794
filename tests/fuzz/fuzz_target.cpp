#include "tests/fuzz/fuzz_target.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <system_error>

namespace onebatch::fuzz {
namespace {

namespace fs = std::filesystem;

struct OwnFolder {
  OwnFolder() : path(fs::temp_directory_path() / ("onebatch-fuzz-" + std::to_string(getpid()))) {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~OwnFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;

  fs::path path;
};

}  // namespace

std::vector<Target>& targets() {
  static std::vector<Target> known;
  return known;
}

MemoryFile::MemoryFile(std::string_view bytes) : descriptor_(memfd_create("input", MFD_CLOEXEC)) {
  if (descriptor_ < 0 || ::write(descriptor_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    throw std::system_error(errno, std::generic_category(), "cannot make a file in memory");
}

MemoryFile::~MemoryFile() {
  ::close(descriptor_);
}

fs::path MemoryFile::path() const {
  return "/proc/self/fd/" + std::to_string(descriptor_);
}

const fs::path& scratch_folder() {
  static const OwnFolder folder;
  return folder.path;
}

void write_file(const fs::path& file, std::string_view bytes) {
  std::ofstream out(file, std::ios::binary);
  out << bytes;
  out.flush();
  if (!out) throw std::system_error(errno, std::generic_category(), "cannot write " + file.string());
}

std::string read_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace onebatch::fuzz
