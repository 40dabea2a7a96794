# Libraries that stand in for those of CUDA that LibTorch's libraries are linked with and that are missing here. They are made in the build folder while it is
# configured, and are for tests: Python imports the torch wheel with them.

# onebatch_make_stand_ins(OUT names FOLDER-OF-LIBTORCH...): `names` is a list of the libraries that are missing, empty where none is; they lie in
# OUT/lib. The program is linked with those in ONEBATCH_STAND_INS.
set(ONEBATCH_STAND_INS "${PROJECT_BINARY_DIR}/stand_ins")
function(onebatch_make_stand_ins out names)
  set(${names} "" PARENT_SCOPE)
  set(folders)
  foreach(folder IN LISTS ARGN)
    if(EXISTS "${folder}/libtorch_cuda.so")
      list(APPEND folders "${folder}")
    endif()
  endforeach()
  if(NOT folders)
    return()
  endif()
  find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
  set(script "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/stand_ins/make_stand_ins.py")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${script}")
  execute_process(COMMAND "${Python3_EXECUTABLE}" "${script}" ${folders} "${out}" --compiler "${CMAKE_CXX_COMPILER}"
                  OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_VARIABLE why RESULT_VARIABLE code)
  if(code)
    message(WARNING "No stand-ins for CUDA's libraries could be made, so Python cannot import torch: ${why}")
    return()
  endif()
  string(REPLACE "\n" ";" found "${found}")
  set(${names} "${found}" PARENT_SCOPE)
endfunction()
