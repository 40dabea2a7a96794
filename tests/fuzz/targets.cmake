# A target is NAME_target.cpp and its inputs in corpus/NAME.
set(ONEBATCH_FUZZ_TARGETS assignments config datagram device_list examination idx image_list jpeg manifest metrics pipe_words plan png probe_cache profile ragged run_state safetensors status
  tar tokens webp)
