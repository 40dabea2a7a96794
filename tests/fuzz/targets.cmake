# A target is NAME_target.cpp and its inputs in corpus/NAME.
set(ONEBATCH_FUZZ_TARGETS assignments config datagram device_list examination idx manifest metrics plan probe_cache profile ragged run_state safetensors status tar tokens)
