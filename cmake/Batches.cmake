# Sources that are compiled together: most of the time of a file that includes LibTorch is its headers'.
find_package(Python3 3.9 COMPONENTS Interpreter)

# onebatch_batch(target size [ALONE source...]): when all its sources are known. Those of ALONE, which a test has in another form, stay files of their own, as do those
# with properties of their own. Nothing changes with ONEBATCH_BATCHES=OFF, where a changed file is compiled by itself.
function(onebatch_batch target size)
  cmake_parse_arguments(ARG "" "" "ALONE" ${ARGN})
  if(NOT ONEBATCH_BATCHES OR NOT Python3_Interpreter_FOUND)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  set(together "")
  set(apart "")
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${folder}" OUTPUT_VARIABLE file)
    get_source_file_property(own "${file}" TARGET_DIRECTORY ${target} COMPILE_DEFINITIONS)
    cmake_path(IS_PREFIX PROJECT_BINARY_DIR "${file}" is_made)
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE name)
    if(source MATCHES "\\$<" OR own OR is_made OR NOT file MATCHES "\\.cpp$" OR name IN_LIST ARG_ALONE)
      list(APPEND apart "${source}")
    else()
      list(APPEND together "${file}")
    endif()
  endforeach()
  execute_process(COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/cmake/batches.py" "${PROJECT_BINARY_DIR}/batches/${target}" ${size} ${together}
                  OUTPUT_VARIABLE compiled COMMAND_ERROR_IS_FATAL ANY)
  set_target_properties(${target} PROPERTIES SOURCES "${apart};${compiled}")
endfunction()
