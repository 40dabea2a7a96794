# The house itself: layers, lengths, documents that say what the code does, packages that run.
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)

# onebatch_add_house_test(NAME script [arguments...]): exit code 77 is a skip, with the reason on its last line.
function(onebatch_add_house_test name script)
  add_test(NAME house.${name} COMMAND Python3::Interpreter "${CMAKE_CURRENT_SOURCE_DIR}/house/${script}" ${ARGN})
  set_tests_properties(house.${name} PROPERTIES LABELS house TIMEOUT 120 SKIP_RETURN_CODE 77
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;PYTHONDONTWRITEBYTECODE=1")
endfunction()

onebatch_add_house_test(layering layering_test.py)
onebatch_add_house_test(lengths lengths.py)
onebatch_add_house_test(documents documents_test.py --program "$<TARGET_FILE:onebatch>")
onebatch_add_house_test(find_libtorch find_libtorch_test.py --cmake "${CMAKE_COMMAND}" --compiler "${CMAKE_CXX_COMPILER}")
onebatch_add_house_test(commands commands_test.py --build "${PROJECT_BINARY_DIR}")
onebatch_add_house_test(slurm slurm_test.py --build "${PROJECT_BINARY_DIR}")
onebatch_add_house_test(package package_test.py --cmake "${CMAKE_COMMAND}" --build "${PROJECT_BINARY_DIR}")
set_tests_properties(house.commands house.package PROPERTIES TIMEOUT 600 PROCESSORS 2)
set_property(TEST house.package APPEND PROPERTY LABELS package)

# What needs a GPU: counted as skipped without one, failed under ONEBATCH_REQUIRE_GPU=1.
add_test(NAME gpu_verify COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/house/gpu_test.sh" $<TARGET_FILE:onebatch> WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
set_tests_properties(gpu_verify PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77 LABELS gpu ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
