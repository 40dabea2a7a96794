#include "trainer/models/program_digest.hpp"

#include "trainer/io/checksum.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>

namespace onebatch {
namespace {

using Json = nlohmann::json;

// null where there is none: what is damaged is named by those who read it.
Json part_of(const Json& value, const char* key) {
  return value.is_object() ? value.value(key, Json()) : Json();
}

bool is_check(const Json& node) {
  const Json target = part_of(node, "target");
  return target.is_string() && is_check_of_export(target.get<std::string>());
}

// Also in the graphs of branches and loops.
void keep_what_is_computed(Json& value) {
  if (value.is_object()) {
    value.erase("is_hop_single_tensor_return");
    if (value.contains("as_device")) value["as_device"] = nullptr;
    if (value.contains("nodes") && value["nodes"].is_array()) {
      Json kept = Json::array();
      for (Json& node : value["nodes"]) {
        if (is_check(node)) continue;
        if (node.is_object()) node.erase("name");
        kept.push_back(std::move(node));
      }
      value["nodes"] = std::move(kept);
    }
  }
  if (value.is_structured()) {
    for (Json& part : value) keep_what_is_computed(part);
  }
}

// Of all modules, of which the whole program is the first: how it is called.
Json how_it_is_called(const Json& module_call_graph) {
  if (!module_call_graph.is_array() || module_call_graph.empty()) return {};
  const Json signature = part_of(module_call_graph.front(), "signature");
  return {part_of(signature, "forward_arg_names"), part_of(signature, "out_spec")};
}

}  // namespace

bool is_check_of_export(const std::string& target) {
  return target.starts_with("torch.ops.aten._assert_tensor_metadata.") ||
         target.starts_with("torch.ops.aten._assert_async.") ||
         target.starts_with("torch.ops.aten.sym_constrain_range");
}

std::string program_digest(const ExportedArchive& archive, const Json& graph_module) {
  ChecksumStream stream;
  const auto add = [&](const std::string& text) { stream.update(std::as_bytes(std::span(text))); };
  Json computed = graph_module;
  if (computed.is_object()) computed["module_call_graph"] = how_it_is_called(part_of(computed, "module_call_graph"));
  keep_what_is_computed(computed);
  add(computed.dump(-1, ' ', false, Json::error_handler_t::replace));
  for (const ExportedTensor& tensor : archive.tensors) {
    if (!tensor.record.starts_with("data/constants/")) continue;
    add(fmt::format("{} {} {} {} {}", tensor.name, tensor.type, fmt::join(tensor.sizes, "x"),
                    fmt::join(tensor.strides, "x"), tensor.offset));
    add(archive.records.at(tensor.record));
  }
  return to_text(stream.value());
}

}  // namespace onebatch
