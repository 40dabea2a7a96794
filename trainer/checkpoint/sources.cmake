target_sources(onebatch_pure PRIVATE checkpoint/checkpoint_folder.cpp checkpoint/run_state.cpp)
target_sources(onebatch_trainer PRIVATE checkpoint/by_rank.cpp checkpoint/run_checkpoint.cpp checkpoint/survivor_files.cpp checkpoint/survivor_save.cpp)
