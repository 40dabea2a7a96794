# Makes imported targets from a root folder that holds LibTorch, however it came there: the torch wheel, the zip, conda or a system package.
# (The wheel's own TorchConfig.cmake wants nvcc and a matching CMake.)
#
# Input:  LIBTORCH_ROOT (folder with include/ and lib/); without it ./.deps/python and the system are searched.
#         ONEBATCH_CUDA_STAND_INS: what is missing of CUDA's libraries is made (StandIns.cmake).
# Output: LibTorch::CPU, and where the root has CUDA: LibTorch::CUDA, LibTorch::cudart, LibTorch::nccl; LibTorch_VERSION, LibTorch_LIBRARY_DIRS,
#         LibTorch_CUDA_FOUND and, if not, LibTorch_CUDA_REASON.

# What was found under another root is not to be mixed with this one.
if(NOT "${LIBTORCH_ROOT}" STREQUAL "${_LibTorch_found_for}")
  unset(LibTorch_INCLUDE_DIR CACHE)
  foreach(_name cuda_include cuda_crt cudart nccl_include nccl)
    unset(_LibTorch_${_name} CACHE)
  endforeach()
endif()
set(_LibTorch_found_for "${LIBTORCH_ROOT}" CACHE INTERNAL "")

file(GLOB _wheel_roots "${CMAKE_CURRENT_SOURCE_DIR}/.deps/python/lib/python3*/site-packages/torch")
find_path(LibTorch_INCLUDE_DIR ATen/ATen.h HINTS "${LIBTORCH_ROOT}/include" ${_wheel_roots} PATH_SUFFIXES include
          NO_CMAKE_FIND_ROOT_PATH)
if(LIBTORCH_ROOT AND NOT EXISTS "${LIBTORCH_ROOT}/include/ATen/ATen.h")
  message(FATAL_ERROR "LIBTORCH_ROOT=${LIBTORCH_ROOT} holds no include/ATen/ATen.h: give the folder that has include/ and lib/ (of the wheel: site-packages/torch)")
endif()
if(LIBTORCH_ROOT)
  set(LibTorch_INCLUDE_DIR "${LIBTORCH_ROOT}/include")
endif()
get_filename_component(LibTorch_ROOT_DIR "${LibTorch_INCLUDE_DIR}" DIRECTORY)

set(_lib_hints "${LibTorch_ROOT_DIR}/lib" "${LibTorch_ROOT_DIR}/lib/${CMAKE_LIBRARY_ARCHITECTURE}")
foreach(_name torch_cpu c10 torch torch_cuda c10_cuda)
  unset(_LibTorch_${_name} CACHE)
  find_library(_LibTorch_${_name} ${_name} PATHS ${_lib_hints} NO_DEFAULT_PATH)
endforeach()
set(LibTorch_LIBRARY_DIRS "")
if(_LibTorch_c10)
  get_filename_component(_dir "${_LibTorch_c10}" DIRECTORY)
  list(APPEND LibTorch_LIBRARY_DIRS "${_dir}")
endif()

set(_version_header "${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h")
if(NOT EXISTS "${_version_header}")
  set(_version_header "${LibTorch_INCLUDE_DIR}/torch/csrc/api/include/torch/version.h")
endif()
if(EXISTS "${_version_header}")
  file(STRINGS "${_version_header}" _version_lines REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" LibTorch_VERSION "${_version_lines}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LibTorch_INCLUDE_DIR _LibTorch_torch_cpu _LibTorch_c10 VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "Run ./dev build, which installs it, or set LIBTORCH_ROOT to the folder that holds include/ and lib/.")

if(LibTorch_FOUND AND NOT TARGET LibTorch::CPU)
  # The old string ABI cannot be linked with this compiler's standard library.
  file(STRINGS "${_LibTorch_c10}" _new_abi REGEX "_ZNK?3c10.*7__cxx1112basic_string" LIMIT_COUNT 1)
  if(NOT _new_abi)
    message(FATAL_ERROR "LibTorch ${LibTorch_VERSION} at ${LibTorch_ROOT_DIR} was built with the old C++ ABI (_GLIBCXX_USE_CXX11_ABI=0): take the pinned "
                        "${ONEBATCH_LIBTORCH_PINNED} (./dev build), or a cxx11-abi zip")
  endif()

  # Libraries that LibTorch itself loads live beside it; nothing of ours names them, so the linker need not see them.
  add_library(LibTorch::CPU INTERFACE IMPORTED)
  set_target_properties(LibTorch::CPU PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${LibTorch_INCLUDE_DIR};${LibTorch_INCLUDE_DIR}/torch/csrc/api/include"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${LibTorch_INCLUDE_DIR};${LibTorch_INCLUDE_DIR}/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED=0;USE_C10D_NCCL=0"
    INTERFACE_LINK_OPTIONS "LINKER:--no-as-needed;LINKER:--allow-shlib-undefined"
    INTERFACE_LINK_LIBRARIES "${_LibTorch_torch_cpu};${_LibTorch_c10}")

  set(_pip_root "${LibTorch_ROOT_DIR}/../nvidia")
  file(GLOB _cuda_include_hints "${_pip_root}/cu*/include" "${_pip_root}/cuda_runtime/include")
  file(GLOB _cuda_lib_hints "${_pip_root}/cu*/lib" "${_pip_root}/cuda_runtime/lib")
  find_path(_LibTorch_cuda_include cuda_runtime_api.h HINTS ${_cuda_include_hints} "${LIBTORCH_CUDA_ROOT}/include" PATHS /usr/local/cuda/include)
  # The one that LibTorch asks for: a process with another CUDA's beside it would have two runtimes.
  set(_cudart_names libcudart.so.13 libcudart.so.12 libcudart.so)
  if(_LibTorch_c10_cuda AND CMAKE_READELF)
    execute_process(COMMAND "${CMAKE_READELF}" -d "${_LibTorch_c10_cuda}" OUTPUT_VARIABLE _needed ERROR_QUIET)
    if(_needed MATCHES "libcudart\\.so\\.[0-9]+")
      set(_cudart_names "${CMAKE_MATCH_0}")
    endif()
  endif()
  find_file(_LibTorch_cudart NAMES ${_cudart_names} PATHS ${_cuda_lib_hints} ${_lib_hints} /usr/local/cuda/lib64 NO_DEFAULT_PATH)
  find_path(_LibTorch_nccl_include nccl.h HINTS "${_pip_root}/nccl/include")
  find_file(_LibTorch_nccl NAMES libnccl.so.2 PATHS "${_pip_root}/nccl/lib" ${_lib_hints} /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} /usr/local/cuda/lib64 NO_DEFAULT_PATH)

  # Those that are missing: the linker finds them, and so does the program, which they are loaded with before LibTorch asks for them.
  set(LibTorch_STAND_INS "")
  if(ONEBATCH_CUDA AND ONEBATCH_CUDA_STAND_INS)
    include(StandIns)
    get_filename_component(_dir "${_LibTorch_c10}" DIRECTORY)
    onebatch_make_stand_ins("${ONEBATCH_STAND_INS}" LibTorch_STAND_INS "${_dir}")
    list(TRANSFORM LibTorch_STAND_INS PREPEND "${ONEBATCH_STAND_INS}/lib/" OUTPUT_VARIABLE _stand_in_files)
    if(LibTorch_STAND_INS)
      list(APPEND LibTorch_LIBRARY_DIRS "${ONEBATCH_STAND_INS}/lib")
    endif()
    if("libnccl.so.2" IN_LIST LibTorch_STAND_INS)
      set(_LibTorch_nccl "${ONEBATCH_STAND_INS}/lib/libnccl.so.2")
      set(_LibTorch_nccl_include "${CMAKE_CURRENT_LIST_DIR}/stand_ins/include")
    endif()
  endif()
  set(LibTorch_CUDA_FOUND TRUE)
  foreach(_need torch_cuda c10_cuda cuda_include cudart nccl_include nccl)
    if(NOT _LibTorch_${_need})
      set(LibTorch_CUDA_FOUND FALSE)
      string(APPEND LibTorch_CUDA_REASON " no ${_need}")
    endif()
  endforeach()
  # CUDA 13 has some headers of its runtime in a package of their own, CUDA 12 in that of nvcc.
  if(_LibTorch_cuda_include)
    file(STRINGS "${_LibTorch_cuda_include}/cuda_runtime_api.h" _asked REGEX "#include \"crt/host_defines.h\"")
    find_path(_LibTorch_cuda_crt crt/host_defines.h HINTS "${_LibTorch_cuda_include}" "${_pip_root}/cuda_nvcc/include")
    if(_asked AND NOT _LibTorch_cuda_crt)
      set(LibTorch_CUDA_FOUND FALSE)
      string(APPEND LibTorch_CUDA_REASON " no crt/host_defines.h (pip install nvidia-cuda-crt, or for CUDA 12 nvidia-cuda-nvcc-cu12)")
    endif()
  endif()
  # The zip's libtorch_cuda has an NCCL within itself. A second one beside it would be another library with the same names.
  if(_LibTorch_torch_cuda AND CMAKE_READELF)
    execute_process(COMMAND "${CMAKE_READELF}" -d "${_LibTorch_torch_cuda}" OUTPUT_VARIABLE _needed ERROR_QUIET)
    if(NOT _needed MATCHES "libnccl\\.so\\.2")
      set(LibTorch_CUDA_FOUND FALSE)
      string(APPEND LibTorch_CUDA_REASON " no NCCL of its own kind (it is linked into libtorch_cuda; take the torch wheel, whose NCCL is a library that can be shared)")
    endif()
  endif()
  if(LibTorch_CUDA_FOUND)
    set(_cuda_includes "${_LibTorch_cuda_include}")
    if(_asked)
      list(APPEND _cuda_includes "${_LibTorch_cuda_crt}")
      list(REMOVE_DUPLICATES _cuda_includes)
    endif()
    foreach(_library cudart nccl)
      add_library(LibTorch::${_library} SHARED IMPORTED)
      get_filename_component(_dir "${_LibTorch_${_library}}" DIRECTORY)
      list(APPEND LibTorch_LIBRARY_DIRS "${_dir}")
      set_target_properties(LibTorch::${_library} PROPERTIES IMPORTED_LOCATION "${_LibTorch_${_library}}"
        INTERFACE_INCLUDE_DIRECTORIES "${_cuda_includes}" INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${_cuda_includes}")
    endforeach()
    set_property(TARGET LibTorch::nccl APPEND PROPERTY INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${_LibTorch_nccl_include}")
    set_property(TARGET LibTorch::nccl APPEND PROPERTY INTERFACE_INCLUDE_DIRECTORIES "${_LibTorch_nccl_include}")
    add_library(LibTorch::CUDA INTERFACE IMPORTED)
    set_target_properties(LibTorch::CUDA PROPERTIES INTERFACE_LINK_LIBRARIES "LibTorch::CPU;${_LibTorch_torch_cuda};${_LibTorch_c10_cuda};LibTorch::cudart;${_stand_in_files}")
  endif()
endif()
mark_as_advanced(LibTorch_INCLUDE_DIR)
