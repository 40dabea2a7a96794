target_sources(onebatch_pure PRIVATE data/idx.cpp data/sample_order.cpp)
target_sources(onebatch_trainer PRIVATE data/augment.cpp data/dataset.cpp data/idx_dataset.cpp data/padding.cpp data/safetensors_dataset.cpp data/synthetic_dataset.cpp)
