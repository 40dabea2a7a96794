# A CUDA device that computes nothing, under the program as it is: where there is no GPU, what LibTorch's CUDA code does still shows.
# Where CUDA's libraries are missing, stand-ins are enough for Python and for the null GPU.
onebatch_add_pytest(stand_ins null_gpu/stand_ins_test.py LABELS ranks null_gpu TIMEOUT 200 PROCESSORS 1 ARGUMENTS --build ${CMAKE_BINARY_DIR} --compiler "${CMAKE_CXX_COMPILER}")
if(NOT ONEBATCH_CUDA)
  return()
endif()
get_target_property(null_gpu_includes LibTorch::nccl INTERFACE_INCLUDE_DIRECTORIES)
get_target_property(libtorch_includes LibTorch::CPU INTERFACE_INCLUDE_DIRECTORIES)
list(GET LibTorch_LIBRARY_DIRS 0 libtorch_folder)

add_library(null_gpu_objects OBJECT null_gpu/settings.cpp null_gpu/counts.cpp null_gpu/session.cpp null_gpu/device.cpp null_gpu/streams.cpp null_gpu/stream_calls.cpp
            null_gpu/graphs.cpp null_gpu/memory.cpp null_gpu/virtual_memory.cpp null_gpu/watch.cpp null_gpu/copies.cpp null_gpu/kernels.cpp null_gpu/libraries.cpp null_gpu/nccl.cpp)
target_include_directories(null_gpu_objects SYSTEM PRIVATE ${null_gpu_includes} ${XXHASH_INCLUDE_DIR})
target_link_libraries(null_gpu_objects PRIVATE onebatch_settings nlohmann_json::nlohmann_json)
set_target_properties(null_gpu_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)

# What LibTorch asks for and nobody looks at is made from its list of symbols.
enable_language(C)
set(null_gpu_stubs ${CMAKE_CURRENT_BINARY_DIR}/null_gpu_stubs.c)
set(null_gpu_driver ${CMAKE_CURRENT_BINARY_DIR}/null_gpu_driver.c)
add_custom_command(OUTPUT ${null_gpu_stubs} ${null_gpu_driver}
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/null_gpu/make_stubs.py ${libtorch_folder} ${null_gpu_stubs} ${null_gpu_driver} $<TARGET_OBJECTS:null_gpu_objects>
  DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/null_gpu/make_stubs.py null_gpu_objects $<TARGET_OBJECTS:null_gpu_objects>
  COMMAND_EXPAND_LISTS VERBATIM)
add_library(null_gpu SHARED ${null_gpu_stubs})
target_link_libraries(null_gpu PRIVATE null_gpu_objects Threads::Threads)
add_library(null_gpu_cuda SHARED ${null_gpu_driver})
target_link_libraries(null_gpu_cuda PRIVATE ${CMAKE_DL_LIBS} null_gpu)
target_link_options(null_gpu_cuda PRIVATE LINKER:--no-as-needed)
set_target_properties(null_gpu_cuda PROPERTIES PREFIX "" OUTPUT_NAME "libcuda" SUFFIX ".so.1" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/null_gpu_driver)
target_compile_options(null_gpu PRIVATE -w)
target_compile_options(null_gpu_cuda PRIVATE -w)
add_library(no_cudnn MODULE null_gpu/no_cudnn.cpp)
target_include_directories(no_cudnn SYSTEM PRIVATE ${libtorch_includes})
target_link_libraries(no_cudnn PRIVATE onebatch_settings LibTorch::CPU)
add_library(watched_operators MODULE null_gpu/watched_operators.cpp)
target_link_libraries(watched_operators PRIVATE onebatch_settings LibTorch::CUDA ${CMAKE_DL_LIBS})
set_target_properties(no_cudnn watched_operators PROPERTIES BUILD_RPATH "${LibTorch_LIBRARY_DIRS}")

add_executable(null_gpu_defects null_gpu/defects.cpp)
target_link_libraries(null_gpu_defects PRIVATE onebatch_settings onebatch_trainer LibTorch::CUDA)
set_target_properties(null_gpu_defects PROPERTIES BUILD_RPATH "${LibTorch_LIBRARY_DIRS}")
add_executable(null_gpu_borrowed_device null_gpu/borrowed_device.cpp)
target_link_libraries(null_gpu_borrowed_device PRIVATE onebatch_settings onebatch_trainer LibTorch::CUDA)
set_target_properties(null_gpu_borrowed_device PROPERTIES BUILD_RPATH "${LibTorch_LIBRARY_DIRS}")
# They wait more than they compute.
foreach(part exported compiled graphs memory models ways probing doctor)
  onebatch_add_pytest(null_gpu.${part} null_gpu/${part}_test.py LABELS ranks null_gpu TIMEOUT 900 PROCESSORS 1 ARGUMENTS --build ${CMAKE_BINARY_DIR})
endforeach()
if(LibTorch_VERSION VERSION_LESS 2.8)  # it runs no compiled programs
  set_tests_properties(null_gpu.compiled PROPERTIES DISABLED TRUE)
endif()
onebatch_add_pytest(null_gpu null_gpu/null_gpu_test.py LABELS ranks null_gpu TIMEOUT 900 PROCESSORS 1 ARGUMENTS --build ${CMAKE_BINARY_DIR})
