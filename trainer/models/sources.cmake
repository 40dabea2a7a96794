target_sources(onebatch_trainer PRIVATE models/trainable_module.cpp models/sample_dropout.cpp models/keyed_randomness.cpp models/torchscript.cpp models/mlp.cpp models/resnet.cpp models/registry.cpp)
