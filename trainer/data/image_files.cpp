#include "trainer/data/image_files.hpp"

#include "trainer/images/image.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace onebatch {
namespace {

class OpenFile {
 public:
  // A pipe of that name would wait for a writer.
  explicit OpenFile(const std::filesystem::path& file)
      : descriptor_(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (descriptor_ < 0) throw ImageError(fmt::format("cannot be opened: {}", std::strerror(errno)));
  }
  ~OpenFile() { ::close(descriptor_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  [[nodiscard]] std::size_t size() const {
    struct stat about = {};
    if (::fstat(descriptor_, &about) != 0) throw ImageError(fmt::format("cannot be read: {}", std::strerror(errno)));
    if (!S_ISREG(about.st_mode)) throw ImageError("is no file");
    return static_cast<std::size_t>(about.st_size);
  }
  /// How many there were.
  std::size_t read(std::uint8_t* to, std::size_t count) const {
    std::size_t done = 0;
    while (done < count) {
      const ssize_t some = ::read(descriptor_, to + done, count - done);
      if (some < 0 && errno == EINTR) continue;
      if (some < 0) throw ImageError(fmt::format("cannot be read: {}", std::strerror(errno)));
      if (some == 0) break;
      done += static_cast<std::size_t>(some);
    }
    return done;
  }

 private:
  int descriptor_;
};

// Larger ones are no images, whatever their names say.
constexpr std::size_t k_most_bytes = std::size_t{1} << 30;

std::vector<std::uint8_t> bytes_of(const std::filesystem::path& name) {
  const OpenFile file(name);
  const std::size_t size = file.size();
  if (size > k_most_bytes) throw ImageError(fmt::format("has {} bytes: {} are read at most", size, k_most_bytes));
  std::vector<std::uint8_t> bytes(size);
  bytes.resize(file.read(bytes.data(), size));
  return bytes;
}

class ListedImages final : public ImageFiles {
 public:
  explicit ListedImages(ImageList list) : list_(std::move(list)), digest_(to_text(list_.digest())) {}

  const std::vector<std::int64_t>& labels() const override { return list_.labels; }
  const std::vector<std::string>& classes() const override { return list_.classes; }
  std::vector<std::uint8_t> bytes(std::int64_t sample) const override { return bytes_of(list_.file(sample)); }
  std::string name(std::int64_t sample) const override { return list_.file(sample).string(); }
  std::string digest() const override { return digest_; }

 private:
  ImageList list_;
  std::string digest_;
};

}  // namespace

std::unique_ptr<ImageFiles> listed_images(ImageList list) {
  return std::make_unique<ListedImages>(std::move(list));
}

}  // namespace onebatch
