# cmake --install and cpack: the program, the library for find_package(onebatch), and an archive that runs from where it is unpacked.
#
# A CPU build carries LibTorch's libraries along. A CUDA build leaves its 4 GB where they are and looks for them there: on another machine
# set LD_LIBRARY_PATH to that LibTorch's lib/ folders.
include(CMakePackageConfigHelpers)

if(LibTorch_STAND_INS)
  set(_refused "This build has stand-ins for CUDA's libraries and runs on the null GPU alone: it is not to be installed or packed. Build it with ./dev build --cuda.")
  install(CODE "message(FATAL_ERROR \"${_refused}\")")
  install(CODE "message(FATAL_ERROR \"${_refused}\")" COMPONENT wheel EXCLUDE_FROM_ALL)
endif()
include(Wheel)
set(_private_libraries "${CMAKE_INSTALL_LIBDIR}/onebatch")
set(_carried "^libfmt\\.so" "^libtomlplusplus\\.so" "^libzip\\.so" "^libjpeg\\.so" "^libpng16\\.so" "^libwebp\\.so" "^libsharpyuv\\.so")
set(_rpath "$ORIGIN/../${_private_libraries}")
if(ONEBATCH_CUDA)
  list(APPEND _rpath ${LibTorch_LIBRARY_DIRS})
else()
  list(APPEND _carried "^libtorch_cpu\\.so" "^libc10\\.so" "^libgomp" "^libcudart\\.so" "^libcupti\\.so")
endif()
# The wheel's are in it, too, and each installation takes out the others': what is put in its place may only be shorter.
set_target_properties(onebatch PROPERTIES INSTALL_RPATH "${_rpath};${ONEBATCH_WHEEL_RPATH}")
install(TARGETS onebatch RUNTIME_DEPENDENCY_SET onebatch_needs RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(TARGETS onebatch_stacks RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(RUNTIME_DEPENDENCY_SET onebatch_needs PRE_INCLUDE_REGEXES ${_carried} PRE_EXCLUDE_REGEXES ".*"
        LIBRARY DESTINATION "${_private_libraries}")
list(JOIN _rpath ":" _rpath)
string(REPLACE "$" "\\$" _rpath "${_rpath}")
install(CODE "file(RPATH_SET FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/onebatch\" NEW_RPATH \"${_rpath}\")")
onebatch_install_for_wheel()

# The library: #include <onebatch/trainer.hpp>, and what that and the search for a batch size include of ours. The headers name each other by
# their folders, as in the source.
set(_left trainer/trainer.hpp trainer/kinds.hpp trainer/plugin.hpp trainer/probe/find_batch_size.hpp)
set(_headers)
while(_left)
  list(POP_FRONT _left _header)
  if(_header IN_LIST _headers OR NOT EXISTS "${PROJECT_SOURCE_DIR}/${_header}")
    continue()
  endif()
  list(APPEND _headers "${_header}")
  file(STRINGS "${PROJECT_SOURCE_DIR}/${_header}" _lines REGEX "^#include \"[^\"]+\"")
  list(TRANSFORM _lines REPLACE "^#include \"([^\"]+)\".*" "\\1")
  list(APPEND _left ${_lines})
endwhile()
foreach(_header IN LISTS _headers)
  get_filename_component(_folder "${_header}" DIRECTORY)
  install(FILES "${PROJECT_SOURCE_DIR}/${_header}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/onebatch/${_folder}")
endforeach()
foreach(_header trainer kinds plugin probe/find_batch_size)
  get_filename_component(_name "${_header}" NAME)
  file(WRITE "${PROJECT_BINARY_DIR}/include/onebatch/${_name}.hpp" "#pragma once\n#include \"trainer/${_header}.hpp\"\n")
  install(FILES "${PROJECT_BINARY_DIR}/include/onebatch/${_name}.hpp" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/onebatch")
endforeach()
# What a shared object needs that brings a model: headers, and LibTorch.
add_library(onebatch_plugin INTERFACE)
target_link_libraries(onebatch_plugin INTERFACE LibTorch::CPU)
foreach(_part comm pure trainer plugin)
  target_include_directories(onebatch_${_part} INTERFACE "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>"
                             "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/onebatch>")
  target_compile_features(onebatch_${_part} INTERFACE cxx_std_20)
  set_target_properties(onebatch_${_part} PROPERTIES EXPORT_NAME ${_part})
endforeach()
set_target_properties(onebatch_settings PROPERTIES EXPORT_NAME settings)
install(TARGETS onebatch_comm onebatch_pure onebatch_trainer onebatch_plugin onebatch_settings EXPORT onebatchTargets
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")

set(_config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/onebatch")
install(EXPORT onebatchTargets NAMESPACE onebatch:: DESTINATION "${_config_dir}")
configure_package_config_file(cmake/onebatchConfig.cmake.in "${PROJECT_BINARY_DIR}/onebatchConfig.cmake" INSTALL_DESTINATION "${_config_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/onebatchConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/onebatchConfig.cmake" "${PROJECT_BINARY_DIR}/onebatchConfigVersion.cmake" cmake/FindLibTorch.cmake
        DESTINATION "${_config_dir}")

install(FILES "${PROJECT_BINARY_DIR}/onebatch.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
install(FILES "${PROJECT_BINARY_DIR}/onebatch.bash" DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" RENAME onebatch)
install(FILES "${PROJECT_BINARY_DIR}/onebatch.zsh" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions" RENAME _onebatch)
install(FILES "${PROJECT_BINARY_DIR}/onebatch.fish" DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")

install(FILES LICENSE README.md CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY configs data docs examples DESTINATION "${CMAKE_INSTALL_DATADIR}/onebatch")
# What a Python with PyTorch is given to compile programs with.
install(DIRECTORY python/onebatch DESTINATION "${CMAKE_INSTALL_DATADIR}/onebatch/python" FILES_MATCHING PATTERN "*.py" PATTERN "__pycache__" EXCLUDE)

set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_VENDOR "The onebatch authors")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
if(ONEBATCH_CUDA)
  set(_flavour cuda)
else()
  set(_flavour cpu)
endif()
set(CPACK_PACKAGE_FILE_NAME "onebatch-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}-${_flavour}")
include(CPack)
