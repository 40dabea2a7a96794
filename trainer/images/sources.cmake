target_sources(onebatch_pure PRIVATE images/colours.cpp images/decode.cpp images/image_changes.cpp images/image_list.cpp images/image_mixing.cpp
  images/jpeg.cpp images/png.cpp images/random_augment.cpp images/resample.cpp images/webp.cpp)
