onebatch_add_kinds(onebatch_trainer data DatasetKind idx_dataset image_folder_dataset safetensors_dataset synthetic_dataset)
target_sources(onebatch_pure PRIVATE data/idx.cpp data/sample_order.cpp)
target_sources(onebatch_trainer PRIVATE data/augment.cpp data/dataset.cpp data/image_reader.cpp data/padding.cpp data/samples_kind.cpp)
