#include "trainer/models/exported_archive.hpp"

#include "trainer/io/json_reader.hpp"
#include "trainer/io/zip_file.hpp"
#include "trainer/models/program_digest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>
#include <set>

namespace onebatch {
namespace {

constexpr int k_deepest = 96;  // a region in a region is six deeper
constexpr std::int64_t k_schema_major = 8;
constexpr std::int64_t k_newest_minor = 17;
constexpr std::int64_t k_newest_operators = 10;
constexpr const char* k_program = "models/model.json";
constexpr const char* k_weights = "data/weights/";
constexpr const char* k_constants = "data/constants/";

// Bytes of an element, by the schema's number; 0: of a type that no tensor has here.
std::int64_t bytes_of_type(std::int64_t type) {
  static constexpr std::array<std::int64_t, 14> k_bytes = {0, 1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 2};
  return type > 0 && type < static_cast<std::int64_t>(k_bytes.size()) ? k_bytes[static_cast<std::size_t>(type)] : 0;
}

using Records = std::map<std::string, ZipRecord>;

bool is_read(const std::string& name) {
  const std::string within = name.substr(name.find('/') + 1);
  return within == k_program || within == "archive_format" || within == "archive_version" || within == "byteorder" ||
         within.starts_with(k_weights) || within.starts_with(k_constants);
}

// All records lie in one folder, which has the program's name.
Records read_records(const std::string& file, std::string& folder) {
  auto all = read_zip(file, [](const ZipRecord& record) {
    if (!is_read(record.name)) return ZipContent::read;
    if (record.packed_bytes != record.bytes)
      throw std::runtime_error("its record " + record.name + " is packed, as torch.export.save packs none");
    return ZipContent::kept;
  });
  if (all.empty()) throw std::runtime_error("it is empty");
  folder = all.front().name.substr(0, all.front().name.find('/') + 1);
  Records records;
  for (ZipRecord& record : all) {
    if (folder.empty() || !record.name.starts_with(folder))
      throw std::runtime_error("its record " + record.name + " lies in no folder, or another");
    const std::string within = record.name.substr(folder.size());
    records.emplace(within, std::move(record));
  }
  return records;
}

const std::string& content_of(const Records& records, const std::string& name) {
  const auto found = records.find(name);
  if (found == records.end())
    throw std::runtime_error("its record " + name + " is missing, as in files of PyTorch before 2.8");
  return found->second.content;
}

void check_format(const Records& records) {
  if (!records.contains(k_program) && records.contains("data.pkl"))
    throw std::runtime_error("it is TorchScript: write model.kind = \"torchscript\"");
  const auto check = [&](const char* name, const std::string& known) {
    const std::string& found = content_of(records, name);
    if (found != known)
      throw std::runtime_error(
          fmt::format("its {} is \"{}\", and only \"{}\" is known", name, found.substr(0, 40), known));
  };
  check("archive_format", "pt2");
  check("archive_version", "0");
  check("byteorder", "little");
}

void check_versions(const JsonReader& program) {
  const JsonReader version = program.field("schema_version");
  const std::int64_t major = version.field("major").integer(0, INT_MAX);
  const std::int64_t minor = version.field("minor").integer(0, INT_MAX);
  if (major != k_schema_major || minor > k_newest_minor)
    version.fail(
        fmt::format("is {}.{}: known are {}.0 to {}.{}, which PyTorch 2.8 to 2.11 write: save the program "
                    "again with one of those",
                    major, minor, k_schema_major, k_schema_major, k_newest_minor));
  const JsonReader operators = program.field("opset_version");
  if (!operators.has("aten") || operators.field("aten").integer(0, INT_MAX) > k_newest_operators)
    operators.fail(fmt::format("is not known: \"aten\" up to {} is: save the program again with PyTorch 2.11 or older",
                               k_newest_operators));
}

std::int64_t plain_number(const JsonReader& size) {
  if (!size.has("as_int")) size.fail("is no number: a saved tensor's sizes are");
  return size.field("as_int").integer(0, INT64_MAX);
}

std::vector<std::int64_t> plain_numbers(const JsonReader& list) {
  constexpr std::size_t k_most_dimensions = 64;
  const std::size_t count = list.array_size("sizes");
  if (count > k_most_dimensions) list.fail("has more dimensions than a tensor can have");
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; i < count; ++i) numbers.push_back(plain_number(list.item(i)));
  return numbers;
}

void check_within(const ExportedTensor& tensor, std::int64_t element, std::size_t bytes, const JsonReader& where) {
  if (tensor.sizes.size() != tensor.strides.size()) where.fail("has other dimensions in its sizes than in its strides");
  std::int64_t last = tensor.offset;
  std::int64_t elements = 1;
  bool overflows = false;
  for (std::size_t d = 0; d < tensor.sizes.size(); ++d) {
    overflows |= __builtin_mul_overflow(elements, std::max<std::int64_t>(tensor.sizes[d], 1), &elements);
    std::int64_t step = 0;
    overflows |= __builtin_mul_overflow(std::max<std::int64_t>(tensor.sizes[d] - 1, 0), tensor.strides[d], &step);
    overflows |= __builtin_add_overflow(last, step, &last);
  }
  std::int64_t needed = 0;
  overflows |= __builtin_add_overflow(last, std::int64_t{1}, &last);
  overflows |= __builtin_mul_overflow(last, element, &needed);
  std::int64_t whole = 0;
  overflows |= __builtin_mul_overflow(elements, element, &whole);
  if (overflows) where.fail("has sizes whose product is no number");
  const bool is_empty = std::ranges::find(tensor.sizes, 0) != tensor.sizes.end();
  if (!is_empty && static_cast<std::uint64_t>(needed) > bytes)
    where.fail(fmt::format("needs {} bytes, and its record {} holds {}", needed, tensor.record, bytes));
  // Expanded: as many elements as the record has is what may be made of it.
  if (!is_empty && static_cast<std::uint64_t>(whole) > bytes)
    where.fail(
        "is expanded, or larger than its record " + tensor.record +
        ": write .clone() where the model makes it, as in register_buffer(\"mean\", mean.expand(3, 1, 1).clone())");
}

ExportedTensor read_tensor(const std::string& name, const JsonReader& entry, const std::string& folder,
                           const Records& records) {
  ExportedTensor tensor;
  tensor.name = name;
  const std::string path = entry.field("path_name").text();
  if (path.find('/') != std::string::npos) entry.fail("lies in \"" + path + "\", which is no name of a record");
  tensor.record = folder + path;
  if (!entry.has("use_pickle") || entry.field("use_pickle").boolean())
    entry.fail(
        "is a pickle, or a custom object, which is never opened: make a plain tensor of it before exporting "
        "(tensor.as_subclass(torch.Tensor).detach().clone())");
  const auto record = records.find(tensor.record);
  if (record == records.end()) entry.fail("lies in the record " + tensor.record + ", which is missing");
  tensor.is_parameter = entry.field("is_param").boolean();
  const JsonReader meta = entry.field("tensor_meta");
  constexpr std::int64_t k_strided = 7;
  if (meta.field("layout").integer(0, INT_MAX) != k_strided) entry.fail("is sparse: only dense tensors are known");
  const std::int64_t type = meta.field("dtype").integer(0, INT_MAX);
  if (bytes_of_type(type) == 0) entry.fail(fmt::format("has the type {}, which is not known", type));
  tensor.type = static_cast<int>(type);
  tensor.sizes = plain_numbers(meta.field("sizes"));
  tensor.strides = plain_numbers(meta.field("strides"));
  tensor.offset = plain_number(meta.field("storage_offset"));
  tensor.requires_grad = meta.field("requires_grad").boolean();
  check_within(tensor, bytes_of_type(type), record->second.content.size(), entry);
  return tensor;
}

void read_tensors(const std::string& file, const std::string& folder, const char* config, const Records& records,
                  std::vector<ExportedTensor>& tensors) {
  const std::string name = folder + config;
  const auto json = JsonReader::parse(content_of(records, name), file + ": " + name);
  const JsonReader entries = JsonReader(json, file + ": " + name).field("config");
  if (!entries.json().is_object()) entries.fail("must be an object of tensors by name");
  for (const auto& [key, value] : entries.json().items())
    tensors.push_back(read_tensor(key, JsonReader(value, file + ": the tensor " + key), folder, records));
}

}  // namespace

ExportedArchive read_exported_archive(const std::string& file) {
  ExportedArchive archive;
  Records records = read_records(file, archive.folder);
  check_format(records);
  static const std::set<std::string> k_for_people = {
      "metadata", "strides", "storage_offset",    "device",
      "layout",   "hint",    "custom_obj_values", "treespec_namedtuple_fields"};
  archive.program = JsonReader::parse(content_of(records, k_program), file + ": " + k_program, k_deepest, k_for_people,
                                      "tensor_values");
  check_versions(JsonReader(archive.program, file + ": " + k_program));
  read_tensors(file, k_weights, "model_weights_config.json", records, archive.tensors);
  read_tensors(file, k_constants, "model_constants_config.json", records, archive.tensors);
  for (const ExportedTensor& tensor : archive.tensors) {
    const auto found = records.find(tensor.record);
    if (!archive.records.contains(tensor.record))
      archive.records.emplace(tensor.record, std::move(found->second.content));
  }
  const JsonReader program(archive.program, file + ": " + k_program);
  archive.digest = program_digest(archive, program.field("graph_module").json());
  return archive;
}

}  // namespace onebatch
