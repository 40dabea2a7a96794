#include "trainer/images/random_augment.hpp"

#include "trainer/images/colours.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

namespace onebatch {
namespace {

struct Operation {
  std::string name;
  bool has_sign;
  /// `part` of the way from the least to the most, 0 to 1, and 1 or -1.
  std::function<void(Image&, double part, double sign)> apply;
};

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = {
      {"Identity", false, [](Image&, double, double) {}},
      {"ShearX", true, [](Image& i, double part, double sign) { transform(i, shear_map(sign * part * 0.3, 0.0)); }},
      {"ShearY", true, [](Image& i, double part, double sign) { transform(i, shear_map(0.0, sign * part * 0.3)); }},
      {"TranslateX", true,
       [](Image& i, double part, double sign) {
         const double most = 150.0 / 331.0 * static_cast<double>(i.width);
         transform(i, translation_map(std::trunc(sign * part * most), 0.0));
       }},
      {"TranslateY", true,
       [](Image& i, double part, double sign) {
         const double most = 150.0 / 331.0 * static_cast<double>(i.height);
         transform(i, translation_map(0.0, std::trunc(sign * part * most)));
       }},
      {"Rotate", true,
       [](Image& i, double part, double sign) {
         transform(i, rotation_map(sign * part * 30.0, {i.height, i.width}));
       }},
      {"Brightness", true, [](Image& i, double part, double sign) { adjust_brightness(i, 1.0 + sign * part * 0.9); }},
      {"Color", true, [](Image& i, double part, double sign) { adjust_saturation(i, 1.0 + sign * part * 0.9); }},
      {"Contrast", true, [](Image& i, double part, double sign) { adjust_contrast(i, 1.0 + sign * part * 0.9); }},
      {"Sharpness", true, [](Image& i, double part, double sign) { adjust_sharpness(i, 1.0 + sign * part * 0.9); }},
      {"Posterize", false,
       [](Image& i, double part, double) { posterize(i, 8 - static_cast<int>(std::nearbyint(part * 4.0))); }},
      {"Solarize", false, [](Image& i, double part, double) { solarize(i, 255.0 - part * 255.0); }},
      {"AutoContrast", false, [](Image& i, double, double) { autocontrast(i); }},
      {"Equalize", false, [](Image& i, double, double) { equalize(i); }}};
  return all;
}

constexpr std::int64_t k_last_bin = 30;

void apply(const Operation& operation, Image& image, std::int64_t bin, Sign sign) {
  const double part = static_cast<double>(bin) / static_cast<double>(k_last_bin);
  operation.apply(image, part, operation.has_sign && sign == Sign::negative ? -1.0 : 1.0);
}

void jitter(Image& image, const AugmentConfiguration& augment, Draws& draws) {
  std::array<int, 4> order = {0, 1, 2, 3};
  for (std::size_t i = order.size() - 1; i > 0; --i)
    std::swap(order[i], order[static_cast<std::size_t>(draws.below(static_cast<std::int64_t>(i + 1)))]);
  const auto factor = [&](double most) { return draws.uniform(std::max(0.0, 1.0 - most), 1.0 + most); };
  const double brightness = factor(augment.brightness);
  const double contrast = factor(augment.contrast);
  const double saturation = factor(augment.saturation);
  const double hue = draws.uniform(-augment.hue, augment.hue);
  for (const int which : order) {
    if (which == 0 && augment.brightness > 0.0) adjust_brightness(image, brightness);
    if (which == 1 && augment.contrast > 0.0) adjust_contrast(image, contrast);
    if (which == 2 && augment.saturation > 0.0) adjust_saturation(image, saturation);
    if (which == 3 && augment.hue > 0.0) adjust_hue(image, hue);
  }
}

}  // namespace

const std::vector<std::string>& rand_augment_operations() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Operation& operation : operations()) all.push_back(operation.name);
    return all;
  }();
  return names;
}

void apply_operation(Image& image, const std::string& name, std::int64_t bin, Sign sign) {
  apply(*std::ranges::find(operations(), name, &Operation::name), image, bin, sign);
}

void change_colours(Image& image, const AugmentConfiguration& augment, Draws& draws) {
  for (std::int64_t i = 0; i < augment.rand_augment_ops; ++i) {
    const auto& all = operations();
    const Operation& operation = all[static_cast<std::size_t>(draws.below(static_cast<std::int64_t>(all.size())))];
    const Sign sign = draws.coin() ? Sign::negative : Sign::positive;
    apply(operation, image, augment.rand_augment_magnitude, sign);
  }
  if (augment.brightness > 0.0 || augment.contrast > 0.0 || augment.saturation > 0.0 || augment.hue > 0.0)
    jitter(image, augment, draws);
}

}  // namespace onebatch
