#include "launch/png_file.hpp"

#include <png.h>

#include <stdexcept>

namespace onebatch::launch {

std::string png_of(const SheetOfImages& sheet) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = sheet.width;
  image.height = sheet.height;
  image.format = sheet.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string file(bytes, '\0');
  if (png_image_write_to_memory(&image, file.data(), &bytes, 0, sheet.pixels.data(), 0, nullptr) == 0)
    throw std::runtime_error(std::string("libpng: ") + image.message);
  file.resize(bytes);
  return file;
}

}  // namespace onebatch::launch
