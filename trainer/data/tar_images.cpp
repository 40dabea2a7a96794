#include "trainer/data/tar_images.hpp"

#include "trainer/base/error.hpp"
#include "trainer/data/decoders.hpp"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>

namespace onebatch {
namespace {

class TarImages final : public ImageFiles {
 public:
  explicit TarImages(const DatasetConfiguration& data) : shards_(data, {data.inputs.front(), data.target}) {
    const Decoder decode = decoder_of(data.target);
    for (std::int64_t sample = 0; sample < shards_.size(); ++sample) labels_.push_back(label_of(sample, decode));
    digest_ = shards_.digest() + to_text(checksum_of_bytes(std::as_bytes(std::span(labels_))));
  }

  const std::vector<std::int64_t>& labels() const override { return labels_; }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::string name(std::int64_t sample) const override { return shards_.name(0, sample); }
  std::string digest() const override { return digest_; }
  std::vector<std::uint8_t> bytes(std::int64_t sample) const override {
    const std::vector<std::byte> bytes = shards_.bytes(0, sample);
    const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
    return {begin, begin + bytes.size()};
  }

 private:
  std::int64_t label_of(std::int64_t sample, const Decoder& decode) const {
    try {
      const at::Tensor label = decode(shards_.bytes(1, sample));
      if (label.is_floating_point() || label.numel() != 1 || label.item<std::int64_t>() < 0)
        throw UserError("is no class: images are trained with whole numbers from 0 on");
      return label.item<std::int64_t>();
    } catch (const UserError& error) {
      throw UserError(fmt::format("{} {}", shards_.name(1, sample), error.what()));
    }
  }

  TarShards shards_;
  std::vector<std::int64_t> labels_;
  std::vector<std::string> classes_;  // none have names
  std::string digest_;
};

}  // namespace

bool is_image_column(const std::string& column) {
  constexpr std::array<std::string_view, 4> k_endings = {"jpg", "jpeg", "png", "webp"};
  std::istringstream all(column);
  bool any = false;
  for (std::string one; std::getline(all, one, ';'); any = true) {
    if (std::ranges::find(k_endings, one.substr(one.rfind('.') + 1)) == k_endings.end()) return false;
  }
  return any;
}

std::unique_ptr<ImageFiles> tar_images(const DatasetConfiguration& data) {
  return std::make_unique<TarImages>(data);
}

}  // namespace onebatch
