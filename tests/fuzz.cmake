# The fuzz targets' kept inputs, given to the program as it is built here. `./dev fuzz` looks for new ones.
include(fuzz/targets.cmake)
add_executable(fuzz_replay fuzz/replay.cpp fuzz/fuzz_target.cpp fuzz/config_check.cpp fuzz/built_in_kinds.cpp)
foreach(target ${ONEBATCH_FUZZ_TARGETS})
  target_sources(fuzz_replay PRIVATE fuzz/${target}_target.cpp)
endforeach()
target_link_libraries(fuzz_replay PRIVATE onebatch_settings onebatch_config onebatch_trainer onebatch_comm nlohmann_json::nlohmann_json)
add_test(NAME fuzz_corpus COMMAND fuzz_replay "${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus")
set_tests_properties(fuzz_corpus PROPERTIES TIMEOUT 120)

# A thousand damaged files of each format that data come in; `./dev fuzz` does others under sanitizers.
add_executable(mutated_files fuzz/mutated_files.cpp fuzz/mutation.cpp fuzz/memory_bound.cpp fuzz/fuzz_target.cpp)
target_link_libraries(mutated_files PRIVATE onebatch_settings onebatch_trainer fmt::fmt)
add_test(NAME mutated_files COMMAND mutated_files "${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus" 1000)
set_tests_properties(mutated_files PROPERTIES TIMEOUT 120)
