// Does to images what a line of its input asks for, for tests that compare with PIL and torchvision: fields are
// separated by tabs. Answers "ok HEIGHT WIDTH CHANNELS" and the pixels, or "error WORDS".
#include "trainer/base/configuration.hpp"
#include "trainer/images/colours.hpp"
#include "trainer/images/image_changes.hpp"
#include "trainer/images/image_list.hpp"
#include "trainer/images/image_mixing.hpp"
#include "trainer/images/random_augment.hpp"
#include "trainer/images/resample.hpp"

#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>

namespace onebatch {
namespace {

using Fields = std::vector<std::string>;

std::vector<std::uint8_t> bytes_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::int64_t whole(const Fields& fields, std::size_t at) {
  return std::stoll(fields.at(at));
}

// FILE TOP LEFT HEIGHT WIDTH, then the size that is wanted.
Image part(const Fields& f) {
  const auto bytes = bytes_of(f.at(1));
  const ImageSize size{whole(f, 6), whole(f, 7)};
  const ImageBox box{whole(f, 2), whole(f, 3), whole(f, 4), whole(f, 5)};
  return resized(decode_part(bytes, read_image_header(bytes), box, size), size);
}

// FILE SHORTER HEIGHT WIDTH
Image middle(const Fields& f) {
  const Image image = decode_image(bytes_of(f.at(1)));
  const ImageSize wanted = size_with_shorter_side({image.height, image.width}, whole(f, 2));
  return centre_crop(resized(image, wanted), {whole(f, 3), whole(f, 4)});
}

// FILE NAME NUMBER
Image changed(const Fields& f) {
  Image image = decode_image(bytes_of(f.at(1)));
  const double by = std::stod(f.at(3));
  static const std::map<std::string, std::function<void(Image&, double)>> all = {{"brightness", adjust_brightness},
                                                                                 {"contrast", adjust_contrast},
                                                                                 {"saturation", adjust_saturation},
                                                                                 {"sharpness", adjust_sharpness},
                                                                                 {"hue", adjust_hue},
                                                                                 {"mirror", [](Image& i, double) { mirror(i); }}};
  all.at(f.at(2))(image, by);
  return image;
}

// FILE OPERATION BIN SIGN
Image operated(const Fields& f) {
  Image image = decode_image(bytes_of(f.at(1)));
  apply_operation(image, f.at(2), whole(f, 3), whole(f, 4) < 0 ? Sign::negative : Sign::positive);
  return image;
}

Image with_words(const std::string& words) {
  Image image(1, static_cast<std::int64_t>(words.size()), 1);
  std::copy(words.begin(), words.end(), image.pixels.begin());
  return image;
}

// HEIGHT WIDTH COUNT: boxes that are drawn.
Image boxes(const Fields& f) {
  std::ostringstream words;
  for (std::int64_t sample = 0; sample < whole(f, 3); ++sample) {
    Draws draws(1, 0, sample);
    const ImageBox box = draw_crop({whole(f, 1), whole(f, 2)}, {}, draws);
    words << box.top << ' ' << box.left << ' ' << box.height << ' ' << box.width << '\n';
  }
  return with_words(words.str());
}

// ALPHA COUNT HEIGHT WIDTH KIND: partner, share and box of each.
Image mixes(const Fields& f) {
  std::ostringstream words;
  AugmentConfiguration augment;
  (f.at(5) == "cut" ? augment.cutmix_alpha : augment.mixup_alpha) = std::stod(f.at(1));
  words.precision(17);
  for (std::int64_t sample = 0; sample < whole(f, 2); ++sample) {
    const Mix mix = draw_mix(augment, {1, 0, sample}, whole(f, 2), {whole(f, 3), whole(f, 4)});
    words << mix.partner << ' ' << mix.share << ' ' << mix.box.top << ' ' << mix.box.left << ' ' << mix.box.height
          << ' ' << mix.box.width << '\n';
  }
  return with_words(words.str());
}

Image list(const Fields& f) {
  const ImageList list = list_images(f.at(1), std::nullopt);
  std::ostringstream words;
  for (std::size_t i = 0; i < list.paths.size(); ++i) words << list.labels[i] << ' ' << list.paths[i] << '\n';
  return with_words(words.str());
}

Image answer(const Fields& fields) {
  static const std::map<std::string, std::function<Image(const Fields&)>> all = {
      {"decode", [](const Fields& f) { return decode_image(bytes_of(f.at(1))); }},
      {"part", part},
      {"middle", middle},
      {"change", changed},
      {"operate", operated},
      {"grey", [](const Fields& f) { return with_channels(decode_image(bytes_of(f.at(1))), 1); }},
      {"boxes", boxes},
      {"mixes", mixes},
      {"list", list}};
  return all.at(fields.at(0))(fields);
}

void run(const std::string& line) {
  Fields fields;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, '\t');) fields.push_back(field);
  try {
    const Image image = answer(fields);
    std::cout << "ok " << image.height << ' ' << image.width << ' ' << image.channels << '\n';
    std::cout.write(reinterpret_cast<const char*>(image.pixels.data()), std::ssize(image.pixels));
  } catch (const std::exception& error) {
    std::cout << "error " << error.what() << '\n';
  }
  std::cout.flush();
}

}  // namespace
}  // namespace onebatch

int main() {
  for (std::string line; std::getline(std::cin, line);) onebatch::run(line);
}
