// PNG by libpng, of all its kinds, as 8 bits of red, green and blue.
#include "trainer/images/formats.hpp"

#include <fmt/format.h>
#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>

namespace onebatch {
namespace {

class Reader {
 public:
  explicit Reader(ImageBytes bytes) : left(bytes) {
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, leave, say_nothing);
    info = png == nullptr ? nullptr : png_create_info_struct(png);
    if (info == nullptr) {
      png_destroy_read_struct(&png, nullptr, nullptr);
      throw std::bad_alloc();
    }
    png_set_read_fn(png, this, read);
    png_set_user_limits(png, 0x7fffffff, 0x7fffffff);
    png_set_chunk_malloc_max(png, k_most_bytes_of_a_chunk);
  }
  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  [[noreturn]] void fail() const {
    throw ImageError(cut_off ? std::string("is cut off: the PNG has no end")
                             : fmt::format("is no PNG that can be read: {}", words));
  }

  png_structp png = nullptr;
  png_infop info = nullptr;
  ImageBytes left;
  jmp_buf jump = {};
  char words[200] = {};
  bool cut_off = false;

 private:
  // Of text and colour profiles, which nobody asks for.
  static constexpr png_alloc_size_t k_most_bytes_of_a_chunk = 8 << 20;

  [[noreturn]] static void leave(png_structp png, png_const_charp words) {
    auto* reader = static_cast<Reader*>(png_get_error_ptr(png));
    std::snprintf(reader->words, sizeof reader->words, "%s", words);
    longjmp(reader->jump, 1);
  }
  static void say_nothing(png_structp /*png*/, png_const_charp /*words*/) {}
  static void read(png_structp png, png_bytep to, std::size_t count) {
    auto* reader = static_cast<Reader*>(png_get_io_ptr(png));
    if (count > reader->left.size()) {
      reader->cut_off = true;
      png_error(png, "cut off");
    }
    std::memcpy(to, reader->left.data(), count);
    reader->left = reader->left.subspan(count);
  }
};

// No object with a destructor may live in what is left by a jump.
bool read_info(Reader& reader) {
  if (setjmp(reader.jump) != 0) return false;
  png_read_info(reader.png, reader.info);
  return true;
}

bool read_rows(Reader& reader, std::uint8_t* pixels, std::int64_t height, std::int64_t width) {
  if (setjmp(reader.jump) != 0) return false;
  png_set_expand(reader.png);
  png_set_strip_16(reader.png);
  png_set_strip_alpha(reader.png);
  png_set_gray_to_rgb(reader.png);
  const int passes = png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
  if (png_get_rowbytes(reader.png, reader.info) != static_cast<std::size_t>(width) * 3)
    png_error(reader.png, "rows of another length");
  for (int pass = 0; pass < passes; ++pass) {
    for (std::int64_t y = 0; y < height; ++y) png_read_row(reader.png, pixels + y * width * 3, nullptr);
  }
  png_read_end(reader.png, nullptr);
  return true;
}

struct Chunks {
  bool whole = false;  // every one is there that says how long it is: libpng would allocate some before it looks
  ImageBytes exif;     // before or behind the image data, where libpng has not been when its header is read
};

// A chunk is a length, a name, as many bytes and a checksum.
Chunks look_through(ImageBytes bytes) {
  constexpr std::size_t k_signature = 8;
  constexpr std::size_t k_around = 12;
  Chunks chunks;
  for (std::size_t at = k_signature; at + k_around <= bytes.size();) {
    const std::size_t length = png_get_uint_32(bytes.data() + at);
    if (length > bytes.size() - at - k_around) break;
    const auto is = [&](const char* name) { return std::memcmp(bytes.data() + at + 4, name, 4) == 0; };
    chunks.whole = is("IEND");
    if (chunks.whole) break;
    if (is("eXIf") && chunks.exif.empty()) chunks.exif = bytes.subspan(at + 8, length);
    at += k_around + length;
  }
  return chunks;
}

}  // namespace

ImageHeader read_png_header(ImageBytes bytes) {
  const Chunks chunks = look_through(bytes);
  if (!chunks.whole) throw ImageError("is cut off: the PNG has no end");
  Reader reader(bytes);
  if (!read_info(reader)) reader.fail();
  return {ImageFormat::png,
          {png_get_image_height(reader.png, reader.info), png_get_image_width(reader.png, reader.info)},
          exif_orientation(chunks.exif)};
}

Image decode_png(ImageBytes bytes, const ImageSize& size) {
  Reader reader(bytes);
  if (!read_info(reader)) reader.fail();
  Image image(size.height, size.width, 3);
  if (!read_rows(reader, image.pixels.data(), size.height, size.width)) reader.fail();
  return image;
}

}  // namespace onebatch
