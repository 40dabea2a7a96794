# The house itself: layers, lengths, documents that say what the code does, packages that run.
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)

# onebatch_add_house_test(NAME [ARGUMENTS ...]): house/NAME_test.py.
function(onebatch_add_house_test name)
  onebatch_add_pytest(house.${name} house/${name}_test.py LABELS house TIMEOUT 120 PROCESSORS 1 ${ARGN})
endfunction()

add_test(NAME house.lengths COMMAND Python3::Interpreter "${CMAKE_CURRENT_SOURCE_DIR}/house/lengths.py")
set_tests_properties(house.lengths PROPERTIES LABELS house TIMEOUT 120)
onebatch_add_house_test(layering)
onebatch_add_house_test(documents ARGUMENTS --program $<TARGET_FILE:onebatch>)
onebatch_add_house_test(messages ARGUMENTS --program $<TARGET_FILE:onebatch>)
onebatch_add_house_test(find_libtorch ARGUMENTS --cmake "${CMAKE_COMMAND}" --compiler "${CMAKE_CXX_COMPILER}")
onebatch_add_house_test(commands ARGUMENTS --build "${PROJECT_BINARY_DIR}")
onebatch_add_house_test(slurm ARGUMENTS --build "${PROJECT_BINARY_DIR}")
onebatch_add_house_test(package ARGUMENTS --cmake "${CMAKE_COMMAND}" --build "${PROJECT_BINARY_DIR}")
set_tests_properties(house.commands house.package PROPERTIES TIMEOUT 900)
set_property(TEST house.package APPEND PROPERTY LABELS package)

# What needs a GPU: counted as skipped without one, failed under ONEBATCH_REQUIRE_GPU=1.
add_test(NAME gpu_verify COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/house/gpu_test.sh" $<TARGET_FILE:onebatch> WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
set_tests_properties(gpu_verify PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77 LABELS gpu ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
