# Every dependency and the least version that is known to work, in one place. ./dev installs them (packages of Debian and Ubuntu; LibTorch from PyPI).
set(ONEBATCH_LIBTORCH_PINNED 2.11.0)
set(ONEBATCH_LIBTORCH_MINIMUM 2.6.0)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
endif()

find_package(ZLIB 1.2 REQUIRED)
find_package(JPEG REQUIRED)                            # libjpeg-turbo 2, whose jpeg_crop_scanline is used
find_package(PNG 1.6 REQUIRED)
find_path(WEBP_INCLUDE_DIR webp/decode.h REQUIRED)     # 1.0
find_library(WEBP_LIBRARY webp REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(fmt 9 REQUIRED)
# LibTorch's include folder has the headers of another fmt. Before it comes a folder with nothing but a link to those of this one: /usr/include itself
# cannot come first, since compilers look there last.
set(ONEBATCH_FMT_ALONE "${PROJECT_BINARY_DIR}/fmt_alone")
get_target_property(_fmt_includes fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
find_path(_fmt_folder fmt/format.h HINTS ${_fmt_includes} NO_CACHE REQUIRED)
file(REAL_PATH "${_fmt_folder}/fmt" _fmt_headers)
file(MAKE_DIRECTORY "${ONEBATCH_FMT_ALONE}")
file(CREATE_LINK "${_fmt_headers}" "${ONEBATCH_FMT_ALONE}/fmt" SYMBOLIC)
find_package(tomlplusplus 3.3 REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)         # 0.8, used as a header alone
if(ONEBATCH_FUZZ)
  return()
endif()
find_package(Threads REQUIRED)
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI 3.1 REQUIRED COMPONENTS CXX)          # Open MPI 4.1 or 5
# Its C interface alone is used: Open MPI 5 has no libmpi_cxx, and a program that was linked with it would not start there.
get_target_property(_mpi_libraries MPI::MPI_CXX INTERFACE_LINK_LIBRARIES)
list(FILTER _mpi_libraries EXCLUDE REGEX "mpi_cxx")
set_target_properties(MPI::MPI_CXX PROPERTIES INTERFACE_LINK_LIBRARIES "${_mpi_libraries}")
find_package(LibTorch ${ONEBATCH_LIBTORCH_MINIMUM} REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(PNG 1.6 REQUIRED)
find_path(HWLOC_INCLUDE_DIR hwloc.h REQUIRED)           # 2.x
find_library(HWLOC_LIBRARY hwloc REQUIRED)
find_library(UNWIND_PTRACE_LIBRARY NAMES libunwind-ptrace.a REQUIRED)   # 1.6
find_library(UNWIND_GENERIC_LIBRARY NAMES libunwind-generic.a REQUIRED)
find_library(UNWIND_LOCAL_LIBRARY NAMES libunwind.a REQUIRED)
find_library(LZMA_LIBRARY NAMES lzma REQUIRED)          # which libunwind reads symbols with
find_library(TCMALLOC_LIBRARY NAMES libtcmalloc_minimal.a REQUIRED)     # gperftools 2.9; the program's malloc
find_path(LIBZIP_INCLUDE_DIR zip.h REQUIRED)            # 1.7; its CMake files want its tools too
find_library(LIBZIP_LIBRARY zip REQUIRED)
if(ONEBATCH_BUILD_TESTS)
  find_package(GTest 1.12 REQUIRED)
endif()
if(ONEBATCH_BUILD_BENCHMARKS)
  find_package(benchmark 1.7 REQUIRED)
endif()

if(ONEBATCH_CUDA AND NOT LibTorch_CUDA_FOUND)
  message(FATAL_ERROR "ONEBATCH_CUDA=ON needs a LibTorch with CUDA, NCCL and the CUDA runtime; at ${LibTorch_ROOT_DIR}: ${LibTorch_CUDA_REASON}. "
                      "Run ./dev build --cuda, or set LIBTORCH_ROOT; for the null GPU alone, without CUDA's libraries, add -DONEBATCH_CUDA_STAND_INS=ON.")
endif()
if(ONEBATCH_CUDA_STAND_INS AND NOT ONEBATCH_CUDA)
  message(FATAL_ERROR "ONEBATCH_CUDA_STAND_INS=ON is for a build with CUDA: add -DONEBATCH_CUDA=ON, or leave it out")
endif()
if(LibTorch_STAND_INS)
  list(LENGTH LibTorch_STAND_INS _number)
  message(STATUS "${_number} of CUDA's libraries are stand-ins: this build runs on the null GPU (docs/null_gpu.md) and on the CPU, never on a card")
elseif(ONEBATCH_CUDA_STAND_INS)
  message(STATUS "CUDA's libraries are all here: no stand-ins are taken")
endif()
