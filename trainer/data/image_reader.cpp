#include "trainer/data/image_reader.hpp"

#include "trainer/base/error.hpp"
#include "trainer/images/image_changes.hpp"
#include "trainer/images/random_augment.hpp"

#include <fmt/format.h>

#include <utility>

namespace onebatch {
template <typename Make>
std::optional<Image> ImageReader::unless_broken(std::int64_t sample, const Make& make) const {
  try {
    return make(files_->bytes(sample));
  } catch (const ImageError& error) {
    const std::string words = files_->name(sample) + " " + error.what();
    if (on_broken_ == OnBroken::stop) throw UserError(words + std::string(k_stopped_by_it));
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
