// One image, from its file to the size that a model takes.
#pragma once

#include "trainer/data/dataset.hpp"
#include "trainer/data/image_files.hpp"
#include "trainer/images/draws.hpp"
#include "trainer/images/resample.hpp"

#include <mutex>
#include <set>
#include <string_view>

namespace onebatch {

/// What becomes of every image.
struct ImageForm {
  ImageSize size;
  std::int64_t channels = 3;
  std::int64_t shorter_side = 0;  // before the centre is cut out
};

/// What the words of a file that stops a run end in.
inline constexpr std::string_view k_stopped_by_it = R"(: mend it, take it out, or write data.on_broken = "skip")";

/// Reads from any number of threads at once.
class ImageReader {
 public:
  ImageReader(std::unique_ptr<ImageFiles> files, const ImageForm& form, const AugmentConfiguration& augment,
              OnBroken on_broken)
      : files_(std::move(files)), form_(form), augment_(augment), on_broken_(on_broken) {}

  [[nodiscard]] const ImageFiles& files() const { return *files_; }
  [[nodiscard]] const ImageForm& form() const { return form_; }
  [[nodiscard]] OnBroken on_broken() const { return on_broken_; }

  /// As it is validated with. None where the file cannot be read and is to be skipped; throws UserError that names it
  /// where it is not.
  [[nodiscard]] std::optional<Image> read(std::int64_t sample) const;
  /// As an epoch trains with it.
  [[nodiscard]] std::optional<Image> read_changed(std::int64_t sample, const Draw& draw) const;
  /// See Dataset.
  [[nodiscard]] std::vector<std::string> take_complaints() const;
  [[nodiscard]] bool has_complaints() const;

 private:
  template <typename Make>
  std::optional<Image> unless_broken(std::int64_t sample, const Make& make) const;
  [[nodiscard]] Image whole(const std::vector<std::uint8_t>& bytes) const;
  [[nodiscard]] Image changed(const std::vector<std::uint8_t>& bytes, Draws& draws) const;

  std::unique_ptr<ImageFiles> files_;
  ImageForm form_;
  AugmentConfiguration augment_;
  OnBroken on_broken_;
  mutable std::mutex mutex_;
  mutable std::set<std::int64_t> skipped_;
  mutable std::vector<std::string> complaints_;
};

}  // namespace onebatch
