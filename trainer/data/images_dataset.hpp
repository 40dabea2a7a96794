// Image files as samples, wherever they lie: JPEG, PNG and WebP, in 8 bits until they are where the model computes.
#pragma once

#include "trainer/data/dataset_kind.hpp"
#include "trainer/data/image_files.hpp"

namespace onebatch {

std::unique_ptr<Dataset> images_dataset(const DatasetConfiguration& data, std::unique_ptr<ImageFiles> files,
                                        const OpenRequest& request);

/// What they are to become: complains of the keys of image_folder.
void check_images(const DatasetConfiguration& data, const CheckRequest& request);

}  // namespace onebatch
