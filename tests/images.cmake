# Image files, against PIL and torchvision.
add_executable(image_tool oracle/image_tool.cpp)
target_link_libraries(image_tool PRIVATE onebatch_settings onebatch_pure)
add_test(NAME images_oracle COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/oracle/run.sh ${oracle_python} -m pytest -q ${CMAKE_CURRENT_SOURCE_DIR}/oracle/images_test.py
         WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
set_tests_properties(images_oracle PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77 LABELS oracle
  ENVIRONMENT "IMAGE_TOOL=$<TARGET_FILE:image_tool>;ONEBATCH=$<TARGET_FILE:onebatch>")
