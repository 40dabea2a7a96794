target_sources(onebatch_pure PRIVATE checkpoint/background_save.cpp checkpoint/checkpoint_contents.cpp checkpoint/checkpoint_folder.cpp checkpoint/run_state.cpp)
target_sources(onebatch_trainer PRIVATE checkpoint/by_rank.cpp checkpoint/host_copy.cpp checkpoint/run_checkpoint.cpp checkpoint/run_saver.cpp checkpoint/survivor_files.cpp checkpoint/survivor_save.cpp)
