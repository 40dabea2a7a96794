#include "trainer/io/durable_file.hpp"

#include "trainer/base/error.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <system_error>

namespace onebatch {

DurableFile::DurableFile(const std::filesystem::path& file)
    : file_(file), descriptor_(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) fail("cannot create ");
}

DurableFile::~DurableFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(file_.c_str());
}

void DurableFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot write ");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void DurableFile::commit() {
  if (::fsync(descriptor_) != 0) fail("cannot sync ");
  const int closing = descriptor_;
  descriptor_ = -1;
  if (::close(closing) != 0) fail("cannot close ");
}

void DurableFile::fail(const char* what) const {
  throw std::system_error(errno, std::generic_category(), what + file_.string());
}

void sync_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int result = descriptor < 0 ? -1 : ::fsync(descriptor);
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (result != 0) throw std::system_error(error, std::generic_category(), "cannot sync the folder " + folder.string());
}

void write_text(const std::filesystem::path& file, std::string_view text) {
  DurableFile out(file);
  out.write(std::as_bytes(std::span(text)));
  out.commit();
}

void write_text_atomically(const std::filesystem::path& file, std::string_view text) {
  const std::filesystem::path partial = file.string() + ".partial";
  write_text(partial, text);
  std::filesystem::rename(partial, file);
  sync_folder(file.has_parent_path() ? file.parent_path() : ".");
}

std::string read_text(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) throw UserError("cannot read " + file.string());
  return text.str();
}

}  // namespace onebatch
