onebatch_add_kinds(onebatch_trainer models ModelKind mlp resnet torchscript)
onebatch_add_kinds(onebatch_trainer models LossKind cross_entropy mse models_own_loss)
target_sources(onebatch_pure PRIVATE models/checked_files.cpp models/script_archive.cpp models/source_places.cpp)
target_sources(onebatch_trainer PRIVATE models/keyed_randomness.cpp models/keyed_recurrent.cpp models/layout.cpp models/loss.cpp models/registry.cpp models/sample_dropout.cpp models/script_graph.cpp models/script_tensors.cpp models/single_values.cpp models/torchscript_state.cpp models/trainable_module.cpp models/weights_file.cpp)
