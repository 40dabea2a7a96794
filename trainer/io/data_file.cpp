#include "trainer/io/data_file.hpp"

#include "trainer/base/error.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace onebatch {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, int error) {
  throw UserError("cannot read " + path.string() + ": " + std::generic_category().message(error));
}

// Closes where it ends.
struct Opened {
  explicit Opened(int opened) : descriptor(opened) {}
  ~Opened() { ::close(descriptor); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  int descriptor;
};

}  // namespace

DataFile::DataFile(std::filesystem::path path, Between between) : path_(std::move(path)) {
  descriptor_ = open_anew();
  try {
    identity_ = identity_of(descriptor_);
  } catch (...) {
    close();
    throw;
  }
  if (between == Between::closed) close();
}

DataFile::~DataFile() {
  close();
}

DataFile::DataFile(DataFile&& other) noexcept
    : path_(std::move(other.path_)), identity_(other.identity_), descriptor_(std::exchange(other.descriptor_, -1)) {}

DataFile& DataFile::operator=(DataFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(identity_, other.identity_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void DataFile::close() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

int DataFile::open_anew() const {
  const int descriptor = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe does not keep us waiting
  if (descriptor < 0) fail(path_, errno);
  return descriptor;
}

DataFile::Identity DataFile::identity_of(int descriptor) const {
  struct stat found {};
  if (::fstat(descriptor, &found) != 0) fail(path_, errno);
  if (!S_ISREG(found.st_mode)) throw UserError("cannot read " + path_.string() + ": it is no file");
  constexpr std::int64_t k_second_ns = 1'000'000'000;
  return {found.st_dev, found.st_ino, static_cast<std::uint64_t>(found.st_size),
          found.st_mtim.tv_sec * k_second_ns + found.st_mtim.tv_nsec};
}

void DataFile::check_unchanged(int descriptor) const {
  const Identity now = identity_of(descriptor);
  if (now == identity_) return;
  throw UserError(
      fmt::format("{} was changed while it is trained on (it had {} bytes, it has {}): leave data as they are "
                  "until the run ends",
                  path_.string(), identity_.bytes, now.bytes));
}

void DataFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  if (descriptor_ >= 0) return read_from(descriptor_, offset, to);
  const Opened opened(open_anew());
  read_from(opened.descriptor, offset, to);
}

void DataFile::read_from(int descriptor, std::uint64_t offset, std::span<std::byte> to) const {
  std::size_t done = 0;
  while (done < to.size()) {
    const ssize_t count = ::pread(descriptor, to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path_, errno);
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  // After the read: what was read is what the file held all the time.
  check_unchanged(descriptor);
  if (done < to.size()) throw UserError(fmt::format("{} ends at byte {}", path_.string(), offset + done));
}

}  // namespace onebatch
