#include "trainer/images/decode.hpp"

#include "trainer/images/formats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace onebatch {
namespace {

bool begins_with(ImageBytes bytes, std::string_view text, std::size_t at = 0) {
  return bytes.size() >= at + text.size() && std::memcmp(bytes.data() + at, text.data(), text.size()) == 0;
}

struct Magic {
  std::string_view begin;
  std::size_t at;
  const char* name;
};

// Of what people put beside photographs.
constexpr std::array k_others = {Magic{"GIF8", 0, "a GIF"},
                                 Magic{"BM", 0, "a BMP"},
                                 Magic{"II*\0", 0, "a TIFF"},
                                 Magic{"MM\0*", 0, "a TIFF"},
                                 Magic{"ftyp", 4, "an AVIF or HEIF"},
                                 Magic{"\xff\x0a", 0, "a JPEG XL"},
                                 Magic{"P6", 0, "a PPM"},
                                 Magic{"P5", 0, "a PGM"},
                                 Magic{"<svg", 0, "an SVG"},
                                 Magic{"<!DOCTYPE", 0, "a web page"},
                                 Magic{"<html", 0, "a web page"}};

[[noreturn]] void refuse_unknown(ImageBytes bytes) {
  if (bytes.empty()) throw ImageError("is empty");
  for (const Magic& other : k_others) {
    if (begins_with(bytes, other.begin, other.at))
      throw ImageError(fmt::format("is {}: JPEG, PNG and WebP are read", other.name));
  }
  throw ImageError("is no JPEG, PNG or WebP by its first bytes");
}

ImageHeader read_any_header(ImageBytes bytes) {
  if (begins_with(bytes, "\xff\xd8\xff")) return read_jpeg_header(bytes);
  if (begins_with(bytes, "\x89PNG\r\n\x1a\n")) return read_png_header(bytes);
  if (begins_with(bytes, "RIFF") && begins_with(bytes, "WEBP", 8)) return read_webp_header(bytes);
  refuse_unknown(bytes);
}

// More pixels than this no byte of a file can stand for: deflate gives 1032 bytes at most (a pixel may be a bit), a
// JPEG's block of 8x8 pixels takes a bit or more. A WebP of one colour may be of any size.
std::int64_t most_pixels_of_a_byte(ImageFormat format) {
  switch (format) {
    case ImageFormat::jpeg: return 2048;
    case ImageFormat::png: return std::int64_t{1032} * 8;
    case ImageFormat::webp: return k_most_pixels;
  }
  return 0;
}

bool is_transposed(int orientation) {
  return orientation >= 5;
}

// Where row y and column x of the image as it is looked at lie in what is stored (EXIF 2.3, 4.6.4).
struct Turn {
  std::int64_t first = 0;
  std::int64_t down = 0;   // from one row to the next, in stored pixels
  std::int64_t right = 0;  // from one column to the next
};

Turn turn_of(int orientation, const ImageSize& stored) {
  const std::int64_t w = stored.width;
  const std::int64_t h = stored.height;
  switch (orientation) {
    case 2: return {w - 1, w, -1};
    case 3: return {h * w - 1, -w, -1};
    case 4: return {(h - 1) * w, -w, 1};
    case 5: return {0, 1, w};
    case 6: return {(h - 1) * w, 1, -w};
    case 7: return {h * w - 1, -1, -w};
    case 8: return {w - 1, -1, w};
    default: return {0, w, 1};
  }
}

Image turned(const Image& stored, int orientation) {
  const ImageSize size{stored.height, stored.width};
  const Turn turn = turn_of(orientation, size);
  const bool transposed = is_transposed(orientation);
  Image image(transposed ? size.width : size.height, transposed ? size.height : size.width, stored.channels);
  std::uint8_t* to = image.pixels.data();
  for (std::int64_t y = 0; y < image.height; ++y) {
    for (std::int64_t x = 0; x < image.width; ++x, to += image.channels)
      std::memcpy(to, stored.pixels.data() + (turn.first + y * turn.down + x * turn.right) * image.channels,
                  static_cast<std::size_t>(image.channels));
  }
  return image;
}

int denominator_for(const ImageBox& box, const ImageSize& wanted) {
  int denominator = 1;
  while (denominator < 8 && box.width >= wanted.width * denominator * 2 &&
         box.height >= wanted.height * denominator * 2)
    denominator *= 2;
  return denominator;
}

// All of the image, turned.
DecodedPart decode_whole(ImageBytes bytes, const ImageHeader& header, const ImageBox& box, int denominator) {
  DecodedPart part;
  double scale = 1.0;
  if (header.format == ImageFormat::jpeg) {
    part = decode_jpeg(bytes, {0, 0, header.stored.height, header.stored.width}, denominator);
    scale = 1.0 / denominator;
  } else {
    part.image =
        header.format == ImageFormat::png ? decode_png(bytes, header.stored) : decode_webp(bytes, header.stored);
  }
  if (header.orientation != 1) part.image = turned(part.image, header.orientation);
  part.top = static_cast<double>(box.top) * scale;
  part.left = static_cast<double>(box.left) * scale;
  part.height = static_cast<double>(box.height) * scale;
  part.width = static_cast<double>(box.width) * scale;
  return part;
}

}  // namespace

ImageSize ImageHeader::size() const {
  return is_transposed(orientation) ? ImageSize{stored.width, stored.height} : stored;
}

ImageHeader read_image_header(ImageBytes bytes, std::int64_t most_pixels) {
  const ImageHeader header = read_any_header(bytes);
  const auto [height, width] = header.stored;
  if (height < 1 || width < 1) throw ImageError("has no pixels");
  if (width > most_pixels / height)
    throw ImageError(fmt::format("says that it has {} x {} pixels: {} are read at most", height, width, most_pixels));
  const std::int64_t of_byte = most_pixels_of_a_byte(header.format);
  if (height * width / of_byte > static_cast<std::int64_t>(bytes.size()))
    throw ImageError(
        fmt::format("says that it has {} x {} pixels, which its {} bytes cannot hold", height, width, bytes.size()));
  return header;
}

DecodedPart decode_part(ImageBytes bytes, const ImageHeader& header, const ImageBox& box, const ImageSize& wanted) {
  const int denominator = denominator_for(box, wanted);
  if (header.format == ImageFormat::jpeg && header.orientation == 1) return decode_jpeg(bytes, box, denominator);
  return decode_whole(bytes, header, box, denominator);
}

Image decode_image(ImageBytes bytes, std::int64_t most_pixels) {
  const ImageHeader header = read_image_header(bytes, most_pixels);
  const auto [height, width] = header.size();
  return decode_part(bytes, header, {0, 0, height, width}, {height, width}).image;
}

int exif_orientation(ImageBytes tiff) {
  if (tiff.size() < 8) return 1;
  const bool little = tiff[0] == 'I';
  const auto number = [&](std::size_t at, std::size_t length) {
    std::size_t value = 0;
    for (std::size_t i = 0; i < length; ++i) value = value << 8 | tiff[at + (little ? length - 1 - i : i)];
    return value;
  };
  if ((!little && tiff[0] != 'M') || tiff[1] != tiff[0] || number(2, 2) != 42) return 1;
  const std::size_t directory = number(4, 4);
  if (directory > tiff.size() - 2) return 1;
  const std::size_t entries = number(directory, 2);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + 12 * i;
    if (entry + 12 > tiff.size()) return 1;
    if (number(entry, 2) != 0x0112) continue;
    const std::size_t value = number(entry + 8, number(entry + 2, 2) == 4 ? 4 : 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace onebatch
