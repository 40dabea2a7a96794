#include "trainer/models/script_archive.hpp"

#include "trainer/io/pickled_tensors.hpp"
#include "trainer/models/source_places.hpp"

#include <fmt/format.h>

#include <map>
#include <stdexcept>
#include <string_view>

namespace onebatch {
namespace {

// Those that LibTorch reads: values, constants, and the places in the source that errors name.
bool names_places(const std::string& name) {
  return name.substr(name.find('/') + 1).starts_with("code/") && name.ends_with(".debug_pkl");
}

bool is_pickle(const std::string& name) {
  const std::string within = name.substr(name.find('/') + 1);
  return within == "data.pkl" || within == "constants.pkl" || names_places(name);
}

// All records lie in one folder, which has the archive's first name.
std::string folder_of(const std::vector<ZipRecord>& records) {
  if (records.empty()) throw std::runtime_error("it is empty");
  const std::string folder = records.front().name.substr(0, records.front().name.find('/') + 1);
  for (const ZipRecord& record : records) {
    if (folder.empty() || !record.name.starts_with(folder))
      throw std::runtime_error("its record " + record.name + " lies in no folder, or another");
  }
  return folder;
}

void check_pickle(const std::map<std::string, const ZipRecord*>& records, const std::string& pickle) {
  const std::string folder = pickle.substr(0, pickle.rfind('.')) + "/";
  const PickledContent content = read_pickle(records.at(pickle)->content);
  if (names_places(pickle)) check_source_places(content.value);
  for (const PickledStorage& storage : content.storages) {
    const auto found = records.find(folder + storage.key);
    if (storage.bytes == 0) continue;
    if (found == records.end()) throw std::runtime_error("its record " + folder + storage.key + " is missing");
    if (found->second->bytes < storage.bytes)
      throw std::runtime_error(fmt::format("its record {} holds {} bytes of a tensor's {}", found->first,
                                           found->second->bytes, storage.bytes));
  }
}

}  // namespace

std::vector<ZipRecord> check_script_archive(const std::string& file) {
  auto records = read_zip(
      file, [](const ZipRecord& record) { return is_pickle(record.name) ? ZipContent::kept : ZipContent::left; });
  const std::string folder = folder_of(records);
  std::map<std::string, const ZipRecord*> by_name;
  for (const ZipRecord& record : records) by_name[record.name] = &record;
  if (by_name.contains(folder + "model.json")) throw std::runtime_error("it is of PyTorch 1.0's format");
  // Files with newer operators have their version in another place.
  const auto has = [&](const char* name) { return by_name.contains(folder + name); };
  for (const char* needed : {"data.pkl", "constants.pkl", "version"}) {
    if (!has(needed) && !(std::string_view(needed) == "version" && has(".data/version")))
      throw std::runtime_error("its record " + folder + needed + " is missing");
  }
  for (const ZipRecord& record : records) {
    if (is_pickle(record.name)) check_pickle(by_name, record.name);
  }
  for (ZipRecord& record : records) record.name.erase(0, folder.size());
  return records;
}

}  // namespace onebatch
