# Libraries that stand in for those of CUDA that LibTorch's libraries are linked with and that are missing here. They are made in the build folder while it is
# configured, and are for tests: Python imports the torch wheel with them.

# onebatch_make_stand_ins(FOLDER-OF-LIBTORCH names): `names` is a list of the libraries that are missing, empty where none is; they lie in
# ONEBATCH_STAND_INS/lib.
set(ONEBATCH_STAND_INS "${PROJECT_BINARY_DIR}/stand_ins")
function(onebatch_make_stand_ins folder names)
  set(${names} "" PARENT_SCOPE)
  if(NOT EXISTS "${folder}/libtorch_cuda.so")
    return()
  endif()
  find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
  set(script "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/stand_ins/make_stand_ins.py")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${script}")
  execute_process(COMMAND "${Python3_EXECUTABLE}" "${script}" "${folder}" "${ONEBATCH_STAND_INS}" --compiler "${CMAKE_CXX_COMPILER}"
                  OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_VARIABLE why RESULT_VARIABLE code)
  if(code)
    message(WARNING "No stand-ins for CUDA's libraries could be made, so Python cannot import torch: ${why}")
    return()
  endif()
  string(REPLACE "\n" ";" found "${found}")
  set(${names} "${found}" PARENT_SCOPE)
endfunction()
