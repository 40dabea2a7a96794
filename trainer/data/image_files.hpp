// Where images lie that are read as samples: files of their own, or members of shards.
#pragma once

#include "trainer/images/image_list.hpp"

#include <memory>

namespace onebatch {

/// Read from any number of threads at once.
class ImageFiles {
 public:
  virtual ~ImageFiles() = default;
  /// Of every sample, by its number.
  [[nodiscard]] virtual const std::vector<std::int64_t>& labels() const = 0;
  /// In the order of their indices; empty where labels are numbers themselves.
  [[nodiscard]] virtual const std::vector<std::string>& classes() const = 0;
  /// The file as it is. Throws ImageError that does not name it.
  [[nodiscard]] virtual std::vector<std::uint8_t> bytes(std::int64_t sample) const = 0;
  /// How messages call it.
  [[nodiscard]] virtual std::string name(std::int64_t sample) const = 0;
  /// Of names, places and labels, not of what the files hold.
  [[nodiscard]] virtual std::string digest() const = 0;
};

std::unique_ptr<ImageFiles> listed_images(ImageList list);

}  // namespace onebatch
