#include "trainer/data/image_reader.hpp"

#include "trainer/base/error.hpp"
#include "trainer/images/image_changes.hpp"
#include "trainer/images/random_augment.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

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

}  // namespace

template <typename Make>
std::optional<Image> ImageReader::unless_broken(std::int64_t sample, const Make& make) const {
  try {
    return make(bytes_of(list_.file(sample)));
  } catch (const ImageError& error) {
    const std::string words = list_.file(sample).string() + " " + error.what();
    if (on_broken_ == OnBroken::stop)
      throw UserError(words + R"(: mend it, take it out, or write data.on_broken = "skip")");
    const std::lock_guard lock(mutex_);
    if (skipped_.insert(sample).second) complaints_.push_back(words);
    return std::nullopt;
  }
}

Image ImageReader::whole(const std::vector<std::uint8_t>& bytes) const {
  const ImageHeader header = read_image_header(bytes);
  const ImageSize size = header.size();
  const ImageSize wanted = size_with_shorter_side(size, form_.shorter_side);
  // One of extreme shape would become one of any size.
  if (wanted.height > k_most_pixels / wanted.width)
    throw ImageError(fmt::format("is {} x {}: too long for its width", size.height, size.width));
  return centre_crop(resized(decode_part(bytes, header, {0, 0, size.height, size.width}, size), wanted), form_.size);
}

Image ImageReader::changed(const std::vector<std::uint8_t>& bytes, Draws& draws) const {
  if (!augment_.random_resized_crop) return whole(bytes);
  const ImageHeader header = read_image_header(bytes);
  const ImageBox box = draw_crop(header.size(), augment_, draws);
  return resized(decode_part(bytes, header, box, form_.size), form_.size);
}

std::optional<Image> ImageReader::read(std::int64_t sample) const {
  auto image = unless_broken(sample, [&](const std::vector<std::uint8_t>& bytes) { return whole(bytes); });
  if (image) image = with_channels(*std::move(image), form_.channels);
  return image;
}

std::optional<Image> ImageReader::read_changed(std::int64_t sample, const Draw& draw) const {
  Draws draws(draw.seed, draw.epoch, sample);
  auto image = unless_broken(sample, [&](const std::vector<std::uint8_t>& bytes) { return changed(bytes, draws); });
  if (!image) return image;
  if (augment_.crop_padding > 0) draw_shift(*image, augment_.crop_padding, draws);
  if (augment_.horizontal_flip && draws.coin()) mirror(*image);
  change_colours(*image, augment_, draws);
  return with_channels(*std::move(image), form_.channels);
}

std::vector<std::string> ImageReader::take_complaints() const {
  const std::lock_guard lock(mutex_);
  return std::exchange(complaints_, {});
}

bool ImageReader::has_complaints() const {
  const std::lock_guard lock(mutex_);
  return !complaints_.empty();
}

}  // namespace onebatch
