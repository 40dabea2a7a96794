target_sources(onebatch_pure PRIVATE device/allocator_settings.cpp device/topology.cpp)
target_sources(onebatch_trainer PRIVATE device/agreement.cpp device/autocast.cpp device/build_and_host.cpp device/compute_device.cpp device/deterministic.cpp device/failed_backward.cpp device/generators.cpp device/inside_table.cpp device/matrix_products.cpp device/memory_budget.cpp device/native_failure.cpp device/native_words.cpp device/no_room.cpp device/precision.cpp device/row_sums.cpp
  $<IF:$<BOOL:${ONEBATCH_CUDA}>,device/device_cuda.cpp,device/no_cuda.cpp> $<IF:$<BOOL:${ONEBATCH_CUDA}>,device/gpu_facts_cuda.cpp,device/no_gpu_facts.cpp> $<$<BOOL:${ONEBATCH_CUDA}>:device/cuda_graphs.cpp>)
if(ONEBATCH_CUDA)
  # A kernel that is compiled for the card at run time: its text is part of the program.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS device/noise_kernel.cu)
  file(READ device/noise_kernel.cu noise_kernel)
  file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/noise_kernel_text.cpp" @ONLY CONTENT "// Made of trainer/device/noise_kernel.cu.
namespace onebatch {

extern const char* const k_noise_kernel;
const char* const k_noise_kernel = R\"cuda(@noise_kernel@)cuda\";

}  // namespace onebatch
")
  target_sources(onebatch_trainer PRIVATE device/device_noise.cpp "${CMAKE_CURRENT_BINARY_DIR}/noise_kernel_text.cpp")
endif()
