#include "trainer/io/durable_file.hpp"

#include "trainer/base/error.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <system_error>

namespace onebatch {
namespace {

constexpr std::int64_t k_push_bytes = std::int64_t{32} << 20;

}  // namespace

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
  checksum_.update(bytes);
  while (!bytes.empty()) {
    const auto block = bytes.first(std::min(bytes.size(), static_cast<std::size_t>(k_push_bytes)));
    write_block(block);
    bytes = bytes.subspan(block.size());
    if (written_bytes_ - pushed_bytes_ >= k_push_bytes) push_to_disk();
  }
}

// The disk works while more is written, and never has much more to do in the sync at the end, which says nothing of its
// progress until it is over.
void DurableFile::push_to_disk() {
  constexpr unsigned int k_wait = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  static_cast<void>(
      ::sync_file_range(descriptor_, pushed_bytes_, written_bytes_ - pushed_bytes_, SYNC_FILE_RANGE_WRITE));
  const std::int64_t before = std::max(std::int64_t{0}, pushed_bytes_ - k_push_bytes);
  const bool waited = pushed_bytes_ == 0 || ::sync_file_range(descriptor_, before, pushed_bytes_ - before, k_wait) == 0;
  // What is said here fsync says no more; some file systems know nothing of ranges.
  if (!waited && (errno == EIO || errno == ENOSPC || errno == EDQUOT)) fail("cannot write ");
  pushed_bytes_ = written_bytes_;
}

void DurableFile::write_block(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot write ");
    written_bytes_ += written;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

Checksum DurableFile::commit() {
  if (::fsync(descriptor_) != 0) fail("cannot sync ");
  const int closing = descriptor_;
  descriptor_ = -1;
  if (::close(closing) != 0) fail("cannot close ");
  return checksum_.value();
}

void DurableFile::fail(const char* what) const {
  throw std::system_error(errno, std::generic_category(), what + file_.string());
}

namespace {

void sync(const std::filesystem::path& path, int flags, const std::string& called) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  const int result = descriptor < 0 ? -1 : ::fsync(descriptor);
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (result != 0) throw std::system_error(error, std::generic_category(), "cannot sync " + called + path.string());
}

}  // namespace

void sync_folder(const std::filesystem::path& folder) {
  sync(folder, O_DIRECTORY, "the folder ");
}

void copy_durably(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::filesystem::copy_file(from, to);
  sync(to, 0, "");
}

Checksum write_text(const std::filesystem::path& file, std::string_view text) {
  DurableFile out(file);
  out.write(std::as_bytes(std::span(text)));
  return out.commit();
}

Checksum write_atomically(const std::filesystem::path& file,
                          const std::function<Checksum(const std::filesystem::path&)>& write) {
  const std::filesystem::path partial = file.string() + ".partial";
  try {
    const Checksum checksum = write(partial);
    std::filesystem::rename(partial, file);
    sync_folder(file.has_parent_path() ? file.parent_path() : ".");
    return checksum;
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
    throw;
  }
}

Checksum write_text_atomically(const std::filesystem::path& file, std::string_view text) {
  return write_atomically(file, [&](const std::filesystem::path& partial) { return write_text(partial, text); });
}

std::string read_text(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text;
  std::array<char, 65536> block;
  while (in.read(block.data(), block.size()) || in.gcount() > 0)
    text.append(block.data(), static_cast<std::size_t>(in.gcount()));
  if (in.bad() || !in.eof()) throw UserError("cannot read " + file.string());
  return text;
}

}  // namespace onebatch
