target_sources(onebatch_pure PRIVATE io/checksum.cpp io/child_process.cpp io/contents.cpp io/row_file.cpp io/crc32c.cpp io/data_file.cpp io/durable_file.cpp io/folder.cpp io/json_reader.cpp io/pickled_tensors.cpp io/safetensors.cpp io/zip_file.cpp io/zip_records.cpp)
target_sources(onebatch_trainer PRIVATE io/named_tensors.cpp io/tensor_file.cpp)
