// JPEG, PNG and WebP in a folder of class folders, or named by a list.
#include "trainer/base/error.hpp"
#include "trainer/data/images_dataset.hpp"
#include "trainer/settings/key_types.hpp"

#include <cmath>

namespace onebatch {
namespace {

constexpr Changes k_both = Changes::result | Changes::probe;

std::vector<KeyOf<DatasetConfiguration>> image_folder_keys() {
  using D = DatasetConfiguration;
  return {
      integers_key({"image_size", k_both, "images: `[height, width]` of what the model takes", "needed"}, 1,
                   &D::image_size),
      integer_key({"channels", k_both, "images: 3 (red, green, blue) or 1 (grey)"}, 1, 3, &D::channels),
      integer_key({"resize", Changes::result,
                   "images: where no part is drawn, and in validation, the shorter side becomes so many pixels "
                   "long and the middle is cut out; 0 = as 256 is to 224, of the longer side of `image_size`"},
                  0, 1 << 16, &D::resize),
      numbers_key({"mean", k_both,
                   "what is subtracted from pixels of 0 to 1, on the device, a number per channel. Images: `[]` = "
                   "ImageNet's, `[0.485, 0.456, 0.406]`, grey `[0.449]`; safetensors: it says that the first input is "
                   "images in 8 bits, uint8 `[samples, C, H, W]`, and one number may do for all channels; `[]` = whole "
                   "numbers"},
                  {}, &D::mean),
      numbers_key({"std", k_both,
                   "what they are divided by then. Images: `[]` = ImageNet's, `[0.229, 0.224, 0.225]`, grey "
                   "`[0.226]`"},
                  {0.0, HUGE_VAL, true}, &D::deviation),
      choice_key({"on_broken", Changes::result,
                  "images: a file that cannot be read ends the run; `\"skip\"`: it is named once and counts for "
                  "nothing, and all others stay where they are"},
                 {{"stop", OnBroken::stop}, {"skip", OnBroken::skip}}, &D::on_broken)};
}

void check_image_folder(const DatasetConfiguration& data, const CheckRequest& request) {
  if (data.path.empty())
    request.complain("path",
                     "is needed for data.kind = \"image_folder\": a folder of class folders, a .csv or a .jsonl");
  refuse_same_files(data, request);
  check_images(data, request);
}

ImageList list_for(const DatasetConfiguration& data, const OpenRequest& request) {
  const bool validates = request.split == Split::validation;
  return list_images(data.path, validates ? std::optional(request.class_names) : std::nullopt);
}

}  // namespace

DatasetKind image_folder_dataset_kind() {
  DatasetKind kind;
  kind.name = "image_folder";
  kind.keys = image_folder_keys();
  kind.check = check_image_folder;
  kind.open = [](const DatasetConfiguration& data, const OpenRequest& request) {
    return images_dataset(data, listed_images(list_for(data, request)), request);
  };
  kind.count_samples = [](const DatasetConfiguration& data) {
    return static_cast<std::int64_t>(list_images(data.path, std::nullopt).paths.size());
  };
  kind.for_each_file = [](const DatasetConfiguration& data, const OpenRequest& request, const auto& take) {
    const ImageList list = list_for(data, request);
    for (std::size_t i = 0; i < list.paths.size(); ++i) take(list.file(static_cast<std::int64_t>(i)));
  };
  kind.has_many_files = true;
  return kind;
}

}  // namespace onebatch
