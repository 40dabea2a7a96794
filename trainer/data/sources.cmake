onebatch_add_kinds(onebatch_trainer data DatasetKind idx_dataset image_folder_dataset safetensors_dataset synthetic_dataset tar_dataset tokens_dataset)
target_sources(onebatch_pure PRIVATE data/file_list.cpp data/idx.cpp data/npy.cpp data/ragged.cpp data/sample_order.cpp data/tar_file.cpp data/token_files.cpp)
target_sources(onebatch_trainer PRIVATE data/augment.cpp data/dataset.cpp data/decoders.cpp data/image_reader.cpp data/padding.cpp data/samples_kind.cpp data/sequences.cpp data/tensor_column.cpp)
