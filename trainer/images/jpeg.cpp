// JPEG by libjpeg-turbo: baseline and progressive, grey, colour and CMYK. Only what a box needs is decoded.
#include "trainer/images/formats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>

// Wants <cstdio> before it.
#include <jpeglib.h>

namespace onebatch {
namespace {

// A progressive file may be of any number of scans, each of which costs as much as the whole image.
constexpr int k_most_scans = 500;

struct Handler : jpeg_error_mgr {
  jmp_buf jump;
  char words[JMSG_LENGTH_MAX];
};

[[noreturn]] void leave(j_common_ptr info) {
  auto* handler = static_cast<Handler*>(info->err);
  handler->format_message(info, handler->words);
  longjmp(handler->jump, 1);
}

void say_nothing(j_common_ptr /*info*/) {}
void count_warning(j_common_ptr /*info*/, int /*level*/) {}

void count_scans(j_common_ptr info) {
  auto* decoder = reinterpret_cast<j_decompress_ptr>(info);
  if (decoder->input_scan_number <= k_most_scans) return;
  auto* handler = static_cast<Handler*>(info->err);
  std::snprintf(handler->words, sizeof handler->words, "more than %d scans", k_most_scans);
  longjmp(handler->jump, 1);
}

// The decoder, of whatever happens.
class Decoder {
 public:
  Decoder() {
    info.err = jpeg_std_error(&handler);
    handler.error_exit = leave;
    handler.output_message = say_nothing;
    handler.emit_message = count_warning;
    progress.progress_monitor = count_scans;
  }
  ~Decoder() { jpeg_destroy_decompress(&info); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  [[noreturn]] void fail() const { throw ImageError(fmt::format("is no JPEG that can be read: {}", handler.words)); }

  jpeg_decompress_struct info = {};
  Handler handler = {};
  jpeg_progress_mgr progress = {};
};

// Up to where the first scan's data begin. False: it failed, and the handler has the words. No object with a destructor
// may live in what is left by a jump.
bool begin(Decoder& decoder, const std::uint8_t* bytes, std::size_t size) {
  if (setjmp(decoder.handler.jump) != 0) return false;
  jpeg_create_decompress(&decoder.info);
  decoder.info.progress = &decoder.progress;
  jpeg_mem_src(&decoder.info, bytes, size);
  jpeg_save_markers(&decoder.info, JPEG_APP0 + 1, 0xffff);
  jpeg_read_header(&decoder.info, TRUE);
  return true;
}

bool is_whole(const Decoder& decoder) {
  // In the data of a scan no marker is an end but the end.
  const JOCTET* first = decoder.info.src->next_input_byte;
  const std::size_t left = decoder.info.src->bytes_in_buffer;
  for (std::size_t i = left; i >= 2; --i) {
    if (first[i - 2] == 0xff && first[i - 1] == JPEG_EOI) return true;
  }
  return false;
}

int orientation_of(const jpeg_decompress_struct& info) {
  for (auto* marker = info.marker_list; marker != nullptr; marker = marker->next) {
    if (marker->marker == JPEG_APP0 + 1 && marker->data_length > 6 && std::memcmp(marker->data, "Exif\0", 6) == 0)
      return exif_orientation({marker->data + 6, marker->data_length - 6});
  }
  return 1;
}

// What is to be decoded, in pixels of the scaled image.
struct Window {
  JDIMENSION top = 0;
  JDIMENSION height = 0;
  JDIMENSION left = 0;
  JDIMENSION width = 0;
};

bool start(Decoder& decoder, int denominator) {
  if (setjmp(decoder.handler.jump) != 0) return false;
  auto& info = decoder.info;
  info.scale_num = 1;
  info.scale_denom = static_cast<unsigned>(denominator);
  const bool four = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = four ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&info);
  return true;
}

// The window is widened to where whole blocks begin.
bool narrow(Decoder& decoder, Window* window) {
  if (setjmp(decoder.handler.jump) != 0) return false;
  jpeg_crop_scanline(&decoder.info, &window->left, &window->width);
  if (window->top > 0) jpeg_skip_scanlines(&decoder.info, window->top);
  return true;
}

bool read_rows(Decoder& decoder, std::uint8_t* to, std::size_t stride, JDIMENSION rows) {
  if (setjmp(decoder.handler.jump) != 0) return false;
  for (JDIMENSION done = 0; done < rows;) {
    JSAMPROW row = to + done * stride;
    done += jpeg_read_scanlines(&decoder.info, &row, 1);
  }
  return true;
}

// a * b / 255, rounded.
std::uint8_t times(unsigned a, unsigned b) {
  const unsigned product = a * b + 128;
  return static_cast<std::uint8_t>(((product >> 8) + product) >> 8);
}

// The inks' complements are stored: so does Adobe, and whoever reads files without its marker takes it for granted.
Image without_inks(const Image& inks) {
  Image image(inks.height, inks.width, 3);
  std::uint8_t* to = image.pixels.data();
  for (std::size_t i = 0; i < inks.pixels.size(); i += 4) {
    const auto ink = [&](std::size_t which) { return static_cast<unsigned>(255 - inks.pixels[i + which]); };
    const unsigned paper = 255 - ink(3);
    for (std::size_t which = 0; which < 3; ++which)
      *to++ = static_cast<std::uint8_t>(paper - std::min<unsigned>(paper, times(ink(which), paper)));
  }
  return image;
}

// Rows and columns around the box from which its own are smoothed.
Window window_around(const jpeg_decompress_struct& info, const ImageBox& box, int denominator) {
  const auto part = [&](std::int64_t first, std::int64_t size, JDIMENSION all) {
    constexpr std::int64_t k_around = 16;
    const std::int64_t begin = std::max<std::int64_t>(0, first / denominator - k_around);
    const std::int64_t end = std::min<std::int64_t>(all, (first + size + denominator - 1) / denominator + k_around);
    return std::pair{static_cast<JDIMENSION>(begin), static_cast<JDIMENSION>(std::max(begin + 1, end) - begin)};
  };
  const auto [top, height] = part(box.top, box.height, info.output_height);
  const auto [left, width] = part(box.left, box.width, info.output_width);
  return {top, height, left, width};
}

}  // namespace

ImageHeader read_jpeg_header(ImageBytes bytes) {
  Decoder decoder;
  if (!begin(decoder, bytes.data(), bytes.size())) decoder.fail();
  if (!is_whole(decoder)) throw ImageError("is cut off: the JPEG has no end");
  return {ImageFormat::jpeg, {decoder.info.image_height, decoder.info.image_width}, orientation_of(decoder.info)};
}

DecodedPart decode_jpeg(ImageBytes bytes, const ImageBox& box, int denominator) {
  Decoder decoder;
  if (!begin(decoder, bytes.data(), bytes.size()) || !start(decoder, denominator)) decoder.fail();
  Window window = window_around(decoder.info, box, denominator);
  if (!narrow(decoder, &window)) decoder.fail();
  const int channels = decoder.info.output_components;
  DecodedPart part;
  part.image = Image(window.height, window.width, channels);
  if (!read_rows(decoder, part.image.pixels.data(), std::size_t{window.width} * static_cast<std::size_t>(channels),
                 window.height))
    decoder.fail();
  if (channels == 4) part.image = without_inks(part.image);
  part.top = static_cast<double>(box.top) / denominator - window.top;
  part.left = static_cast<double>(box.left) / denominator - window.left;
  part.height = static_cast<double>(box.height) / denominator;
  part.width = static_cast<double>(box.width) / denominator;
  return part;
}

}  // namespace onebatch
