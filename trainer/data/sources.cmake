onebatch_add_kinds(onebatch_trainer data DatasetKind idx_dataset safetensors_dataset synthetic_dataset)
target_sources(onebatch_pure PRIVATE data/idx.cpp data/number_file.cpp data/sample_order.cpp data/selection.cpp)
target_sources(onebatch_trainer PRIVATE data/augment.cpp data/data_report.cpp data/dataset.cpp data/image_sheet.cpp data/padding.cpp data/run_data.cpp data/samples_kind.cpp data/subset.cpp)
