target_sources(onebatch_pure PRIVATE device/allocator_settings.cpp device/topology.cpp)
target_sources(onebatch_trainer PRIVATE device/agreement.cpp device/autocast.cpp device/build_and_host.cpp device/compute_device.cpp device/deterministic.cpp device/failed_backward.cpp device/generators.cpp device/memory_budget.cpp device/precision.cpp
  $<IF:$<BOOL:${ONEBATCH_CUDA}>,device/device_cuda.cpp,device/no_cuda.cpp> $<$<BOOL:${ONEBATCH_CUDA}>:device/cuda_graphs.cpp>)
