onebatch_add_kinds(onebatch_trainer models ModelKind mlp resnet torchscript exported plugin)
onebatch_add_kinds(onebatch_trainer models LossKind cross_entropy mse models_own_loss)
target_sources(onebatch_pure PRIVATE models/checked_files.cpp models/exported_archive.cpp models/plugin_file.cpp models/script_archive.cpp models/size_guards.cpp models/source_places.cpp)
target_sources(onebatch_trainer PRIVATE models/compiled_package.cpp models/compiled_program.cpp models/compiling_python.cpp models/exported_aliases.cpp models/exported_calls.cpp models/exported_check.cpp models/exported_compiler.cpp models/exported_description.cpp models/exported_draws.cpp models/exported_layers.cpp models/exported_limits.cpp models/exported_masks.cpp models/exported_names.cpp models/exported_operands.cpp models/exported_phase.cpp models/exported_regions.cpp models/exported_schema.cpp models/exported_signature.cpp models/exported_squeeze.cpp models/exported_state.cpp models/exported_symbols.cpp models/fresh_weights.cpp models/keyed_randomness.cpp models/keyed_recurrent.cpp models/layer_calls.cpp models/layout.cpp models/loss.cpp models/registry.cpp models/run_type.cpp models/sample_dropout.cpp models/script_graph.cpp models/script_layers.cpp models/script_tensors.cpp models/single_values.cpp models/start_weights.cpp models/stored_tensors.cpp models/torchscript_state.cpp models/trainable_module.cpp models/weights_file.cpp models/weights_report.cpp models/whole_numbers.cpp)

# What is kept compiled was compiled by these: others make others.
set(compilers "${PROJECT_SOURCE_DIR}/python/onebatch/compiling.py" "${PROJECT_SOURCE_DIR}/python/onebatch/keyed.py")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${compilers})
set(digests "")
foreach(file ${compilers})
  file(SHA1 "${file}" digest)
  string(APPEND digests "${digest}")
endforeach()
set_source_files_properties(models/compiled_package.cpp PROPERTIES COMPILE_DEFINITIONS ONEBATCH_COMPILERS="${digests}")
