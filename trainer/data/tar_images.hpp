// Images that are members of tar files.
#pragma once

#include "trainer/data/image_files.hpp"
#include "trainer/data/tar_shards.hpp"

namespace onebatch {

/// Whether the members of a column are images by their endings: jpg, jpeg, png, webp, or several of them.
bool is_image_column(const std::string& column);

/// Of the first of data.inputs, each of the class that data.target says. Throws UserError.
std::unique_ptr<ImageFiles> tar_images(const DatasetConfiguration& data);

}  // namespace onebatch
