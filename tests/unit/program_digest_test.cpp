#include "trainer/models/program_digest.hpp"

#include <gtest/gtest.h>

#include <string>

namespace onebatch {
namespace {

using Json = nlohmann::json;

// y = cos(x), on the CPU; after a check of what x is.
Json example() {
  return Json::parse(R"({
    "graph": {"nodes": [
        {"target": "torch.ops.aten._assert_tensor_metadata.default", "inputs": [], "name": "check"},
        {"target": "torch.ops.aten.cos.default", "inputs": [{"arg": {"as_tensor": {"name": "x"}}}], "name": "cos",
         "is_hop_single_tensor_return": null},
        {"target": "torch.ops.aten.arange.default", "inputs": [{"arg": {"as_device": {"type": "cpu", "index": null}}}]},
        {"target": "torch.ops.higher_order.cond", "inputs": [{"arg": {"as_graph": {"name": "branch", "graph": {"nodes": [
            {"target": "torch.ops.aten.sin.default", "inputs": [], "name": "sin"}]}}}}]}]},
    "module_call_graph": [{"fqn": "", "signature": {"forward_arg_names": ["x"], "out_spec": "[1]", "in_spec": "[2]"}},
                          {"fqn": "layer", "signature": null}]})");
}

ExportedArchive archive(const std::string& constant = "abcd") {
  ExportedArchive made;
  made.tensors = {{"scale", "data/constants/tensor_0", 7, {1}, {1}, 0, false, false},
                  {"weight", "data/weights/weight_0", 7, {1}, {1}, 0, true, true}};
  made.records = {{"data/constants/tensor_0", constant}, {"data/weights/weight_0", "wxyz"}};
  return made;
}

std::string digest_with(const char* pointer, const Json& value) {
  Json changed = example();
  changed[Json::json_pointer(pointer)] = value;
  return program_digest(archive(), changed);
}

TEST(ProgramDigestTest, where_and_how_it_was_exported_does_not_count) {
  const std::string digest = program_digest(archive(), example());
  EXPECT_EQ(digest_with("/graph/nodes/2/inputs/0/arg/as_device", {{"type", "cuda"}, {"index", 0}}), digest);
  EXPECT_EQ(digest_with("/graph/nodes/1/name", "cosine"), digest);
  EXPECT_EQ(digest_with("/graph/nodes/3/inputs/0/arg/as_graph/graph/nodes/0/name", "sine"), digest);
  EXPECT_EQ(digest_with("/graph/nodes/0/inputs", {1, 2}), digest) << "a check";
  EXPECT_EQ(digest_with("/module_call_graph/1/fqn", "another"), digest);
  EXPECT_EQ(digest_with("/module_call_graph/0/signature/in_spec", "[3]"), digest);
  Json without = example();
  without["graph"]["nodes"][1].erase("is_hop_single_tensor_return");
  EXPECT_EQ(program_digest(archive(), without), digest);
  ExportedArchive trained = archive();
  trained.records["data/weights/weight_0"] = "abcd";
  EXPECT_EQ(program_digest(trained, example()), digest) << "weights";
}

TEST(ProgramDigestTest, what_it_computes_counts) {
  const std::string digest = program_digest(archive(), example());
  EXPECT_NE(digest_with("/graph/nodes/1/target", "torch.ops.aten.sin.default"), digest);
  EXPECT_NE(digest_with("/graph/nodes/1/inputs/0/arg/as_tensor/name", "z"), digest);
  EXPECT_NE(digest_with("/graph/nodes/3/inputs/0/arg/as_graph/graph/nodes/0/target", "torch.ops.aten.cos.default"),
            digest);
  EXPECT_NE(digest_with("/module_call_graph/0/signature/out_spec", "[3]"), digest);
  EXPECT_NE(program_digest(archive("abce"), example()), digest) << "a constant";
}

TEST(ProgramDigestTest, what_is_damaged_is_left_to_those_who_read_it) {
  for (const char* pointer :
       {"/graph/nodes/1/target", "/graph/nodes/1", "/graph/nodes", "/module_call_graph", "/module_call_graph/0"})
    EXPECT_NO_THROW(static_cast<void>(digest_with(pointer, 5))) << pointer;
  EXPECT_NO_THROW(static_cast<void>(program_digest(archive(), Json(3))));
}

}  // namespace
}  // namespace onebatch
