target_sources(onebatch_pure PRIVATE checkpoint/checkpoint_folder.cpp io/durable_file.cpp checkpoint/run_state.cpp io/safetensors.cpp)
target_sources(onebatch_trainer PRIVATE checkpoint/by_rank.cpp checkpoint/run_checkpoint.cpp io/tensor_file.cpp)
