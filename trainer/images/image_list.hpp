// Which image files there are and what each shows: of a folder of class folders, as torchvision's ImageFolder lists it,
// or of a list in CSV or JSON lines.
#pragma once

#include "trainer/io/checksum.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace onebatch {

struct ImageList {
  std::filesystem::path root;  // that paths are relative to
  std::vector<std::string> paths;
  std::vector<std::int64_t> labels;
  std::vector<std::string>
      classes;  // in the order of their indices; empty where a list's labels are numbers themselves

  [[nodiscard]] std::filesystem::path file(std::int64_t sample) const {
    return root / paths.at(static_cast<std::size_t>(sample));
  }
  /// Of names and labels, not of what the files hold.
  [[nodiscard]] Checksum digest() const;
};

/// `classes`: those of the training data, for data that is validated with; a class that is none of them is an error.
/// Throws UserError.
ImageList list_images(const std::filesystem::path& path, const std::optional<std::vector<std::string>>& classes);

}  // namespace onebatch
