target_sources(onebatch_pure PRIVATE checkpoint/checkpoint_contents.cpp checkpoint/checkpoint_folder.cpp checkpoint/checksum.cpp checkpoint/durable_file.cpp checkpoint/run_state.cpp checkpoint/safetensors.cpp)
target_sources(onebatch_trainer PRIVATE checkpoint/by_rank.cpp checkpoint/run_checkpoint.cpp checkpoint/tensor_file.cpp)
