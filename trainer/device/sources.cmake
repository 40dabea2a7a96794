target_sources(onebatch_pure PRIVATE device/topology.cpp)
target_sources(onebatch_trainer PRIVATE device/memory_budget.cpp device/compute_device.cpp device/failed_backward.cpp device/generators.cpp device/precision.cpp device/build_and_host.cpp device/autocast.cpp
  $<IF:$<BOOL:${ONEBATCH_CUDA}>,device/device_cuda.cpp,device/no_cuda.cpp>)
